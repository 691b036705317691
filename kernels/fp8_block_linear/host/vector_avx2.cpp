// AVX2, FMA and F16C: an e4m3 code, shifted, is an f16 of a 256th of the value, which F16C widens exactly.

#include <immintrin.h>

#include "vector_kernel.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kStep = 16;
  static constexpr int kPanelRows = 2;  // 8 sums, 4 weights, 1 activation of 16 registers
  static constexpr int direct_columns(int rows) { return rows <= 1 ? 8 : rows == 2 ? 4 : rows <= 4 ? 2 : 1; }

  [[gnu::always_inline]] static F zero() { return _mm256_setzero_ps(); }
  [[gnu::always_inline]] static F load(const float* p) { return _mm256_loadu_ps(p); }
  [[gnu::always_inline]] static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  [[gnu::always_inline]] static F broadcast(float v) { return _mm256_set1_ps(v); }
  [[gnu::always_inline]] static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  [[gnu::always_inline]] static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }

  [[gnu::always_inline]] static void sums4(const F (&v)[4], float* sums) {
    __m128 half[4];
    CROSSOVER_UNROLL
    for (int i = 0; i < 4; ++i) half[i] = _mm_add_ps(_mm256_castps256_ps128(v[i]), _mm256_extractf128_ps(v[i], 1));
    _mm_storeu_ps(sums, _mm_hadd_ps(_mm_hadd_ps(half[0], half[1]), _mm_hadd_ps(half[2], half[3])));
  }

  struct Decoder {
    [[gnu::always_inline]] void packed(const std::uint8_t* codes, F (&out)[2]) const { natural(codes, out); }
    [[gnu::always_inline]] void natural(const std::uint8_t* codes, F (&out)[2]) const {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
      // seeeemmm -> s0eeeemm m0000000: sign-extended, so that the sign is in bits 14 and 15, of which 14 goes.
      __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7),
                                      _mm256_set1_epi16(static_cast<short>(0xBFFF)));
      const __m256i all_ones = _mm256_set1_epi16(0x3F80);
      const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(half, all_ones), all_ones);
      half = _mm256_or_si256(half, _mm256_and_si256(nan, _mm256_set1_epi16(0x7E00)));
      const F scale = broadcast(256.0f);
      out[0] = mul(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), scale);
      out[1] = mul(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), scale);
    }
  };

  [[gnu::always_inline]] static F widen(const std::uint16_t* x, bool f16) {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return f16 ? _mm256_cvtph_ps(words) : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
  }
  [[gnu::always_inline]] static void expand(const std::uint16_t* x, bool f16, float* out) {
    for (int i = 0; i < 64; i += kLanes) store(out + i, widen(x + i, f16));
  }

  [[gnu::always_inline]] static void narrow(F v, bool f16, std::uint16_t* y) {
    __m128i words;
    if (f16) {
      words = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    } else {
      // As float_to_bf16.
      const __m256i bits = _mm256_castps_si256(v);
      const __m256i top = _mm256_srli_epi32(bits, 16);
      const __m256i tie = _mm256_and_si256(top, _mm256_set1_epi32(1));
      const __m256i rounded =
          _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), tie), 16);
      const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
      const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
      const __m256i wide = _mm256_blendv_epi8(rounded, quiet, nan);
      words = _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y), words);
  }
};

}  // namespace

constexpr VectorIsa kVectorAvx2 = vector_isa<Avx2>("avx2");

}  // namespace crossover::fp8_block_linear_detail
