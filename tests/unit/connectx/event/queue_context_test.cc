// Single fields of CQ and EQ contexts (PRM 7.12, 7.13, Tables 76 and 94).

#include <gtest/gtest.h>

#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/fake_host.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Opcode = FakeHost::Opcode;
using Code = s::command_status;

class QueueContext : public testing::Test {
 protected:
  QueueContext() { host.initialize(); }

  bool complete(std::uint32_t cqn) {
    std::array<std::byte, CompletionQueue::kCqeSize> cqe{};
    cqe[0] = std::byte{0xC0};
    return host.device.driver().completion_queues().find(Cqn(cqn))->write(cqe, false);
  }
  void arm(std::uint32_t cqn, std::uint32_t command_sn, std::uint32_t consumer) {
    const std::uint64_t first = command_sn << 28 | consumer;
    host.write64(host.uar * 4096 + 0x20, first << 32 | cqn);
  }
  Reply modify(std::uint32_t cqn, std::uint32_t select, std::uint16_t period,
               std::uint16_t max_count) {
    using In = s::modify_cq_in;
    Input<In> in(Opcode::MODIFY_CQ);
    in->set(In::cqn, cqn);
    in->set(In::modify_field_select, select);
    const auto context = (*in).sub(In::cq_context_entry);
    context.set(s::cq_context::cq_period, period);
    context.set(s::cq_context::cq_max_count, max_count);
    return host.execute<s::modify_cq_out>(in);
  }
  std::uint32_t health() { return host.read32(0x1010) >> 24; }

  FakeHost host;
};

// PRM Table 120: the low bits of a PAS are reserved.
TEST_F(QueueContext, ReservedBitsOfAPageAddressMeanNothing) {
  const auto eqn = host.create_eq(4, 0, 0);
  Input<s::create_cq_in> in(Opcode::CREATE_CQ, 0, 8);
  const auto context = (*in).sub(s::create_cq_in::cq_context_entry);
  context.set(s::cq_context::log_cq_size, 2);
  context.set(s::cq_context::uar_page, host.uar);
  context.set(s::cq_context::c_eqn, eqn);
  context.set(s::cq_context::dbr_addr, host.allocate(8, 64));
  const auto page = host.allocate(4096);
  in.set_address(0, page | 0xFFF);
  const auto reply = host.execute<s::create_cq_out>(in);
  ASSERT_TRUE(reply.ok());
  ASSERT_TRUE(complete(reply.as<s::create_cq_out>().get(s::create_cq_out::cqn)));
  EXPECT_EQ(host.at(page)[0], std::byte{0xC0});
}

// PRM Table 94, oi: overrun ignore.
TEST_F(QueueContext, OverrunOfAnEqIsIgnoredWhereAsked) {
  for (const auto ignore : {0u, 1u}) {
    Input<s::create_eq_in> create(Opcode::CREATE_EQ, 0, 8);
    const auto context = (*create).sub(s::create_eq_in::eq_context_entry);
    context.set(s::eq_context::log_eq_size, 1);
    context.set(s::eq_context::uar_page, host.uar);
    context.set(s::eq_context::oi, ignore);
    create.set_address(0, host.allocate(4096));
    const auto reply = host.execute<s::create_eq_out>(create);
    ASSERT_TRUE(reply.ok());
    Input<s::gen_eqe_in> event(Opcode::GEN_EQE);
    const auto eqn = reply.as<s::create_eq_out>().get(s::create_eq_out::eq_number);
    event->set(s::gen_eqe_in::eq_number, eqn);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(host.execute<s::gen_eqe_out>(event).ok());
    EXPECT_EQ(host.execute<s::gen_eqe_out>(event).ok(), ignore != 0);
  }
}

// PRM 12.7.4, modify_field_select: bit 0 is cq_period, bit 1 cq_max_count.
TEST_F(QueueContext, OnlySelectedFieldsOfModerationChange) {
  const auto cqn = host.create_cq(2, host.create_eq(4, 0, 0)).cqn;
  const auto& attributes = host.device.driver().completion_queues().find(Cqn(cqn))->attributes();
  ASSERT_TRUE(modify(cqn, 0b11, 8, 32).ok());
  ASSERT_TRUE(modify(cqn, 0b10, 9, 33).ok());
  EXPECT_EQ(attributes.period, 8);
  EXPECT_EQ(attributes.max_count, 33);
  ASSERT_TRUE(modify(cqn, 0b01, 10, 34).ok());
  EXPECT_EQ(attributes.period, 10);
  EXPECT_EQ(attributes.max_count, 33);
}

// CQEs have no prefix in either size. Drivers on hosts with long cache lines request the second.
TEST_F(QueueContext, ACqHasTheSizeOfCqesThatItWasMadeWith) {
  const auto eqn = host.create_eq(4, 0, 0);
  for (const std::uint32_t size : {0u, 1u, 2u}) {
    const auto made =
        host.create_cq(2, eqn, 64, [&](auto context) { context.set(s::cq_context::cqe_sz, size); });
    Input<s::query_cq_in> query(Opcode::QUERY_CQ);
    query->set(s::query_cq_in::cqn, made.cqn);
    const auto reply = host.execute<s::query_cq_out>(query, 8);
    const auto shown = reply.as<s::query_cq_out>().get(s::query_cq_out::cq_context_entry);
    EXPECT_EQ(shown.get(s::cq_context::cqe_sz), size);
  }
}

// PRM 7.13.14: a delayed event is reported when the period is over, so the device must request a
// run for that time.
TEST_F(QueueContext, TheDeviceAsksForItsTurnWhenAHeldEventIsDue) {
  const auto cqn = host.create_cq(3, host.create_eq(4, 0, 0)).cqn;
  ASSERT_TRUE(modify(cqn, 0b11, 8, 32).ok());
  auto& device = host.device;
  (void)device.run(host.now);
  arm(cqn, 0, 0);
  ASSERT_TRUE(complete(cqn)) << "reported at once: the last event was long ago";
  arm(cqn, 1, 1);
  ASSERT_TRUE(complete(cqn));
  const auto due = host.now + std::chrono::microseconds(8);
  EXPECT_EQ(device.run(host.now), due) << "a turn without news";
  host.ring_commands(0);
  EXPECT_EQ(device.run(host.now), due) << "a turn that looks for commands";
}

// PRM Table 8, health_syndrome: the cause matters more than its consequences.
TEST_F(QueueContext, TheFirstHealthSyndromeStays) {
  auto& health_of_device = host.device.health();
  health_of_device.report(s::health_syndrome::EQ_IN_ERR);
  health_of_device.report(s::health_syndrome::ASYNCHRONOUS_EQ_BUF_OVERRUN);
  EXPECT_EQ(health(), 0xDu);
}

}  // namespace
}  // namespace softhca::connectx
