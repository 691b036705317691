// Any processor: four lanes of the compiler's own vectors, weights decoded by a table of 256 floats.

#include "vector_kernel.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

struct Table {
  float values[256];
};
constexpr Table e4m3_table() {
  Table table{};
  for (unsigned code = 0; code < 256; ++code) table.values[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
  return table;
}
constexpr Table kE4m3 = e4m3_table();

struct Portable {
  typedef float F __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kStep = 16;
  static constexpr int kPanelRows = 2;  // 8 sums, 4 weights, 1 activation
  static constexpr int direct_columns(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }

  static F zero() { return F{0, 0, 0, 0}; }
  static F load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(float* p, F v) { std::memcpy(p, &v, sizeof v); }
  static F broadcast(float v) { return F{v, v, v, v}; }
  static F mul(F a, F b) { return a * b; }
  static F fma(F a, F b, F c) { return a * b + c; }

  static void sums4(const F (&v)[4], float* sums) {
    for (int i = 0; i < 4; ++i) sums[i] = (v[i][0] + v[i][1]) + (v[i][2] + v[i][3]);
  }

  struct Decoder {
    void packed(const std::uint8_t* codes, F (&out)[4]) const { natural(codes, out); }
    void natural(const std::uint8_t* codes, F (&out)[4]) const {
      for (int i = 0; i < 4; ++i, codes += 4) {
        out[i] = F{kE4m3.values[codes[0]], kE4m3.values[codes[1]], kE4m3.values[codes[2]], kE4m3.values[codes[3]]};
      }
    }
  };

  static F widen(const std::uint16_t* x, bool f16) {
    return f16 ? F{f16_to_float(x[0]), f16_to_float(x[1]), f16_to_float(x[2]), f16_to_float(x[3])}
               : F{bf16_to_float(x[0]), bf16_to_float(x[1]), bf16_to_float(x[2]), bf16_to_float(x[3])};
  }
  static void expand(const std::uint16_t* x, bool f16, float* out) {
    for (int i = 0; i < 64; i += kLanes) store(out + i, widen(x + i, f16));
  }
  static void narrow(F v, bool f16, std::uint16_t* y) {
    for (int i = 0; i < kLanes; ++i) y[i] = f16 ? float_to_f16(v[i]) : float_to_bf16(v[i]);
  }
};

}  // namespace

constexpr VectorIsa kVectorPortable = vector_isa<Portable>("portable");

}  // namespace crossover::fp8_block_linear_detail
