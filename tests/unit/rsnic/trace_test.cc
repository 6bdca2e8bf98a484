// The trace of a doorbell's life, in the document's terms and in general terms.

#include "util/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
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

/// Two cards that trace to one file.
class TracedWorld {
 public:
  TracedWorld(TraceWriter::Format format, const connectx::DeviceOptions& card)
      : file_(format), world(card, card) {
    world.a().device->set_trace(a_);
    world.b().device->set_trace(b_);
    world.open();
  }

  /// The text written since the last call.
  std::string since() { return file_.since(); }
  /// The complete, closed trace. Later steps are not traced.
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

/// An 8-byte READ, as ib_read_bw posts it.
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

// The same READ on a ConnectX, in general terms.
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

// PRM 7.4.4: one doorbell arms a CQ for its next completion, the other reports the EQ's consumer
// index.
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

// 4.1: of the twelve steps of a command, 1, 2 and 12 are the host's, 6, 8 and 9 signals inside the
// card; 5 and 10 are the transfers, 11 comes if an EQ takes the command's completion.
const std::vector<std::string> kCommandSteps{
    "a Firmware: 3. DoorBell Notification",
    "a Firmware: 4. set up the PCI Read DMA",
    "a DMA: read descriptor",
    "a Firmware: 7. process the MailBox Command",
    "a DMA: write descriptor",
    "a Firmware: 10. MailBox Output Buffer is in Host SDRAM",
};

TEST(RsnicTrace, ACommandPassesTheStepsOfTheMailbox) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  (void)traced.since();
  ASSERT_TRUE(traced.world.a().hca->link_is_up());
  const auto text = traced.since();
  EXPECT_THAT(steps_of(text), ElementsAreArray(kCommandSteps)) << text;
  EXPECT_THAT(text, HasSubstr("\"QUERY_VPORT_STATE\" opcode=0x750"));
}

// Step 11, "send MSI-X".
TEST(RsnicTrace, ACommandWhoseCompletionAnEqTakesEndsWithItsInterrupt) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  auto& node = traced.world.a();
  using driver::connectx::EventQueue;
  const auto events = must(EventQueue::create(
      *node.host, node.hca->commands(),
      {.events = {spec::connectx::event_type::COMMAND_COMPLETION}, .uar = node.hca->uar()}));
  events->arm();
  (void)traced.since();
  ASSERT_TRUE(node.hca->link_is_up());
  const auto text = traced.since();
  auto expected = kCommandSteps;
  for (const auto* step :
       {"a CQE Generator: EQE", "a DMA: write descriptor", "a MSI-X: interrupt"}) {
    expected.emplace_back(step);
  }
  EXPECT_THAT(steps_of(text), ElementsAreArray(expected)) << text;
  const auto event = events->poll();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, spec::connectx::event_type::COMMAND_COMPLETION);
}

TEST(RsnicTrace, ARefusedKeyIsReportedWithItsReason) {
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

// Chapter 10: the registers describe the last packet.
TEST(RsnicTrace, LeavesTheDescriptorsInTheCmacsRegisters) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  Endpoint a(traced.world.a()), b(traced.world.b());
  connect(a, b);
  read_8_bytes(traced.world, a, b);
  const auto shown = softhca::test::inspected(*traced.world.a().device);
  EXPECT_THAT(shown, HasSubstr("tx_desc_valid: 0x1"));
  EXPECT_THAT(shown, HasSubstr("rx_desc_status_valid_reg: 0x1"));
  // Transmit: Ethernet, IPv4, UDP, BTH, RETH and ICRC. Receive: the response's AETH and payload.
  EXPECT_THAT(shown, HasSubstr("tx_desc_len: 0x4a"));
  EXPECT_THAT(shown, HasSubstr("rx_desc_status_len_reg: 0x46"));
}

/// The values of `field` in the lines that contain `mark`, in order.
std::vector<std::uint64_t> values(const std::string& text, std::string_view mark,
                                  const std::string& field) {
  std::vector<std::uint64_t> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(mark) == line.npos) continue;
    const auto at = line.find(" " + field + "=0x");
    EXPECT_NE(at, line.npos) << field << " in " << line;
    if (at != line.npos)
      found.push_back(std::stoull(line.substr(at + field.size() + 2), nullptr, 16));
  }
  return found;
}

