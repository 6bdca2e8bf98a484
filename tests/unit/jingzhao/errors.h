// Two sides, the faults of their requests, and the events that report them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "jingzhao/world.h"

namespace softhca::jingzhao::test {

class JingzhaoErrors : public testing::Test {
 protected:
  using SendOpcode = driver::SendOpcode;
  using SendRequest = driver::SendRequest;
  using command_opcode = spec::jingzhao::command_opcode;
  using event_type = spec::jingzhao::event_type;

  JingzhaoErrors() { world.open(); }
  void make(const Side::Options& options = {}, jz::Connection connection = {},
            jz::RemoteAccess access = {}) {
    a.emplace(world.a(), options);
    b.emplace(world.b(), options);
    connect(*a, *b, connection, access);
  }
  WorkStatus outcome(const SendRequest& request) {
    EXPECT_EQ(a->qp->post_send(request), PostStatus::kOk);
    const auto done = wait(world, *a->send_cq);
    return done.empty() ? WorkStatus::kUnknown : done[0].status;
  }
  SendRequest request(SendOpcode opcode, const Sge& piece) const {
    return {.id = 7,
            .opcode = opcode,
            .pieces = {&piece, 1},
            .remote_address = b->address(),
            .rkey = b->key->key()};
  }
  void write() {
    const auto piece = a->piece(0, 10);
    ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece)), PostStatus::kOk);
    world.advance(std::chrono::milliseconds(1));
  }
  /// HW2SW_MPT of the key of the CQ's buffer. The driver allocates that key next to the memory's
  /// key.
  void take_memory_of_cq() {
    const auto index = (a->key->key() & ((1u << world.a().hca->options().log_mpts) - 1)) + 1;
    must(world.a().hca->run({.op = command_opcode::HW2SW_MPT, .in_modifier = index}));
  }
  void expect_cq_error() {
    const auto failed = event(world.a());
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->type, event_type::CQ_ERROR);
    EXPECT_EQ(failed->syndrome, 2);
  }
  /// The next event that is no completion event.
  std::optional<jz::Event> event(Node& node) {
    std::optional<jz::Event> found;
    world.run_until([&] { return (found = node.hca->poll_event()).has_value(); });
    return found;
  }
  static jz::Connection impatient() { return {.ack_timeout = 10, .retry_count = 2}; }

  World world;
  std::optional<Side> a;
  std::optional<Side> b;
};

}  // namespace softhca::jingzhao::test
