// A process with two copies of SQLite is told so.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "copies.hpp"
#include "support.hpp"

namespace crossover::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Unload {
  void operator()(void* handle) const { ::dlclose(handle); }
};
using Library = std::unique_ptr<void, Unload>;

Library second_copy() {
  Library library(::dlopen(CROSSOVER_SECOND_SQLITE, RTLD_NOW | RTLD_LOCAL));
  EXPECT_NE(library, nullptr) << ::dlerror();
  return library;
}

std::vector<std::string> warnings_after_a_write(const std::filesystem::path& path) {
  const auto store = Store::open(path, Store::Access::read_write);
  store->append(make_run(make_key(1), 1));
  store->append(make_run(make_key(1), 2));
  return store->warnings();
}

TEST(SqliteCopies, OneIsNoWarning) {
  const Folder folder;
  EXPECT_THAT(db::sqlite_copies().others, IsEmpty());
  EXPECT_FALSE(db::sqlite_copies().ours.empty());
  EXPECT_THAT(warnings_after_a_write(folder / "tuning.db"), IsEmpty());
}

TEST(SqliteCopies, ASecondIsOneWarningThatNamesBoth) {
  const Folder folder;
  const std::string ours = db::sqlite_copies().ours;
  const Library library = second_copy();
  EXPECT_EQ(db::sqlite_copies().ours, ours);
  EXPECT_THAT(db::sqlite_copies().others, ElementsAre(EndsWith("second_sqlite.so")));
  EXPECT_THAT(warnings_after_a_write(folder / "tuning.db"),
              ElementsAre(AllOf(HasSubstr("second_sqlite.so"), HasSubstr(ours), HasSubstr("SQLite"))));
}

TEST(SqliteCopies, NobodyWhoOnlyReadsIsWarned) {
  const Folder folder;
  warnings_after_a_write(folder / "tuning.db");
  const Library library = second_copy();
  const auto store = Store::open(folder / "tuning.db", Store::Access::read_write);
  EXPECT_EQ(store->all_runs().size(), 2u);
  EXPECT_THAT(store->warnings(), IsEmpty());
}

}  // namespace
}  // namespace crossover::test
