// Table 4-15: driver/connectx replays the printed order, and a recorded sequence is compared with
// it.

#include "rsnic/command_sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "driver/connectx/transport_domain.h"
#include "driver/world.h"
#include "rsnic/modules.h"
#include "rsnic/options.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/registers.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/vport.h"
#include "util/trace.h"
#include "util/written_trace.h"

namespace softhca::rsnic {
namespace {

using namespace driver::test;  // World, Endpoint, must()
using driver::PostStatus;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace d = driver::connectx;
namespace s = spec::connectx;
using s::command_opcode;

std::vector<std::string> printed_names() {
  std::vector<std::string> names;
  for (const auto& row : printed_commands()) names.emplace_back(to_string(row.opcode));
  return names;
}

template <class In, class Out>
void run(d::Hca& hca, command_opcode opcode) {
  (void)must(hca.commands().execute<Out>(d::Request<In>(opcode)));
}

class CommandSequence : public ::testing::Test {
 protected:
  CommandSequence() {
    world_.a().device->set_trace(trace_);
    world_.open({.send_queue_alignment = 4096});
  }

  /// The commands recorded since the last call.
  std::vector<std::string> recorded() { return traced_commands(file_.since(), "card"); }

  softhca::test::WrittenTrace file_;
  util::Trace trace_{file_.writer(), "card"};
  World world_{device_options(Profile::kDocument), device_options(Profile::kDocument)};
};

TEST_F(CommandSequence, OurDriverRunsThePrintedOne) {
  auto& hca = *world_.a().hca;
  Endpoint peer(world_.b());
  // In the document the memory's key comes from a cache.
  const auto keys = must(d::ProtectionDomain::create(hca));
  std::vector<std::byte> memory(4096);
  (void)recorded();

  const auto uar = must(hca.commands().execute<s::alloc_uar_out>(
      d::Request<s::alloc_uar_in>(command_opcode::ALLOC_UAR)));
  auto domain = must(d::TransportDomain::create(hca));
  run<s::query_nic_vport_context_in, s::query_nic_vport_context_out>(
      hca, command_opcode::QUERY_NIC_VPORT_CONTEXT);
  run<s::query_adapter_in, s::query_adapter_out>(hca, command_opcode::QUERY_ADAPTER);
  d::Request<s::access_register_in> access(command_opcode::ACCESS_REG, s::reg_pmtu::kSize);
  access.set(s::access_register_in::op_mod,
             static_cast<std::uint16_t>(s::access_register_op_mod::READ));
  access.set(s::access_register_in::register_id, static_cast<std::uint16_t>(s::register_id::PMTU));
  util::MutableView<s::reg_pmtu>(access.all().subspan(s::access_register_in::kSize))
      .set(s::reg_pmtu::local_port, 1);
  (void)must(hca.commands().execute<s::access_register_out>(access, s::reg_pmtu::kSize));
  auto pd = must(d::ProtectionDomain::create(hca));
  auto cq = must(d::CompletionQueue::create(hca));
  auto qp = must(d::QueuePair::create(*pd, {.send_cq = *cq, .receive_cq = *cq}));
  must(qp->connect(peer.as_remote(kPsnB), {.psn = kPsnA}));
  d::Request<s::modify_cq_in> modify(command_opcode::MODIFY_CQ);
  modify.set(s::modify_cq_in::cqn, cq->cqn());
  must(hca.commands().run(modify));
  must(qp->to_reset());
  must(qp->destroy());
  must(cq->destroy());
  pd.reset();
  must(domain->destroy());
  d::Request<s::dealloc_uar_in> dealloc(command_opcode::DEALLOC_UAR);
  dealloc.set(s::dealloc_uar_in::uar, uar.get(s::alloc_uar_out::uar));
  must(hca.commands().run(dealloc));

  const auto commands = recorded();
  EXPECT_THAT(commands, ElementsAreArray(printed_names()));
  const auto report = compare_sequence(commands);
  EXPECT_TRUE(report.complete && report.explained) << report.text;
}

// Table 4-15: "Used bfregion 0xC, uar_index 0x0": offset C00h of page 0 is a send doorbell.
TEST_F(CommandSequence, TheDoorbellOfTheTableIsNoticed) {
  Endpoint a(world_.a()), b(world_.b());
  connect(a, b);
  ASSERT_EQ(world_.a().hca->uar(), 0u);
  (void)recorded();
  const std::array<std::byte, 8> doorbell = [&] {
    std::array<std::byte, 8> bytes{};
    util::store_be32(bytes.data() + 4, a.qp->qpn() << 8);
    return bytes;
  }();
  world_.a().host->write_bar(0, 0xC00, doorbell);
  EXPECT_THAT(file_.since(),
              HasSubstr(fmt::format("QP Manager: doorbell queue={:#x} uar=0x0", a.qp->qpn())));
}

TEST(CompareSequence, SaysWhatIsMissing) {
  auto commands = printed_names();
  std::erase(commands, "INIT2RTR_QP");
  const auto report = compare_sequence(commands);
  EXPECT_FALSE(report.complete);
  EXPECT_THAT(report.text, HasSubstr("NOT RECORDED"));
}

// Each known cause explains only its own difference.
TEST(CompareSequence, DoesNotExplainAnyOrderOrNumber) {
  const auto names = printed_names();
  const auto explained = [](const std::vector<std::string>& commands) {
    return compare_sequence(commands).explained;
  };
  ASSERT_TRUE(explained(names));
  EXPECT_FALSE(explained({names.rbegin(), names.rend()})) << "reversed";
  for (std::size_t i = 0; i != names.size(); ++i) {
    auto more = names;
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(i), 50, names[i]);
    const bool query = names[i].starts_with("QUERY_") || names[i] == "ACCESS_REG";
    EXPECT_EQ(explained(more), query) << "fifty of " << names[i];
  }
  // The commands of a QP's life have a fixed order.
  for (const std::string_view first :
       {"ALLOC_PD", "CREATE_CQ", "CREATE_QP", "RST2INIT_QP", "INIT2RTR_QP", "MODIFY_CQ", "QP_2RST",
        "DESTROY_QP", "DESTROY_CQ"}) {
    auto swapped = names;
    const auto at = std::ranges::find(swapped, first);
    std::iter_swap(at, at + 1);
    EXPECT_FALSE(explained(swapped)) << first;
  }
}

TEST(CompareSequence, LetsGoWhatNoLibraryIssues) {
  auto commands = printed_names();
  std::erase(commands, "MODIFY_CQ");
  const auto report = compare_sequence(commands);
  EXPECT_TRUE(report.complete && report.explained) << report.text;
  EXPECT_THAT(report.text, HasSubstr("gone: "));
}

TEST(CompareSequence, SaysWhatComesInAnotherOrderOrBesides) {
  auto commands = printed_names();
  std::rotate(commands.begin(), commands.begin() + 1, commands.begin() + 2);
  commands.insert(commands.begin() + 6, "CREATE_MKEY");
  auto report = compare_sequence(commands);
  EXPECT_TRUE(report.complete && report.explained) << report.text;
  EXPECT_THAT(report.text, HasSubstr("in another order: "));
  EXPECT_THAT(report.text, HasSubstr("registers the program's memory"));
  commands.emplace_back("NOP");
  report = compare_sequence(commands);
  EXPECT_FALSE(report.explained);
  EXPECT_THAT(report.text, HasSubstr("NO CAUSE IS KNOWN"));
}

// Linux 6.1 and later: mlx5_ib posts to an SQ of its own before the first process gets its pages.
TEST(CompareSequence, SaysWhatTriesADoorbellPage) {
  auto commands = printed_names();
  commands.insert(commands.begin() + 2, {"CREATE_CQ", "CREATE_SQ", "MODIFY_SQ", "DESTROY_SQ"});
  const auto report = compare_sequence(commands);
  EXPECT_TRUE(report.complete && report.explained) << report.text;
  EXPECT_THAT(report.text, HasSubstr("BlueFlame"));
}

// A Perfetto trace contains the same commands.
TEST(CompareSequence, ReadsATraceInJson) {
  softhca::test::WrittenTrace file(util::TraceWriter::Format::kJson);
  Modules modules;
  util::Trace other(file.writer(), "rsnic1"), card(file.writer(), "rsnic0");
  for (auto* trace : {&other, &card}) trace->set_modules(&modules);
  other.note(util::TraceStep::kCommand, "NOP", {});
  card.note(util::TraceStep::kCommand, "ALLOC_PD", {{"opcode", 0x800}});
  card.note(util::TraceStep::kCommandEnd, "ALLOC_PD", {});
  card.note(util::TraceStep::kCommand, "DEALLOC_PD", {});
  const auto trace = file.close();
  EXPECT_THAT(traced_commands(trace, "rsnic0"), ElementsAreArray({"ALLOC_PD", "DEALLOC_PD"}));
  EXPECT_THAT(traced_commands(trace, "rsnic1"), ElementsAreArray({"NOP"}));
  EXPECT_THAT(traced_commands(trace.substr(0, trace.size() / 2), "rsnic0"), IsEmpty());
  EXPECT_THAT(traced_commands(R"({"traceEvents":[1,{"args":2},{"cat":[]}]})", "rsnic0"), IsEmpty());
}

TEST(CompareSequence, FindsTheProgramInATrace) {
  std::string trace;
  for (const auto* name : {"ALLOC_TRANSPORT_DOMAIN", "RTR2RTS_QP", "CREATE_CQ", "ALLOC_UAR",
                           "ALLOC_UAR", "ALLOC_TRANSPORT_DOMAIN", "RTR2RTS_QP",
                           "DEALLOC_TRANSPORT_DOMAIN", "DEALLOC_UAR", "CREATE_CQ"}) {
    trace += fmt::format(
        "0.000000001 rsnic0 Firmware: 7. process the MailBox Command \"{}\" opcode=0x1\n", name);
    trace += "0.000000001 rsnic1 Firmware: 7. process the MailBox Command \"NOP\" opcode=0x1\n";
  }
  EXPECT_THAT(commands_of_a_program(trace, "rsnic0"),
              ElementsAreArray({"ALLOC_UAR", "ALLOC_UAR", "ALLOC_TRANSPORT_DOMAIN", "RTR2RTS_QP",
                                "DEALLOC_TRANSPORT_DOMAIN", "DEALLOC_UAR"}));
  EXPECT_THAT(commands_of_a_program(trace, "rsnic1"), IsEmpty());
}

}  // namespace
}  // namespace softhca::rsnic
