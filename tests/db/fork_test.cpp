// fork(): the child leaves the parent's connections alone, and may open its own.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support.hpp"

namespace crossover {
namespace {

using test::Folder;
using test::make_key;
using test::make_run;
using Access = Store::Access;

TEST(Fork, TheChildsStoreAnswersAsEmptyAndLeavesTheParentsAlone) {
  const Folder folder;
  auto store = Store::open(folder / "a.db", Access::read_write);
  const Id id = store->append(make_run(make_key(1), 1));
  ASSERT_EQ(store->runs(make_key(1)).size(), 1u);
  EXPECT_EQ(test::in_child([&] {
              EXPECT_TRUE(store->runs(make_key(1)).empty());
              EXPECT_TRUE(store->verdicts(make_key(1)).empty());
              EXPECT_TRUE(store->devices().empty());
              EXPECT_TRUE(store->requests().empty());
              EXPECT_FALSE(store->run(id).has_value());
              crossover::Run run = make_run(make_key(1), 1);
              run.id = id;
              EXPECT_FALSE(store->load(run));
              EXPECT_EQ(store->generation(), 0u);
              EXPECT_TRUE(store->warnings().empty());
              EXPECT_NE(test::store_error([&] { store->append(make_run(make_key(1), 2)); }).find("fork"),
                        std::string::npos);
              store.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(store->runs(make_key(1)).size(), 1u);
  store->append(make_run(make_key(1), 3));
  EXPECT_EQ(store->runs(make_key(1)).size(), 2u);
}

TEST(Fork, TheChildMayOpenItsOwn) {
  const Folder folder;
  const auto store = Store::open(folder / "a.db", Access::read_write);
  store->append(make_run(make_key(1), 1));
  EXPECT_EQ(test::in_child([&] {
              const auto own = Store::open(folder / "a.db", Access::read_write);
              own->append(make_run(make_key(1), 2));
              return static_cast<int>(own->runs(make_key(1)).size());
            }),
            2);
  EXPECT_EQ(store->runs(make_key(1)).size(), 2u);
}

TEST(Fork, InTheMiddleOfOtherThreadsCommits) {
  const Folder folder;
  const auto store = Store::open(folder / "a.db", Access::read_write);
  store->append(make_run(make_key(1), 0, 1));
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> written = 1;
  std::thread writer([&] {
    while (!stop) {
      store->append(make_run(make_key(1), written++, 1));
      // SQLite's locks are not fair: without a pause a child may wait for its ten seconds.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::thread reader([&] {
    while (!stop) store->runs(make_key(1));
  });
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(test::in_child([&] {
                if (!store->runs(make_key(1)).empty()) return 1;
                const auto own = Store::open(folder / "a.db", Access::read_write);
                own->append(make_run(make_key(2), static_cast<std::uint64_t>(i), 1));
                return own->runs(make_key(1)).empty() ? 2 : 0;
              }),
              0);
  stop = true;
  writer.join();
  reader.join();
  EXPECT_EQ(store->runs(make_key(1)).size(), written.load());
  EXPECT_EQ(store->runs(make_key(2)).size(), 40u);
  EXPECT_TRUE(store->warnings().empty());
}

}  // namespace
}  // namespace crossover
