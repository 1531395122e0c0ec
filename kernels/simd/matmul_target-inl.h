// What the inner loops of every target share. Included inside the target's anonymous namespace, after its #pragma has
// switched its instructions on (a function that is always inlined must not have fewer of them than its caller), and
// after <cstring>, <utility> and matmul_driver.h. Once a file, so there is no guard.

using simd::DotJob;
using simd::PanelJob;

// f(0), ..., f(n - 1) with constants: GCC keeps an array in registers only where every index is one from the start.
template <class F, int... kI>
[[gnu::always_inline]] inline void for_each_of(std::integer_sequence<int, kI...>, const F& f) {
  (f(std::integral_constant<int, kI>{}), ...);
}
template <int kN, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  for_each_of(std::make_integer_sequence<int, kN>{}, f);
}
#define CENTO_INLINE __attribute__((always_inline))

// One panel times a tile of kRows rows; the target defines it.
template <QuantFormat kFormat, int kRows>
void panel(const PanelJob& job);

template <QuantFormat kFormat>
constexpr simd::MatmulTarget::Panel kPanelKernels[simd::kNTileRows] = {
    panel<kFormat, 12>, panel<kFormat, 8>, panel<kFormat, 4>, panel<kFormat, 2>, panel<kFormat, 1>};

const simd::MatmulTarget::Panel* panels(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return kPanelKernels<kQ4_0>;
    case DType::kQ4_1:
      return kPanelKernels<kQ4_1>;
    case DType::kQ5_0:
      return kPanelKernels<kQ5_0>;
    case DType::kQ5_1:
      return kPanelKernels<kQ5_1>;
    case DType::kQ8_0:
      return kPanelKernels<kQ8_0>;
    case DType::kQ2_K:
      return kPanelKernels<kQ2_K>;
    case DType::kQ3_K:
      return kPanelKernels<kQ3_K>;
    case DType::kQ4_K:
      return kPanelKernels<kQ4_K>;
    case DType::kQ5_K:
      return kPanelKernels<kQ5_K>;
    case DType::kQ6_K:
      return kPanelKernels<kQ6_K>;
    default:
      return nullptr;
  }
}

void put(std::byte* p, int32_t v) { std::memcpy(p, &v, sizeof v); }
void put(std::byte* p, float v) { std::memcpy(p, &v, sizeof v); }

// Sums and scales of a quantised row where its tile keeps them.
struct RowPlace {
  std::byte* a;  // of the 32 values
  std::byte* b;  // or null
  size_t row, n_rows;
};

// s0, s1: sums of the first and last 16 q.
inline void put_sums(const RowPlace& to, float sx, int32_t s0, int32_t s1) {
  std::byte* at = to.a + to.n_rows * 32 + to.row * 4;
  put(at, sx);
  put(at + to.n_rows * 4, -(s0 + s1));
  put(at + to.n_rows * 8, sx * static_cast<float>(s0 + s1));
  if (to.b == nullptr) return;
  at = to.b + to.row * 4;
  put(at, -s0);
  put(at + to.n_rows * 4, -s1);
  put(at + to.n_rows * 8, sx * static_cast<float>(s0));
  put(at + to.n_rows * 12, sx * static_cast<float>(s1));
}

// All rows times all weight rows; the target defines it.
template <DType kType>
void dot_all(const DotJob& job);

void dot(DType type, const DotJob& job) {
  if (type == DType::kF16)
    dot_all<DType::kF16>(job);
  else if (type == DType::kBF16)
    dot_all<DType::kBF16>(job);
  else
    dot_all<DType::kF32>(job);
}
