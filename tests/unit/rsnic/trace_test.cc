// What a trace tells of a doorbell's life, in the terms of the document and in general.

#include "util/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "driver/world.h"
#include "rsnic/modules.h"
#include "rsnic/options.h"
#include "util/inspected.h"
#include "util/written_trace.h"

namespace softhca::rsnic {
namespace {

using namespace driver::test;  // World, Endpoint, must()
using driver::PostStatus;
using softhca::test::steps_of;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;
using util::TraceWriter;

/// Two cards that write their steps to one file.
class TracedWorld {
 public:
  TracedWorld(TraceWriter::Format format, const connectx::DeviceOptions& card)
      : file_(format), world({}, card, card) {
    world.a().device->set_trace(a_);
    world.b().device->set_trace(b_);
    world.open();
  }

  /// What was written since the last call.
  std::string since() { return file_.since(); }
  /// All of it, closed: nothing is traced any more.
  std::string text() {
    world.close();
    return file_.close();
  }

 private:
  softhca::test::WrittenTrace file_;
  util::Trace a_{file_.writer(), "a"}, b_{file_.writer(), "b"};

 public:
  World world;
};

/// An 8-byte READ, as ib_read_bw has them.
void read_8_bytes(World& world, Endpoint& a, Endpoint& b) {
  const auto piece = a.piece(0, 8);
  ASSERT_EQ(a.qp->post_send({.id = 1,
                             .opcode = driver::SendOpcode::kRdmaRead,
                             .pieces = {&piece, 1},
                             .remote_address = b.address(0),
                             .rkey = b.key->key()}),
            PostStatus::kOk);
  expect_success(wait(world, *a.send_cq), 1, driver::CompletionOpcode::kRdmaRead);
}

// Chapter 4, steps 1 to 6; 4.4.1 to 4.4.8; chapter 10.
TEST(RsnicTrace, AReadPassesTheModulesInTheirOrder) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  Endpoint a(traced.world.a()), b(traced.world.b());
  connect(a, b);
  a.send_cq->arm();
  (void)traced.since();
  std::ranges::copy(pattern(8, 1), b.bytes(0, 8).begin());
  read_8_bytes(traced.world, a, b);
  EXPECT_TRUE(std::ranges::equal(a.bytes(0, 8), b.bytes(0, 8)));
  const auto text = traced.since();
  const std::vector<std::string> expected{
      "a QP Manager: doorbell",
      "a DMA: read descriptor",  // the doorbell record, the WQE
      "a WQE Handler: send WQE",     "a MR: keyCtx entry",          "a IBH Processor: packet",
      "a CMAC: transmit descriptor", "b CMAC: receive descriptor",  "b IP Handler: RDMA packet",
      "b IBH Processor: headers",    "b MR: keyCtx entry",          "b DMA: read descriptor",
      "b IBH Processor: packet",     "b CMAC: transmit descriptor", "a CMAC: receive descriptor",
      "a IP Handler: RDMA packet",   "a IBH Processor: headers",    "a MR: keyCtx entry",
      "a DMA: write descriptor",     "a CQE Generator: CQE",        "a DMA: write descriptor",
      "a CQE Generator: EQE",        "a DMA: write descriptor",     "a MSI-X: interrupt",
  };
  EXPECT_THAT(steps_of(text), ElementsAreArray(expected)) << text;
  EXPECT_THAT(text, HasSubstr("\"RDMA_READ\""));
  EXPECT_THAT(text, HasSubstr(fmt::format("key={:#x} address={:#x} bytes=0x8", b.key->key(),
                                          b.address(0))));
}

// The same of a ConnectX, in general terms.
TEST(ConnectXTrace, AReadPassesItsPartsInTheirOrder) {
  TracedWorld traced(TraceWriter::Format::kText, {});
  Endpoint a(traced.world.a()), b(traced.world.b());
  connect(a, b);
  a.send_cq->arm();
  (void)traced.since();
  read_8_bytes(traced.world, a, b);
  const auto text = traced.since();
  const std::vector<std::string> expected{
      "a doorbells: doorbell",
      "a DMA: read",
      "a work queues: send WQE",
      "a memory keys: key",
      "a port: packet out",
      "b port: packet in",
      "b memory keys: key",
      "b DMA: read",
      "b port: packet out",
      "a port: packet in",
      "a memory keys: key",
      "a DMA: write",
      "a completion queues: completion",
      "a DMA: write",
      "a event queues: event",
      "a DMA: write",
      "a interrupts: interrupt",
  };
  EXPECT_THAT(steps_of(text), ElementsAreArray(expected)) << text;
}

// PRM 7.4.4: the doorbell that asks for an event of the next completion, and the one that tells how
// far events were read.
TEST(RsnicTrace, HasTheDoorbellsOfCompletionAndEventQueues) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  Endpoint a(traced.world.a()), b(traced.world.b());
  connect(a, b);
  (void)traced.since();
  a.send_cq->arm();
  const auto armed = traced.since();
  EXPECT_THAT(armed, HasSubstr(fmt::format(" a CQE Generator: CQ doorbell cqn={:#x} uar=",
                                           a.send_cq->cqn())));
  read_8_bytes(traced.world, a, b);
  (void)traced.since();
  EXPECT_EQ(traced.world.a().hca->poll_completion_event(), a.send_cq.get());
  traced.world.a().hca->completion_events(0).arm();
  const auto told = traced.since();
  EXPECT_THAT(told, HasSubstr(" a CQE Generator: EQ doorbell eqn="));
  EXPECT_THAT(told, HasSubstr(" consumer=0x1 arm=0x1\n"));
}

