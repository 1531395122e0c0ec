#include "model/tokenizer.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "model/tokenizer_bpe.h"
#include "model/tokenizer_spec.h"
#include "model/tokenizer_spm.h"

namespace cento {
namespace {

TokenizerSpec spec_of(const GgufFile& file) {
  const auto text = [&](const char* key) { return file.text(key).value_or(std::string()); };
  const auto id = [&](const char* key) -> std::optional<int64_t> {
    const auto value = file.integer(key);
    if (!value) return std::nullopt;
    return *value > INT32_MAX && *value != 0xffffffff ? INT32_MAX : static_cast<int64_t>(*value);
  };
  TokenizerSpec spec;
  spec.where = file.file().path();
  spec.model = text("tokenizer.ggml.model");
  spec.pre = text("tokenizer.ggml.pre");
  spec.architecture = text("general.architecture");
  spec.model_name = text("general.name");
  spec.tokens = file.texts("tokenizer.ggml.tokens").value_or(std::vector<std::string>());
  spec.scores = file.floats("tokenizer.ggml.scores").value_or(std::vector<float>());
  spec.types = file.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>());
  spec.merges = file.texts("tokenizer.ggml.merges").value_or(std::vector<std::string>());
  spec.bos = id("tokenizer.ggml.bos_token_id");
  spec.eos = id("tokenizer.ggml.eos_token_id");
  spec.eot = id("tokenizer.ggml.eot_token_id");
  spec.unknown = id("tokenizer.ggml.unknown_token_id");
  spec.add_bos = file.boolean("tokenizer.ggml.add_bos_token");
  spec.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix");
  return spec;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const GgufFile& file) { return make_tokenizer(spec_of(file)); }

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerSpec spec) {
  if (spec.model.empty() || spec.tokens.empty())
    throw Error(Code::kInput, "no tokenizer in the file", spec.where,
                "use a GGUF that holds the whole model; a part of a split file or an adapter has none");
  if (spec.model == "gpt2") return make_bpe_tokenizer(std::move(spec));
  if (spec.model == "llama") return make_spm_tokenizer(std::move(spec));
  throw Error(Code::kInput, "tokenizer '" + printable(spec.model) + "' is not supported", spec.where,
              "use a model whose tokenizer is byte-level BPE (gpt2) or SentencePiece BPE (llama)");
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool specials, bool strip_prefix) const {
  std::string text;
  bool at_start = strip_prefix && has_dummy_prefix();
  for (const int32_t id : ids) {
    const std::string part = piece(id, specials);
    const bool control = is_control(id);
    text += at_start && !control && !part.empty() && part[0] == ' ' ? part.substr(1) : part;
    if (!control) at_start = false;
  }
  return text;
}

std::string StreamDecoder::push(int32_t id) {
  pending_ += tokenizer_->piece(id);
  const size_t n = utf8_complete_prefix(pending_);
  const std::string out = to_valid_utf8(std::string_view(pending_).substr(0, n));
  pending_.erase(0, n);
  return out;
}

std::string StreamDecoder::finish() { return to_valid_utf8(std::exchange(pending_, {})); }

}  // namespace cento
