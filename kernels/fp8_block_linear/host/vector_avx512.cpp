// AVX-512 F, BW, DQ, VL and VBMI: a byte shuffle over 128 entries decodes 64 codes at once.

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own header initialises "undefined" vectors with themselves, and warns of it (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "vector_kernel.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

// bf16 holds every e4m3 value exactly. Its bytes for the codes 0x00 … 0x7F; the sign is the same bit in both formats.
struct Bf16Bytes {
  alignas(64) std::uint8_t high[128];
  alignas(64) std::uint8_t low[128];
};
constexpr Bf16Bytes bf16_bytes() {
  Bf16Bytes bytes{};
  for (unsigned code = 0; code < 128; ++code) {
    const std::uint16_t bits = float_to_bf16(e4m3_to_float(static_cast<std::uint8_t>(code)));
    bytes.high[code] = static_cast<std::uint8_t>(bits >> 8);
    bytes.low[code] = static_cast<std::uint8_t>(bits & 0xFFu);
  }
  return bytes;
}
constexpr Bf16Bytes kBf16Bytes = bf16_bytes();

struct Avx512 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kStep = 64;
  static constexpr int kPanelRows = 6;  // 24 sums, 4 weights, 1 activation of 32 registers
  static constexpr int direct_columns(int rows) { return rows <= 2 ? 8 : rows <= 4 ? 4 : 2; }

  [[gnu::always_inline]] static F zero() { return _mm512_setzero_ps(); }
  [[gnu::always_inline]] static F load(const float* p) { return _mm512_loadu_ps(p); }
  [[gnu::always_inline]] static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  [[gnu::always_inline]] static F broadcast(float v) { return _mm512_set1_ps(v); }
  [[gnu::always_inline]] static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  [[gnu::always_inline]] static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }

  [[gnu::always_inline]] static void sums4(const F (&v)[4], float* sums) {
    __m128 quarter[4];
    CROSSOVER_UNROLL
    for (int i = 0; i < 4; ++i) {
      const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v[i]), _mm512_extractf32x8_ps(v[i], 1));
      quarter[i] = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    }
    _mm_storeu_ps(sums, _mm_hadd_ps(_mm_hadd_ps(quarter[0], quarter[1]), _mm_hadd_ps(quarter[2], quarter[3])));
  }

  // Words in the low half of each pair of 32 bits, then in the high half, as f32.
  [[gnu::always_inline]] static F even(__m512i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
  [[gnu::always_inline]] static F odd(__m512i words) {
    return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }

  struct Decoder {
    __m512i high0 = _mm512_load_si512(kBf16Bytes.high), high1 = _mm512_load_si512(kBf16Bytes.high + 64);
    __m512i low0 = _mm512_load_si512(kBf16Bytes.low), low1 = _mm512_load_si512(kBf16Bytes.low + 64);
    __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));

    // bf16 words of bytes 0…7 of each 128 bits in `first`, of bytes 8…15 in `second`.
    [[gnu::always_inline]] void words(__m512i codes, __m512i& first, __m512i& second) const {
      const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
      __m512i high = _mm512_permutex2var_epi8(high0, codes, high1);
      high = _mm512_ternarylogic_epi32(high, codes, sign, 0xF8);  // high | (codes & sign)
      first = _mm512_unpacklo_epi8(low, high);
      second = _mm512_unpackhi_epi8(low, high);
    }
    // Lane 4L+i holds byte 16L+2i of the 64 in out[0], and byte 16L+2i+1, 16L+2i+8, 16L+2i+9 in out[1], [2], [3].
    [[gnu::always_inline]] void packed(const std::uint8_t* codes, F (&out)[4]) const {
      __m512i first, second;
      words(_mm512_loadu_si512(codes), first, second);
      out[0] = even(first);
      out[1] = odd(first);
      out[2] = even(second);
      out[3] = odd(second);
    }
    [[gnu::always_inline]] void natural(const std::uint8_t* codes, F (&out)[4]) const {
      const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
      __m512i first, second;
      words(_mm512_permutexvar_epi64(order, _mm512_loadu_si512(codes)), first, second);
      out[0] = from_words(_mm512_castsi512_si256(first));
      out[1] = from_words(_mm512_extracti64x4_epi64(first, 1));
      out[2] = from_words(_mm512_castsi512_si256(second));
      out[3] = from_words(_mm512_extracti64x4_epi64(second, 1));
    }
  };

  [[gnu::always_inline]] static F from_words(__m256i words) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }

  [[gnu::always_inline]] static void expand(const std::uint16_t* x, bool f16, float* out) {
    const __m512i low = _mm512_loadu_si512(x), high = _mm512_loadu_si512(x + 32);
    // 128-bit lanes 0, 2, 4, 6 and 1, 3, 5, 7 of the 64 values: the words that `packed` has in `first` and `second`.
    const __m512i first = _mm512_shuffle_i64x2(low, high, 0x88), second = _mm512_shuffle_i64x2(low, high, 0xDD);
    if (f16) {
      store(out, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(first)));
      store(out + 16, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(first, 16))));
      store(out + 32, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(second)));
      store(out + 48, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(second, 16))));
    } else {
      store(out, even(first));
      store(out + 16, odd(first));
      store(out + 32, even(second));
      store(out + 48, odd(second));
    }
  }

  [[gnu::always_inline]] static F widen(const std::uint16_t* x, bool f16) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    return f16 ? _mm512_cvtph_ps(words) : from_words(words);
  }

  [[gnu::always_inline]] static void narrow(F v, bool f16, std::uint16_t* y) {
    __m256i words;
    if (f16) {
      words = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    } else {
      // As float_to_bf16.
      const __m512i bits = _mm512_castps_si512(v);
      const __m512i top = _mm512_srli_epi32(bits, 16);
      const __m512i tie = _mm512_and_si512(top, _mm512_set1_epi32(1));
      const __m512i rounded =
          _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), tie), 16);
      const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
      words = _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, top, _mm512_set1_epi32(0x40)));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), words);
  }
};

}  // namespace

constexpr VectorIsa kVectorAvx512 = vector_isa<Avx512>("avx512");

}  // namespace crossover::fp8_block_linear_detail
