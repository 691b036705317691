// A sanity check of the indexes, not a benchmark: wide limits, so that a busy machine does not fail it.

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "support.hpp"

namespace crossover {
namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

TEST(Speed, OpeningAndReadingAThousandProblems) {
  constexpr int kProblems = 1000;
  const test::Folder folder;
  {
    const auto store = Store::open(folder / "a.db", Store::Access::read_write);
    for (int n = 0; n < kProblems; ++n) {
      const EvidenceKey key = test::make_key(n);
      store->put(test::make_verdict(key, {store->append(test::make_run(key, static_cast<std::uint64_t>(n), 10))}));
    }
  }
  double best_open = 1e9, best_verdicts = 1e9, best_runs = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    auto start = std::chrono::steady_clock::now();
    const auto store = Store::open(folder / "a.db", Store::Access::lookup_only);
    best_open = std::min(best_open, milliseconds_since(start));
    start = std::chrono::steady_clock::now();
    for (int n = 0; n < kProblems; ++n) ASSERT_EQ(store->verdicts(test::make_key(n)).size(), 1u);
    best_verdicts = std::min(best_verdicts, milliseconds_since(start));
    start = std::chrono::steady_clock::now();
    for (int n = 0; n < kProblems; ++n) ASSERT_EQ(store->runs(test::make_key(n)).size(), 1u);
    best_runs = std::min(best_runs, milliseconds_since(start));
  }
  auto start = std::chrono::steady_clock::now();
  const auto store = Store::open(folder / "a.db", Store::Access::lookup_only);
  std::uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i) sum += store->generation();
  const double generation_us = milliseconds_since(start);
  std::cout << "open " << best_open << " ms, 1000 keys: verdicts " << best_verdicts << " ms, runs " << best_runs
            << " ms, generation " << generation_us << " us, file " << std::filesystem::file_size(folder / "a.db") / 1024
            << " KiB" << std::endl;
  EXPECT_NE(sum, 0u);
  EXPECT_LT(best_open, 100);
  EXPECT_LT(best_verdicts, 2000);
}

}  // namespace
}  // namespace crossover
