// Who may measure: one at a time, whatever becomes of it.

#include "crossover/db/claim.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "support.hpp"

namespace crossover {
namespace {

using test::Folder;
using test::make_key;
using Access = Store::Access;

TEST(ClaimProcess, OneAtATimeForEveryKey) {
  const Folder folder;
  const auto one = Store::open(folder / "a.db", Access::read_write),
             two = Store::open(folder / "a.db", Access::read_write);
  const auto elsewhere = Store::open(folder / "b.db", Access::read_write);
  {
    const auto held = one->claim(make_key(1));
    ASSERT_TRUE(held.has_value());
    EXPECT_FALSE(one->claim(make_key(1)).has_value()) << "not even by the same store again";
    EXPECT_FALSE(two->claim(make_key(1)).has_value());
    EXPECT_TRUE(two->claim(make_key(2)).has_value());
    EXPECT_TRUE(elsewhere->claim(make_key(1)).has_value());
    EXPECT_EQ(test::in_child([&] {
                const auto own = Store::open(folder / "a.db", Access::read_write);
                return own->claim(make_key(1)).has_value() ? 1 : own->claim(make_key(2)).has_value() ? 0 : 2;
              }),
              0);
  }
  EXPECT_TRUE(two->claim(make_key(1)).has_value());
}

TEST(ClaimProcess, IsReleasedTheMomentItsHolderIsKilled) {
  const Folder folder;
  const std::string gpu = "GPU-killed-" + std::to_string(::getpid());
  const auto store = Store::open(folder / "a.db", Access::read_write);
  store->require_writable();
  const pid_t holder = test::start_child([&] {
    const auto own = Store::open(folder / "a.db", Access::read_write);
    std::optional<Claim> key, device;
    while (!key) key = own->claim(make_key(1));  // who asks holds it for a moment
    while (!device) device = claim_gpu(gpu);
    ::pause();
    return 0;
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while ((store->claim(make_key(1)) || claim_gpu(gpu)) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(store->claim(make_key(1)).has_value());
  EXPECT_FALSE(claim_gpu(gpu).has_value());
  ::kill(holder, SIGKILL);
  test::wait_for(holder);
  EXPECT_TRUE(store->claim(make_key(1)).has_value());
  EXPECT_TRUE(claim_gpu(gpu).has_value());
}

TEST(ClaimProcess, AChildDoesNotKeepWhatItsParentHeld) {
  const Folder folder;
  const std::string gpu = "GPU-parent-" + std::to_string(::getpid());
  const auto store = Store::open(folder / "a.db", Access::read_write);
  auto key = store->claim(make_key(1));
  auto device = claim_gpu(gpu);
  ASSERT_TRUE(key && device);
  const pid_t child = test::start_child([] {
    ::pause();
    return 0;
  });
  key.reset();
  device.reset();
  // The child closes them as soon as it runs.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!(store->claim(make_key(1)) && claim_gpu(gpu)) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(store->claim(make_key(1)).has_value());
  EXPECT_TRUE(claim_gpu(gpu).has_value());
  ::kill(child, SIGKILL);
  test::wait_for(child);
}

TEST(ClaimProcess, AChildThatReleasesItsCopyReleasesNothing) {
  const Folder folder;
  const auto store = Store::open(folder / "a.db", Access::read_write);
  auto key = store->claim(make_key(1));
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(test::in_child([&] {
              key.reset();
              return 0;
            }),
            0);
  EXPECT_FALSE(store->claim(make_key(1)).has_value());
}

TEST(Claim, WhereNothingCanBeStoredEverybodyMayMeasure) {
  const auto memory = Store::in_memory();
  const auto held = memory->claim(make_key(1));
  EXPECT_TRUE(held.has_value());
  EXPECT_TRUE(memory->claim(make_key(1)).has_value());
  const Folder folder;
  const auto lookup = Store::open(folder / "a.db", Access::lookup_only);
  EXPECT_TRUE(lookup->claim(make_key(1)).has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_TRUE(claim_gpu("").has_value());
}

}  // namespace
}  // namespace crossover
