// HTML without a parser: what gumbo must not be given.
#pragma once

#include <string_view>

#include "docs/reader.h"

namespace cento {

// An upper bound of the nesting, elements that close themselves or their like left out.
int deepest_nesting(std::string_view html);

// Text without tags, one paragraph a run between block tags. Linear in the length, no stack.
Document strip_tags(std::string_view html);

}  // namespace cento
