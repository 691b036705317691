#include "host_arms.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>

namespace crossover::fp8_block_linear_detail {

Eligibility HostArm::supports(const Problem& problem, Rows rows, const Device& device) const {
  static_cast<void>(Fp8BlockLinear::from(problem));
  if (device.kind != "cpu") return Eligibility::no("runs on the CPU only (device kind " + device.kind + ")");
  const RowDomain domain;
  if (!domain.contains(rows)) return Eligibility::no("rows < 1 (rows = " + std::to_string(rows) + ")");
  return {true, {}, domain};
}

BiasType bias_type(Element bias) {
  switch (bias) {
    case Element::bf16:
      return BiasType::bf16;
    case Element::f16:
      return BiasType::f16;
    case Element::f32:
      return BiasType::f32;
    case Element::none:
      break;
  }
  return BiasType::none;
}

std::span<const VectorIsa* const> vector_isas() {
  struct Found {
    std::array<const VectorIsa*, 3> isas{};
    std::size_t count = 0;
  };
  static const Found found = [] {
    Found f;
#if defined(__x86_64__)
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    const bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512vbmi");
    if (avx512) f.isas[f.count++] = &kVectorAvx512;
    if (avx2) f.isas[f.count++] = &kVectorAvx2;
#endif
    f.isas[f.count++] = &kVectorPortable;
    return f;
  }();
  return {found.isas.data(), found.count};
}

}  // namespace crossover::fp8_block_linear_detail
