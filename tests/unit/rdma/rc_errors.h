// An RC connection whose requests fail.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "rdma/pair.h"

namespace softhca::rdma::test {

class RcErrors : public ::testing::Test {
 protected:
  RcErrors() {
    pair.connect();
    pair.a.fill(0, 0x20000, 1);
  }
  /// Posts `request` and a second one that must be flushed, then runs.
  void run(const SendRequest& request) {
    pair.a.post(*pair.qa, request);
    pair.a.post(*pair.qa, write(0, 0, 8));
    pair.drive();
  }
  /// Expects the requester in ERR, with the request failed by `status`.
  void expect_failed(WorkStatus status) {
    EXPECT_THAT(pair.a.hca.send_statuses(), ::testing::ElementsAre(status, WorkStatus::kFlushed));
    EXPECT_EQ(pair.qa->state(), QpState::kError);
    EXPECT_NE(pair.a.hca.sends.at(0).reason, Reason::kNone);
  }
  /// The same, and the responder is in ERR, too, and has raised `event`.
  void expect_refused(WorkStatus status, QpEvent event) {
    expect_failed(status);
    EXPECT_EQ(pair.qb->state(), QpState::kError);
    EXPECT_EQ(pair.b.hca.count(event), 1u);
  }
  MKey key_on(End& end, const std::function<void(MemoryKey::Attributes&)>& change) {
    auto attributes = end.keys.find(kKey)->attributes();
    attributes.key = MKey(next_key_);
    next_key_ += 0x100;
    change(attributes);
    return end.keys.insert(attributes).key();
  }

  Pair pair;
  std::uint32_t next_key_ = 0x5000;
};

}  // namespace softhca::rdma::test