/// Tables 6-2 and 6-3: the contents of a descriptor, and its status.
void expect_descriptors(const std::string& text, const std::string& side, std::uint32_t begin,
                        std::uint32_t end) {
  const auto mark = " a DMA: " + side + " descriptor";
  const auto of = [&](const std::string& signal) {
    return values(text, mark, side + "_desc_" + signal);
  };
  const auto places = of("ram_addr"), lengths = of("len"), tags = of("tag");
  ASSERT_FALSE(places.empty()) << text;
  for (std::size_t i = 0; i != places.size(); ++i) {
    EXPECT_GE(places[i], begin) << side;
    EXPECT_LE(places[i] + lengths[i], end) << side;
    if (i != 0) {
      EXPECT_EQ(tags[i], tags[i - 1] + 1);
    }
    EXPECT_GT(lengths[i], 0u);
  }
  EXPECT_EQ(of("status_tag"), tags);
  const std::vector<std::uint64_t> set(places.size(), 1);
  EXPECT_EQ(of("valid"), set);
  EXPECT_EQ(of("ready"), set);
  EXPECT_EQ(of("status_valid"), set);
  EXPECT_EQ(of("pcie_addr").size(), places.size());
}

// Chapters 6 and 8: descriptors point into the RAMs of the memory map.
TEST(RsnicTrace, DescriptorsNameTheRamsOfTheMemoryMap) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  Endpoint a(traced.world.a()), b(traced.world.b());
  connect(a, b);
  a.send_cq->arm();
  (void)traced.since();
  read_8_bytes(traced.world, a, b);
  const auto read = traced.since();
  expect_descriptors(read, "read", 0x50000, 0x60000);
  expect_descriptors(read, "write", 0x40000, 0x50000);
  const auto sent = values(read, " a CMAC: transmit descriptor", "tx_desc_ram_addr");
  const auto arrived = values(read, " a CMAC: receive descriptor", "rx_desc_ram_addr");
  ASSERT_TRUE(sent.size() == 1 && arrived.size() == 1) << read;
  EXPECT_EQ(sent[0] >> 16, 5u);
  EXPECT_EQ(arrived[0] >> 16, 4u);
  ASSERT_TRUE(traced.world.a().hca->link_is_up());
  const auto command = traced.since();
  expect_descriptors(command, "read", 0x20000, 0x24000);
  expect_descriptors(command, "write", 0x30000, 0x34000);
}

// Table 6-4.
TEST(RsnicTrace, AnInterruptHasTheSignalsOfTheTable) {
  TracedWorld traced(TraceWriter::Format::kText, device_options());
  Endpoint a(traced.world.a()), b(traced.world.b());
  connect(a, b);
  a.send_cq->arm();
  (void)traced.since();
  read_8_bytes(traced.world, a, b);
  const auto text = traced.since();
  constexpr std::string_view kMark = " a MSI-X: interrupt";
  const auto vectors = values(text, kMark, "vector");
  ASSERT_EQ(vectors.size(), 1u) << text;
  // Address and data of that vector's MSI-X table entry.
  auto& host = *traced.world.a().host;
  std::array<std::byte, 4> where;
  host.read_config(pcie::ConfigSpace::kMsixAt + 4, where);
  const auto table = util::load_le32(where.data());
  std::array<std::byte, 12> entry;
  host.read_bar(table & 7, (table & ~7u) + 16 * vectors[0], entry);
  const auto is = [&](const char* signal, std::uint64_t value) {
    EXPECT_EQ(values(text, kMark, signal), (std::vector<std::uint64_t>{value})) << signal;
  };
  is("cfg_interrupt_msix_address", util::load_le64(entry.data()));
  is("cfg_interrupt_msi_data", util::load_le32(entry.data() + 8));
  is("cfg_interrupt_msix_int", 1);
  is("cfg_interrupt_msi_sent", 1);
}

// The Trace Event Format: the fields that Perfetto and chrome://tracing require in each event.
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
    EXPECT_EQ(threads[thread], event.at("cat").get<std::string>());
    modules.insert(event.at("cat"));
  }
  for (const auto* module : {"QP Manager", "WQE Handler", "CQE Generator", "IBH Processor",
                             "IP Handler", "MR", "DMA", "CMAC", "Firmware"}) {
    EXPECT_TRUE(modules.contains(module)) << module;
  }
}

}  // namespace
}  // namespace softhca::rsnic