// 4.1: steps 3 to 11 of a command.
TEST(RsnicTrace, ACommandPassesTheStepsOfTheMailbox) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  (void)traced.since();
  ASSERT_TRUE(traced.world.a().hca->link_is_up());
  const auto text = traced.since();
  const std::vector<std::string> expected{
      "a Firmware: 3. DoorBell Notification",
      "a Firmware: 4. set up the PCI Read DMA",
      "a DMA: read descriptor",
      "a Firmware: 7. process the MailBox Command",
      "a DMA: write descriptor",
      "a Firmware: 10. MailBox Output Buffer is in Host SDRAM",
  };
  EXPECT_THAT(steps_of(text), ElementsAreArray(expected)) << text;
  EXPECT_THAT(text, HasSubstr("\"QUERY_VPORT_STATE\" opcode=0x750"));
}

TEST(RsnicTrace, ARefusedKeyIsToldWithItsReason) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  Endpoint a(traced.world.a()), b(traced.world.b());
  connect(a, b);
  (void)traced.since();
  const auto piece = a.piece(0, 8);
  ASSERT_EQ(a.qp->post_send({.id = 1,
                             .opcode = driver::SendOpcode::kRdmaWrite,
                             .pieces = {&piece, 1},
                             .remote_address = b.address(0),
                             .rkey = b.key->key() ^ 1}),
            PostStatus::kOk);
  expect_error(wait(traced.world, *a.send_cq), 1, driver::WorkStatus::kRemoteAccess);
  EXPECT_THAT(traced.since(), HasSubstr("b MR: keyCtx entry \"no memory key has this number"));
}

// Chapter 10: the registers of the last packet.
TEST(RsnicTrace, LeavesTheDescriptorsInTheCmacsRegisters) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  Endpoint a(traced.world.a()), b(traced.world.b());
  connect(a, b);
  read_8_bytes(traced.world, a, b);
  const auto shown = softhca::test::inspected(*traced.world.a().device);
  EXPECT_THAT(shown, HasSubstr("tx_desc_valid: 0x1"));
  EXPECT_THAT(shown, HasSubstr("rx_desc_status_valid_reg: 0x1"));
  // Ethernet, IPv4, UDP, BTH, RETH, ICRC; and the answer's AETH and payload.
  EXPECT_THAT(shown, HasSubstr("tx_desc_len: 0x4a"));
  EXPECT_THAT(shown, HasSubstr("rx_desc_status_len_reg: 0x46"));
}

// Tables 10-1 and 10-2: the first prints the bits that the second leaves of 32, or of 33 for those
// whose field it counts from 0.
TEST(Cmac, HasTheRegistersOfTable102) {
  std::uint32_t last = 0;
  for (const auto& reg : cmac_registers()) {
    EXPECT_TRUE(reg.offset == 0 || reg.offset > last);
    last = reg.offset;
    EXPECT_TRUE(reg.width + reg.printed_width == 33 || reg.width == 1) << reg.name;
    EXPECT_NE(reg.offset, 0x1Cu) << "the hole";
  }
  EXPECT_EQ(cmac_registers().size(), 13u);
  EXPECT_EQ(memory_map().size(), 7u);
}

// The Trace Event Format: what Perfetto and chrome://tracing want of each event.
TEST(TraceJson, IsWhatTheTraceEventFormatWants) {
  std::string text;
  {
    TracedWorld traced(TraceWriter::Format::kJson, device_options());
    {
      Endpoint a(traced.world.a()), b(traced.world.b());
      connect(a, b);
      read_8_bytes(traced.world, a, b);
    }
    text = traced.text();
  }
  const auto trace = nlohmann::json::parse(text);
  std::map<std::pair<int, int>, std::string> threads;
  std::set<std::string> modules;
  double last = 0;
  for (const auto& event : trace.at("traceEvents")) {
    ASSERT_TRUE(event.at("name").is_string() && event.at("pid").is_number());
    const auto phase = event.at("ph").get<std::string>();
    const std::pair<int, int> thread{event.at("pid"), event.at("tid")};
    if (phase == "M") {
      if (event.at("name") == "thread_name") threads[thread] = event.at("args").at("name");
      continue;
    }
    ASSERT_EQ(phase, "i");
    EXPECT_EQ(event.at("s"), "t");
    EXPECT_GE(event.at("ts").get<double>(), last) << "microseconds, which do not go back";
    last = event.at("ts");
    ASSERT_TRUE(threads.contains(thread)) << "named before it is used";
    EXPECT_EQ(threads[thread], event.at("cat"));
    modules.insert(event.at("cat"));
  }
  for (const auto* module : {"QP Manager", "WQE Handler", "CQE Generator", "IBH Processor",
                             "IP Handler", "MR", "DMA", "CMAC", "Firmware"}) {
    EXPECT_TRUE(modules.contains(module)) << module;
  }
}

}  // namespace
}  // namespace softhca::rsnic
