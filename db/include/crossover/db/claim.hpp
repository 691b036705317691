#pragma once
// Who may measure: held by one process at a time, released by the kernel when that process dies, however it dies.

#include <optional>
#include <string>

namespace crossover {

// Held until destroyed. A child of fork() does not hold what its parent holds. Movable; any thread.
class Claim {
 public:
  Claim() = default;  // holds nothing, and stands for what needs no lock
  explicit Claim(int descriptor);
  Claim(Claim&& other) noexcept;
  Claim& operator=(Claim&& other) noexcept;
  ~Claim();

 private:
  int descriptor_ = -1;
};

// The right to measure on the GPU with this UUID, among all processes of the host (of its network namespace), whatever
// database they use: two tunings on one GPU spoil each other. Nothing: somebody has it. An empty UUID needs none.
std::optional<Claim> claim_gpu(const std::string& uuid);

}  // namespace crossover
