#pragma once
// What the calling thread has done so far of what the hot path must not do. Counted by replacing operator new and by
// standing before the C library's lock functions, for the whole program.

#include <cstdint>

namespace crossover::bench {

struct Counts {
  std::uint64_t allocations = 0;
  std::uint64_t locks = 0;  // mutexes, reader-writer locks and spin locks, whether they had to wait or not
};
Counts counts() noexcept;

// Allocates and locks, and throws Failure if that was not counted: a zero is then worth something.
void check_that_counting_works();

}  // namespace crossover::bench
