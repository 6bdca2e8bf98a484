// The virtual time of the hosts: nothing waits for an event that has no part in it.
#include <algorithm>
#include <chrono>

#include "fabric/fault_rule.h"
#include "strangers.h"

namespace softhca::bad_network {
namespace {

using namespace std::chrono_literals;
using driver::verbs::QpType;

class FleetTest : public StrangersTest {};

// The cable of the second host releases the request when the first host has already run.
TEST_F(FleetTest, AFrameThatACableReleasesIsAnsweredAtThisTime) {
  make(QpType::kRc);
  fleet_.faults().add(
      fabric::parse_fault("port=" + fleet_.port_name(1) + ",do=delay,time=1ms").value());
  // More than the responder answers when the request arrives.
  constexpr std::uint32_t kLength = 4096;
  driver::test::fill(std::span(a_->memory).first(kLength), 5);
  const auto piece = b_->region.piece(0, kLength);
  ASSERT_EQ(b_->qp.post_send({.opcode = driver::SendOpcode::kRdmaRead,
                              .pieces = {&piece, 1},
                              .remote_address = a_->region.address(),
                              .rkey = a_->region.rkey()}),
            driver::PostStatus::kOk);
  fleet_.run_before(fleet_.now() + 3ms, [] { return false; });
  EXPECT_EQ(successes(), 1u) << "the ACK timeout is 67 ms";
  EXPECT_TRUE(std::equal(a_->memory.begin(), a_->memory.begin() + kLength, b_->memory.begin()));
}

}  // namespace
}  // namespace softhca::bad_network
