// MODIFY_CQ of the size while the CQ is in use (PRM 7.12.6).

#include <gtest/gtest.h>

#include <cstring>

#include "connectx/fault_names.h"
#include "connectx/qp/data_path.h"
#include "hca/faults.h"
#include "spec/connectx/cq.h"

namespace softhca::connectx::test {
namespace {

using ModifyIn = spec::connectx::modify_cq_in;
using ModifyOut = spec::connectx::modify_cq_out;
using CqContext = spec::connectx::cq_context;
using Code = spec::connectx::command_status;
using Send = spec::connectx::wqe_opcode;

constexpr std::uint32_t kAllFields = 7;

class CqResize : public RdmaDataPath {
 protected:
  CqResize() { host_.cq = host_.create_cq(2); }

  /// A new buffer for `host_.cq`.
  HostCq larger(unsigned log_size) {
    auto made = host_.cq;
    made.log_size = log_size;
    const auto bytes = std::size_t{64} << log_size;
    made.ring = host_.allocate(bytes);
    for (std::size_t i = 0; i < bytes; i += 64) host_.at(made.ring)[i + 63] = std::byte{0xF1};
    return made;
  }
  Reply resize(const HostCq& to, std::uint32_t select = kAllFields) {
    return resize(to, select, host_.page_list(to.ring, std::size_t{64} << to.log_size));
  }
  Reply resize(const HostCq& to, std::uint32_t select, const std::vector<std::byte>& pages) {
    return host_.call<ModifyOut, ModifyIn>(
        FakeHost::Opcode::MODIFY_CQ,
        [&](util::MutableView<ModifyIn> in) {
          in.set(ModifyIn::op_mod, 1);
          in.set(ModifyIn::cqn, to.cqn);
          in.set(ModifyIn::modify_field_select, select);
          in.sub(ModifyIn::cq_context_entry).set(CqContext::log_cq_size, to.log_size);
        },
        pages);
  }
  void complete(HostQp& qp, int count = 1) {
    for (int i = 0; i != count; ++i) send(qp, wqe(qp, Send::NOP));
    host_.run();
  }
  /// Copies unread CQEs of the old buffer to the next places of the new one, as drivers do.
  void move(const HostCq& from, HostCq to) {
    auto old = from;
    for (std::uint32_t i = from.consumer;; ++i) {
      const auto* entry = host_.FakeHost::poll(old);
      ASSERT_NE(entry, nullptr) << "no Resize_Cq CQE";
      const util::View<spec::connectx::cqe64> cqe(std::span(entry, 64));
      if (cqe.get(spec::connectx::cqe64::opcode) ==
          static_cast<std::uint32_t>(spec::connectx::cqe_opcode::RESIZE_CQ)) {
        break;
      }
      const auto place = (i + 1) & ((1u << to.log_size) - 1);
      auto* copy = host_.at(to.ring + 64 * place);
      std::memcpy(copy, entry, 64);
      util::MutableView<spec::connectx::cqe64>(std::span(copy, 64))
          .set(spec::connectx::cqe64::owner, (i + 1) >> to.log_size & 1);
    }
    to.consumer = from.consumer + 1;
    util::store_be32(host_.at(to.record), to.consumer);
    host_.cq = to;
  }
};

TEST_F(CqResize, TheOldBufferEndsAndTheNewOneGoesOn) {
  auto [a, b] = host_.connected();
  complete(a, 3);
  EXPECT_EQ(completions().size(), 3u);
  std::uint16_t next = 3;
  // Resizes up and down, from many positions of both buffers.
  for (const unsigned log_size : {4u, 2u, 3u, 3u, 1u, 5u, 2u}) {
    complete(a);
    const auto to = larger(log_size);
    const auto old = host_.cq;
    ASSERT_TRUE(resize(to));
    // The device writes the next CQE to the new buffer, whether or not software has polled the old
    // one.
    if (log_size > 1) complete(a);
    move(old, to);
    if (log_size == 1) complete(a);
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 2u) << log_size;
    for (const auto& cqe : cqes) EXPECT_EQ(cqe.wqe_counter, next++);
  }
}

// Drivers look for the CQE that ends the old buffer. It follows the others.
TEST_F(CqResize, CqesThatDoNotFitKeepTheSize) {
  auto [a, b] = host_.connected();
  complete(a, 3);
  const auto smaller = larger(1);
  EXPECT_EQ(resize(smaller).status(), Code::BAD_SIZE);
  complete(a);
  EXPECT_EQ(resize(larger(4)).status(), Code::BAD_RES_STATE) << "no room for one more";
  EXPECT_EQ(completions().size(), 4u);
  complete(a);
  EXPECT_EQ(completions().size(), 1u) << "in the old buffer";
  EXPECT_TRUE(resize(smaller));
}

TEST_F(CqResize, TheArgumentsOfAResizeAreChecked) {
  auto to = larger(3);
  EXPECT_EQ(resize(to, 8).status(), Code::BAD_PARAM);
  auto unknown = to;
  unknown.cqn = 0x999;
  EXPECT_EQ(resize(unknown).status(), Code::BAD_RESOURCE);
  auto too_large = to;
  too_large.log_size = 23;
  EXPECT_EQ(resize(too_large, kAllFields, {}).status(), Code::EXCEED_LIM);
  auto short_list = to;
  short_list.log_size = 10;
  EXPECT_EQ(resize(short_list, kAllFields, host_.page_list(to.ring, 4096)).status(),
            Code::BAD_INPUT_LEN)
      << "a list of one page";
  auto [a, b] = host_.connected();
  complete(a);
  EXPECT_EQ(completions().size(), 1u) << "nothing has changed";
  EXPECT_TRUE(resize(to));
  using Query = spec::connectx::query_cq_in;
  using Queried = spec::connectx::query_cq_out;
  const auto reply = host_.call<Queried, Query>(FakeHost::Opcode::QUERY_CQ,
                                                [&](auto in) { in.set(Query::cqn, to.cqn); });
  EXPECT_EQ(reply.as<Queried>().get(Queried::cq_context_entry).get(CqContext::log_cq_size), 3u);
}

// Queues continue to complete to the CQ, and arming persists: "the consumer/producer counters
// remain intact".
TEST_F(CqResize, AnArmedCqStillHasItsEvent) {
  auto [a, b] = host_.connected();
  const auto to = larger(4);
  host_.device.driver().completion_queues().find(Cqn(host_.cq.cqn))->handle_arm(0);
  ASSERT_TRUE(resize(to));
  complete(a);
  move(host_.cq, to);
  EXPECT_EQ(completions().size(), 1u);
  EXPECT_EQ(events().size(), 1u);
}

// Software expects the completions that a fault rule holds back in the CQ.
TEST_F(CqResize, CqesThatARuleHoldsBackCount) {
  auto [a, b] = host_.connected();
  hca::Faults rules;
  auto& faults = host_.device.faults();
  faults.set_rules(rules);
  complete(a);
  const auto rule = rules.add(hca::parse_fault("do=stall-cq", fault_names()).value());
  faults.follow_rules();
  complete(a, 2);
  EXPECT_EQ(resize(larger(1)).status(), Code::BAD_SIZE);
  const auto to = larger(2);
  ASSERT_TRUE(resize(to));
  move(host_.cq, to);
  EXPECT_EQ(completions().size(), 1u);
  ASSERT_TRUE(rules.remove(rule));
  faults.follow_rules();
  EXPECT_EQ(completions().size(), 2u) << "in the new buffer";
}

TEST_F(CqResize, CqesThatARuleHoldsBackTakeNoRoomOfTheOldBuffer) {
  auto [a, b] = host_.connected();
  hca::Faults rules;
  auto& faults = host_.device.faults();
  faults.set_rules(rules);
  const auto rule = rules.add(hca::parse_fault("do=stall-cq", fault_names()).value());
  faults.follow_rules();
  complete(a, 4);
  const auto to = larger(3);
  ASSERT_TRUE(resize(to));
  move(host_.cq, to);
  ASSERT_TRUE(rules.remove(rule));
  faults.follow_rules();
  EXPECT_EQ(completions().size(), 4u);
}

}  // namespace
}  // namespace softhca::connectx::test
