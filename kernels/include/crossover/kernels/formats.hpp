#pragma once
// The number formats of the built-in operations, bit for bit. Every function is exact or rounds to nearest, ties to
// even.
//
// All are forced inline: translation units with different instruction sets use them, and the linker must never pick one
// unit's out-of-line copy for another.

#include <cstdint>

namespace crossover {

// OCP FP8 E4M3: sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinity; 0x7F and 0xFF are NaN. The largest finite
// value is 448, the smallest above zero 2^-9.
[[gnu::always_inline]] constexpr float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7Fu;
  if (magnitude == 0x7Fu) return __builtin_bit_cast(float, sign | 0x7FC00000u);
  if (magnitude >= 8u) return __builtin_bit_cast(float, sign | ((magnitude << 20) + (120u << 23)));  // bias 7 -> 127
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
  return sign != 0 ? -subnormal : subnormal;
}

[[gnu::always_inline]] constexpr float bf16_to_float(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

// A NaN stays a NaN: the quiet bit is set, so that a payload in the low half cannot turn it into infinity.
[[gnu::always_inline]] constexpr std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

[[gnu::always_inline]] constexpr float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return __builtin_bit_cast(float, sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  if (magnitude >= 0x400u)
    return __builtin_bit_cast(float, sign | ((magnitude << 13) + (112u << 23)));  // bias 15 -> 127
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return sign != 0 ? -subnormal : subnormal;
}

[[gnu::always_inline]] constexpr std::uint16_t float_to_f16(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u | ((magnitude >> 13) & 0x1FFu);
  } else if (magnitude >= 0x477FF000u) {  // 65520: the first value that rounds to infinity
    half = 0x7C00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14: normal
    const std::uint32_t rebased = magnitude - (112u << 23);
    half = (rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13;
  } else {
    // Adding 0.5 moves the subnormal's last bit, 2^-24, to the last bit of the sum, which rounds to nearest even.
    half = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3F000000u;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace crossover
