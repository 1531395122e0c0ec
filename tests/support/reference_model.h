// The transformers that cento runs, once more: in float64, plain loops over one sequence, written from the papers and
// the GGUF specification, sharing nothing with kernels/ and engine/ but the expansion of quantised blocks. What the
// engine is held against, and a measure of how far float32 or int8 arithmetic may be from it.
//
// Sources: LLaMA (arXiv:2302.13971), RoFormer (arXiv:2104.09864), Qwen2 (arXiv:2407.10671), Gemma 3 (arXiv:2503.19786).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/gguf_reader.h"

namespace cento::test {

// Every operation's result is moved at random, evenly within a distance that stands for its rounding error. How far the
// logits move then is this model's sensitivity to such errors, layers, softmax and all; no closed formula bounds that
// without being useless after two layers. The distances, with u = 2^-24:
//   kFloat32  sums of n products: sqrt(n) u |products|_2. A sum taken one by one has an error of about a third of that
//             (root of the squared partial sums, each rounded by at most u; for products of mixed sign), one taken in
//             vector lanes less. RMS norm: the row's scale by (sqrt(n) + 3) u; each further product, quotient or
//             addition 1 u of its result; cos, sin, exp, tanh 4 u.
//   kFast     what the fast mode adds: half a step of the int8 activations (step = max |x| / 127 over 32 values) in
//   front
//             of quantised matrices, and 2^-11 for each rounding to half: V once, K before and after its rotation.
enum class Rounding { kNone, kFloat32, kFast };

class ReferenceModel {
 public:
  explicit ReferenceModel(const GgufFile& file);  // llama, qwen2, gemma3; throws std::runtime_error for anything else
  ~ReferenceModel();

  // Logits [T, V] of all rows of a sequence from position 0 on.
  std::vector<double> logits(std::span<const int32_t> ids, Rounding rounding = Rounding::kNone,
                             uint64_t seed = 1) const;
  // [T]: the largest attention probability of each key in `layer`, over all heads and the rows from `first_row` on.
  std::vector<double> key_mass(std::span<const int32_t> ids, size_t layer, size_t first_row,
                               Rounding rounding = Rounding::kNone, uint64_t seed = 1) const;
  size_t vocab() const;
  size_t n_layers() const;

 private:
  struct Model;
  std::unique_ptr<const Model> model_;
};

// How far Rounding moves a logit of the sequence, at most, over `n_seeds` draws.
double largest_shift(const ReferenceModel& model, std::span<const int32_t> ids, Rounding rounding, int n_seeds = 3);

// KL(softmax(p) || softmax(q)) in nats, the textbook formula in float64.
double kl64(std::span<const double> p_logits, std::span<const double> q_logits);

// Mean over rows and draws of KL(exact || moved).
double mean_kl(const ReferenceModel& model, std::span<const int32_t> ids, Rounding rounding, int n_seeds = 3);

}  // namespace cento::test
