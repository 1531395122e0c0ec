// One JSON object -> one item; what is wrong with it otherwise. The inner half of eval/dataset.h.
#pragma once

#include <string>
#include <string_view>

#include "eval/dataset.h"

namespace cento {

// `json`: any bytes, at most DatasetReader::kLineBytesMax. `must_be_prompt`: "chunks" is not optional. The item's set
// stays empty, and its id if it is a prompt without one. The Error's code is kInput, its where() is empty.
Result<EvalItem> parse_eval_item(std::string_view json, bool must_be_prompt);

const std::string& prompt_file_hint();

}  // namespace cento
