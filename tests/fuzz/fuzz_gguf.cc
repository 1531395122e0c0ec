// GGUF files: reader, configuration, weights, fingerprint and the expansion of the blocks of what was accepted.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "compute/quant.h"
#include "fuzz/fuzz_main.h"
#include "model/fingerprint.h"
#include "model/gguf_reader.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "support/gguf_writer.h"

namespace {

using namespace cento;

template <class F>
void contract(F f) {
  try {
    f();
  } catch (const Error& e) {
    if (e.code() != Code::kInput) std::abort();  // a bad file is nobody else's fault
  }
}

void use(const GgufFile& file) {
  for (const auto& [key, value] : file.values()) {
    contract([&] { (void)file.text(key); });
    contract([&] { (void)file.integer(key); });
    contract([&] { (void)file.number(key); });
    contract([&] { (void)file.boolean(key); });
    contract([&] { (void)file.texts(key); });
    contract([&] { (void)file.floats(key); });
    contract([&] { (void)file.integers(key); });
  }
  std::vector<float> row;
  for (const GgufTensor& t : file.tensors()) {
    if (!t.readable) continue;
    row.resize(t.view.cols());
    dequantize_row(t.view, 0, row.data());
    dequantize_row(t.view, t.view.rows() - 1, row.data());
  }
  contract([&] {
    const ModelConfig config = read_model_config(file);
    const Weights weights = find_weights(file, config);
    if (weights.layers.size() != config.n_layers || !unsupported_reason(file).empty()) std::abort();
    (void)model_fingerprint(file, config);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0) std::abort();
  for (size_t done = 0; done < n_bytes;) {
    const ssize_t n = ::write(fd, data + done, n_bytes - done);
    if (n <= 0) std::abort();
    done += static_cast<size_t>(n);
  }
  contract([&] { use(GgufFile("/proc/self/fd/" + std::to_string(fd))); });
  (void)::close(fd);
  return 0;
}

std::vector<std::string> cento::test::builtin_seeds() {
  std::vector<std::string> seeds;
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    TinyModelSpec spec;
    spec.architecture = architecture;
    spec.layers = 1;
    spec.heads = 2;
    spec.kv_heads = 1;
    spec.width = 32;
    spec.ffn = 32;
    spec.type = DType::kQ8_0;
    spec.rope_llama3 = spec.architecture == "llama";
    TinyVocab vocab;
    vocab.kind = spec.architecture == "qwen2" ? TinyVocab::Kind::kBpe : TinyVocab::Kind::kSpm;
    vocab.tokens = {"<unk>", "a", "b", "ab"};
    vocab.types = {2, 1, 1, 1};
    vocab.scores = {0, -1, -2, -3};
    vocab.merges = {"a b"};
    spec.vocab = vocab;
    seeds.push_back(tiny_model(spec).bytes());
  }
  GgufWriter blocks;  // one tensor of each type
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
        DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    Rng rng(1);
    blocks.add_raw(dtype_info(type).name, {1, 256}, static_cast<uint32_t>(type), random_blocks(type, 256, 1, rng));
  }
  seeds.push_back(blocks.bytes());
  return seeds;
}
