// Identity of a model: what changes the numbers, never a name or a path (DESIGN 4).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "model/gguf_reader.h"
#include "model/model_config.h"

namespace cento {

// Hash of all tensor bytes (names, shapes, types and content), of the numbers in `config` and of the tokenizer's
// metadata. Reads the whole file: about 1 s a GB. general.name and other descriptive keys do not enter.
Hash model_fingerprint(const GgufFile& file, const ModelConfig& config);

// Hash of a few hundred pages from all over the file, its beginning and end among them: says in milliseconds that a
// file is another one. It does not prove that it is the same one.
Hash model_sample(const MappedFile& file);

// Layers, heads and dims of the KV and the numeric mode it was computed in; part of every KV key.
Hash kv_layout_id(const ModelConfig& config, bool precision_f32);

}  // namespace cento
