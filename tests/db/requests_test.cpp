// Requests, and the derived list of a key's runs.

#include <gtest/gtest.h>

#include "codec.hpp"
#include "support.hpp"

namespace crossover {
namespace {

using test::make_key;
using test::make_run;
using test::make_verdict;

Request make_request(int n, bool low_priority = false) {
  Request request;
  request.key = make_key(n);
  request.max_m = 64;
  request.reason = "never measured";
  request.low_priority = low_priority;
  return request;
}

TEST(Requests, CountUpAndKeepTheMostUrgent) {
  const auto store = Store::in_memory();
  store->request(make_request(1, true));
  Request again = make_request(1);
  again.max_m = 32;
  again.reason = "driver: 535 -> 999";
  store->request(again);
  ASSERT_EQ(store->requests().size(), 1u);
  const Request stored = store->requests()[0];
  EXPECT_EQ(stored.key, make_key(1));
  EXPECT_EQ(stored.max_m, 64);
  EXPECT_EQ(stored.count, 2);
  EXPECT_EQ(stored.fails, 0);
  EXPECT_EQ(stored.reason, "driver: 535 -> 999");
  EXPECT_FALSE(stored.low_priority);
}

TEST(Requests, HighPriorityFirstThenTheMostAskedFor) {
  const auto store = Store::in_memory();
  for (int i = 0; i < 5; ++i) store->request(make_request(1, true));
  store->request(make_request(2));
  for (int i = 0; i < 3; ++i) store->request(make_request(3));
  std::vector<std::string> order;
  for (const Request& request : store->requests()) order.push_back(request.key.problem.attributes.at("n"));
  EXPECT_EQ(order, (std::vector<std::string>{"3", "2", "1"}));
}

TEST(Requests, FailedTriesAreCountedAndServedOnesGo) {
  const auto store = Store::in_memory();
  store->request(make_request(1));
  store->failed(make_key(1), 77);
  store->failed(make_key(1), 88);
  EXPECT_EQ(store->requests().at(0).fails, 2);
  EXPECT_EQ(store->requests().at(0).not_before_us, 88);
  store->request(make_request(1));
  EXPECT_EQ(store->requests().at(0).fails, 2);  // asking again does not make it due
  EXPECT_EQ(store->requests().at(0).not_before_us, 88);
  const std::uint64_t before = store->generation();
  store->failed(make_key(2), 1);  // nobody asked
  store->served(make_key(2));
  EXPECT_EQ(store->generation(), before);
  store->served(make_key(1));
  EXPECT_TRUE(store->requests().empty());
  EXPECT_NE(store->generation(), before);
}

TEST(Requests, ARequestForNegativeRowsIsRefused) {
  Request request = make_request(1);
  request.max_m = -1;
  const auto store = Store::in_memory();
  EXPECT_NE(test::store_error([&] { store->request(request); }), "");
  EXPECT_TRUE(store->requests().empty());
}

TEST(Live, ListsTheRunsOfAKeyBestFirst) {
  const test::Folder folder;
  const auto path = folder / "a.db";
  const EvidenceKey key = make_key(1);
  std::vector<Id> ids;
  {
    const auto store = Store::open(path, Store::Access::read_write);
    for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
      crossover::Run run = make_run(key, seed);
      run.protocol = seed == 1 ? 2 : 1;
      ids.push_back(store->append(run));
    }
    store->append(make_run(make_key(2), 9));
  }
  // Received from elsewhere: 1 and 4; 4 is in a confirmed verdict.
  test::vandalise(path, "INSERT INTO received VALUES(x'" + ids[0].hex() +
                            "', zeroblob(16), 5);"
                            "INSERT INTO received VALUES(x'" +
                            ids[3].hex() + "', zeroblob(16), 5);");
  const auto store = Store::open(path, Store::Access::read_write);
  store->put(make_verdict(key, {ids[3]}));
  db::Connection connection(path, db::Connection::Mode::read_only);
  db::Query query = connection.query("SELECT run_ids FROM live ORDER BY length(run_ids) DESC");
  ASSERT_TRUE(query.step());
  EXPECT_EQ(codec::decode<std::vector<Id>>(query.text(0)), (std::vector<Id>{ids[2], ids[1], ids[3], ids[0]}));
  EXPECT_TRUE(query.step());
  EXPECT_FALSE(query.step());
  std::vector<bool> received;
  for (const crossover::Run& run : store->runs(key)) received.push_back(run.received);
  EXPECT_EQ(received, (std::vector<bool>{true, false, false, true}));
}

}  // namespace
}  // namespace crossover
