// The `softhca inspect` output for a ConnectX-4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "connectx/ethernet/ethernet_host.h"
#include "connectx/event/completion_queue.h"
#include "connectx/qp/rdma_test_host.h"
#include "connectx/qp/wqe_builder.h"
#include "spec/connectx/mkey.h"
#include "util/inspected.h"

namespace softhca::connectx {
namespace {

using test::RdmaTestHost;
using test::WqeBuilder;
using ::testing::HasSubstr;
using ::testing::Not;

/// The lines below the line `name` that are indented deeper.
std::string part_of(const std::string& text, const std::string& name) {
  const auto at = text.find(name);
  if (at == std::string::npos) return "nothing is called " + name;
  const auto line = text.rfind('\n', at) + 1;
  const std::string indent(at - line + 1, ' ');
  auto end = text.find('\n', at) + 1;
  while (text.compare(end, indent.size(), indent) == 0) end = text.find('\n', end) + 1;
  return text.substr(at, end - at);
}

class InspectTest : public ::testing::Test {
 protected:
  std::string inspect() { return softhca::test::inspected(host.device); }
  std::string part(const std::string& name) { return part_of(inspect(), name); }
  RdmaTestHost host;
};

TEST_F(InspectTest, ShowsBothSidesPsnsAndRingsOfAQp) {
  auto [a, b] = host.connected();
  const auto text = inspect();
  for (const auto qpn : {a.qpn, b.qpn}) EXPECT_THAT(text, HasSubstr(fmt::format("qp {:#x}:", qpn)));
  for (const auto* name : {"next_send_psn", "last_acked_psn", "next_receive_psn",
                           "send_queue:", "receive_queue:", "consumed", "state: RTS"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST_F(InspectTest, ShowsHowFarTheRingOfACqIs) {
  auto cq = host.create_cq(4);
  std::array<std::byte, 64> cqe{};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(host.device.driver().completion_queues().find(Cqn(cq.cqn))->write(cqe, false));
  }
  const auto shown = part(fmt::format("cq {:#x}:", cq.cqn));
  EXPECT_THAT(shown, HasSubstr("status: OK"));
  EXPECT_THAT(shown, HasSubstr("armed: FIRED"));
  EXPECT_THAT(shown, HasSubstr("producer: 3"));
  EXPECT_THAT(shown, HasSubstr("consumer: 0"));
}

TEST_F(InspectTest, ShowsWhatIsInFlight) {
  auto [a, b] = host.connected();
  host.post_receive(b, host.allocate(64), 64);
  const auto text = host.put_text("in flight");
  host.post_send(
      a, WqeBuilder(WqeBuilder::Opcode::SEND, 0, a.qpn).data(text, 9, RdmaTestHost::kKey).bytes());
  host.ring_send(a);
  host.device.run(host.now);
  const auto qp = part(fmt::format("qp {:#x}:", a.qpn));
  for (const auto& line :
       {fmt::format("peer_qpn: {:#x}", b.qpn), std::string("consumed: 1"),
        std::string("requests_outstanding: 1"), std::string("packets_in_flight: 1")}) {
    EXPECT_THAT(qp, HasSubstr(line));
  }
  EXPECT_THAT(inspect(), HasSubstr("frames_in_flight: 1"));
  host.run();
  EXPECT_THAT(inspect(), HasSubstr("frames_in_flight: 0"));
}

TEST_F(InspectTest, ShowsMemoryKeysAndTheirRights) {
  using In = spec::connectx::create_mkey_in;
  using Out = spec::connectx::create_mkey_out;
  using Context = spec::connectx::mkey_context;
  const auto created = host.call<Out, In>(test::Opcode::CREATE_MKEY, [&](auto in) {
    const auto context = in.sub(In::mkey_context);
    context.set(Context::lw, 1);
    context.set(Context::rr, 1);
    context.set(Context::qpn, 0xFFFFFF);
    context.set(Context::mkey, 0x42);
    context.set(Context::pd, host.pd);
    context.set(Context::start_addr, 0x7000);
    context.set(Context::len, 0x2000);
  });
  ASSERT_TRUE(created);
  const auto index = created.as<Out>().get(Out::mkey_index);
  const auto mkey = part(fmt::format("mkey {:#x}:", index << 8 | 0x42));
  for (const auto* line : {"start: 0x7000", "length: 0x2000", "free: no", "local_write: yes",
                           "remote_read: yes", "remote_write: no"}) {
    EXPECT_THAT(mkey, HasSubstr(line));
  }
}

TEST_F(InspectTest, ShowsCountersThatCount) {
  const auto set = host.device.driver().resources().allocate_q_counter();
  host.device.driver().resources().q_counter(*set)->out_of_buffer = 5;
  const auto counters = part(fmt::format("set {:#x}:", set->value()));
  EXPECT_THAT(counters, HasSubstr("out_of_buffer: 5"));
  EXPECT_THAT(counters, Not(HasSubstr("out_of_sequence")));
}

TEST(InspectEthernetTest, ShowsRingsOfSqsAndRqsAndTheFlowTables) {
  test::EthernetHost host;
  const auto cqn = host.create_cq();
  const auto sqn = host.create_sq(cqn);
  const auto rqn = host.create_rq(cqn);
  host.steer_all_to(host.create_direct_tir(rqn));
  for (int i = 0; i < 2; ++i) host.post_receive(rqn, 2048);
  host.arrive(test::make_frame({}));
  using Nop = spec::connectx::wqe_opcode;
  for (std::uint16_t i = 0; i < 3; ++i) {
    host.post_send(sqn, test::Wqe(Nop::NOP, sqn, i).finish());
  }
  const auto text = softhca::test::inspected(host.device);
  const auto sq = part_of(text, fmt::format("sq {:#x}:", sqn));
  EXPECT_THAT(sq, HasSubstr("state: RDY"));
  EXPECT_THAT(sq, HasSubstr(fmt::format("cqn: {:#x}", cqn)));
  EXPECT_THAT(sq, HasSubstr("consumed: 3"));
  const auto rq = part_of(text, fmt::format("rq {:#x}:", rqn));
  EXPECT_THAT(rq, HasSubstr("entries: 8"));
  EXPECT_THAT(rq, HasSubstr("consumed: 1"));
  EXPECT_THAT(rq, HasSubstr("known: 1"));
  const auto table = part_of(text, "flow_table 0x1:");
  EXPECT_THAT(table, HasSubstr("flows: 1"));
  EXPECT_THAT(part_of(text, "ethernet_received:"), HasSubstr("packets: 1"));
}

TEST_F(InspectTest, ShowsTheFirstOfManyAndHowToSeeMore) {
  for (int i = 0; i < 100; ++i) (void)host.create_cq(0);
  const auto text = inspect();
  EXPECT_THAT(text, HasSubstr("completion_queues_count: 101\n"));
  EXPECT_THAT(text, HasSubstr("completion_queues_shown: 16 of 101, --from 0x11 for more\n"));
  EXPECT_THAT(text, Not(HasSubstr("event_queues_shown")));
  const auto next = softhca::test::inspected(host.device, {.from = 0x11, .count = 1});
  EXPECT_THAT(next, HasSubstr("cq 0x11:"));
  EXPECT_THAT(next, HasSubstr("completion_queues_shown: 1 of 101, --from 0x12 for more\n"));
}

TEST_F(InspectTest, AKeyIsAskedForByItsNumber) {
  const auto one = [this](std::uint32_t number) {
    return softhca::test::inspected(host.device, {.from = number, .count = 1});
  };
  EXPECT_THAT(one(RdmaTestHost::kKey), HasSubstr(fmt::format("mkey {:#x}:", RdmaTestHost::kKey)));
  EXPECT_THAT(one(RdmaTestHost::kKey + 0x100), HasSubstr("memory_keys: -\n"));
}

TEST_F(InspectTest, HundredsOfObjectsAreShownInTurnsOfBoundedWork) {
  for (int i = 0; i < 300; ++i) (void)host.create_cq(0);
  constexpr std::int64_t kAllowed = 10'000;
  const auto in_turns =
      softhca::test::inspect_in_turns(host.device, {.json = true, .count = 256}, kAllowed);
  EXPECT_GE(in_turns.turns, 20u);
  EXPECT_LE(in_turns.longest, 3 * kAllowed);
  EXPECT_EQ(in_turns.text, softhca::test::inspected(host.device, {.json = true, .count = 256}));
}

}  // namespace
}  // namespace softhca::connectx
