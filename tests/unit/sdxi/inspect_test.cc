// The `softhca inspect` output for an SDXI function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sdxi/faults.h"
#include "sdxi/machine.h"
#include "util/inspected.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ::testing::HasSubstr;

class InspectTest : public ::testing::Test {
 protected:
  nlohmann::json look(Machine& machine) { return look(machine, {.json = true}); }
  nlohmann::json look() { return look(machine_); }
  static nlohmann::json look(Machine& machine, const util::Inspection::Options& options) {
    return nlohmann::json::parse(softhca::test::inspected(*machine.device, options));
  }
  static nlohmann::json context(const nlohmann::json& tree, unsigned number) {
    for (const auto& one : tree["contexts"]) {
      if (one["number"] == number) return one;
    }
    return {};
  }
  FunctionGroup group_;
  Machine machine_{group_, {.vfs = 1}};
};

TEST_F(InspectTest, AStoppedFunctionShowsItsRegistersAndNoContexts) {
  const auto tree = look();
  EXPECT_EQ(tree["function"]["state"], "GSV_STOP");
  EXPECT_EQ(tree["function"]["sfunc"], machine_.device->sfunc());
  EXPECT_EQ(tree["registers"]["MMIO_CAP1"]["max_cxt"], 127);
  EXPECT_EQ(tree["pci"]["device_id"], "0x5d01");
  EXPECT_EQ(tree["pci"]["MSI-X"]["enabled"], true);
  EXPECT_FALSE(tree.contains("contexts"));
}

TEST_F(InspectTest, ContextsHaveTheirStateAndRing) {
  machine_.activate();
  auto& c = machine_.start_context(5);
  machine_.execute(c, nop());
  machine_.make_context(200, 64);
  const auto tree = look();
  const auto five = context(tree, 5);
  EXPECT_EQ(five["state"], "CXTV_RUN");
  EXPECT_EQ(five["ring"]["ds_ring_sz"], 64);
  EXPECT_EQ(five["ring"]["read_index"], 1);
  EXPECT_EQ(five["ring"]["filled"], 0);
  EXPECT_EQ(five["work"]["doorbell"], 1);
  EXPECT_FALSE(five["work"].contains("in_flight"));
  EXPECT_TRUE(context(tree, 200).is_null()) << "beyond MMIO_CTL2.max_cxt";
  EXPECT_TRUE(context(tree, 6).is_null()) << "not valid";
}

TEST_F(InspectTest, ContextsCountTheirOwnWork) {
  machine_.activate();
  auto& busy = machine_.start_context(5);
  auto& idle = machine_.start_context(6);
  const auto from = machine_.allocate(4096), to = machine_.allocate(4096);
  machine_.execute(busy, copy(from, to, 4096));
  machine_.execute(busy, copy(0x1000, to, 8));  // it fails and stops the context
  machine_.execute(idle, nop());
  const auto tree = look();
  EXPECT_EQ(context(tree, 5)["counters"]["descriptors"], 2);
  EXPECT_GE(context(tree, 5)["counters"]["bytes"], 4096);
  EXPECT_EQ(context(tree, 6)["counters"]["descriptors"], 1);
  EXPECT_LT(context(tree, 6)["counters"]["bytes"], 4096);
  const auto sum = machine_.device->contexts().statistics();
  EXPECT_EQ(tree["totals"]["descriptors"], sum.descriptors);
  EXPECT_EQ(tree["totals"]["bytes"], sum.bytes);
}

TEST_F(InspectTest, AllRegistersStandThereAsSoftwareReadsThem) {
  Machine vf(group_, {}, &machine_);
  machine_.write(reg::MMIO_GRP_ENUM, 2);
  machine_.write32(4, 0xcafe);
  vf.write(reg::MMIO_MB_CTL, 2);
  auto registers = look()["registers"];
  EXPECT_EQ(registers["MMIO_GRP_ENUM"]["probe"], 1);
  EXPECT_EQ(registers["MMIO_VERSION"]["major"], 1);
  EXPECT_EQ(registers["MMIO_MB_CTL"]["rcv"], 0);
  registers = look(vf)["registers"];
  EXPECT_EQ(registers["MMIO_GRP_ENUM"]["probe"], 1) << "its PF's";
  EXPECT_EQ(registers["MMIO_CTL0"]["fn_grp_id"], "0xcafe") << "its PF's";
  EXPECT_EQ(registers["MMIO_MB_CTL"]["rcv"], 1);
}

TEST_F(InspectTest, MailboxesWithNewsAreNamed) {
  Machine vf(group_, {}, &machine_);
  EXPECT_TRUE(look()["mailboxes"].empty());
  vf.write(reg::MMIO_MBS_CTL, 1);
  const auto received = look()["mailboxes"];
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0]["number"], 0);
  EXPECT_EQ(received[0]["MMIO_MBR_ST"], true);
  EXPECT_EQ(received[0]["MMIO_MBS_ST"], false);
  machine_.write(reg::MMIO_MBR_ST, 1);
  EXPECT_TRUE(look()["mailboxes"].empty());
  EXPECT_EQ(look(vf)["mailboxes"][0]["MMIO_MBS_ST"], true);
  FunctionGroup elsewhere;
  Machine alone(elsewhere);
  EXPECT_FALSE(look(alone).contains("mailboxes"));
}

TEST_F(InspectTest, TheDescriptorInFlightIsShownWithItsProgress) {
  machine_.activate();
  auto& c = machine_.start_context(5);
  const auto fault = group_.faults().add(*parse_fault("context=5,do=stall"));
  machine_.submit(c, nop());
  machine_.submit(c, nop());
  machine_.run();
  const auto five = context(look(), 5);
  EXPECT_EQ(five["work"]["in_flight"]["operation"], "DSC_DMAB_NOP");
  EXPECT_EQ(five["work"]["in_flight"]["descriptor"], 0);
  EXPECT_EQ(five["work"]["in_flight"]["held_by_fault"], fault);
  EXPECT_EQ(five["ring"]["filled"], 2);
}

TEST_F(InspectTest, ADescriptorThatIsNotValidYetIsNamed) {
  machine_.activate();
  auto& c = machine_.start_context(5);
  auto late = copy(Machine::kBase, Machine::kBase + 64, 8);
  header(late).set(spec::dsc_header::vl, 0);
  machine_.submit(c, late);
  machine_.run();
  const auto five = context(look(), 5);
  EXPECT_EQ(five["work"]["waits_for_valid"], true);
  EXPECT_EQ(five["ring"]["at_read_index"]["valid"], false);
  EXPECT_EQ(five["ring"]["at_read_index"]["operation"], "DSC_DMAB_COPY");
}

TEST_F(InspectTest, KeysAreListedByTheirFields) {
  machine_.make_rkeys();
  machine_.rkey(3).set(spec::rkey_ent::vl, 1);
  machine_.rkey(3).set(spec::rkey_ent::req_sfunc, 9);
  machine_.activate();
  machine_.start_context(5);
  const auto tree = look();
  const auto akeys = context(tree, 5)["akeys"];
  ASSERT_EQ(akeys.size(), 2u);
  EXPECT_EQ(akeys[1]["number"], 1);
  EXPECT_EQ(akeys[1]["iv"], 1);
  EXPECT_EQ(akeys[1]["intr_num"], 1);
  ASSERT_EQ(tree["rkeys"].size(), 1u);
  EXPECT_EQ(tree["rkeys"][0]["number"], 3);
  EXPECT_EQ(tree["rkeys"][0]["req_sfunc"], 9);
}

TEST_F(InspectTest, UnreadErrorLogRecordsAreShownInWords) {
  machine_.activate();
  auto& c = machine_.start_context(5);
  machine_.execute(c, copy(0x1000, Machine::kBase, 8));
  const auto tree = look();
  ASSERT_EQ(tree["error_log"]["newest_unread"].size(), 1u);
  const auto record = tree["error_log"]["newest_unread"][0];
  EXPECT_EQ(record["step"], "ERRV_DSC_BUF");
  EXPECT_EQ(record["cxt_num"], 5);
  EXPECT_EQ(record["dsc_index"], 0);
  EXPECT_EQ(record["buf"], 0);
  EXPECT_EQ(context(tree, 5)["state"], "CXTV_ERR_FN");
}

TEST_F(InspectTest, RulesReportHowOftenTheyFired) {
  group_.faults().add(*parse_fault("function=other,do=fail"));
  const auto faults = look()["faults_of_the_group"];
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["rule"], "function=other,do=fail");
  EXPECT_EQ(faults[0]["fired"], 0);
}

TEST_F(InspectTest, AVfNamesItsPf) {
  Machine vf(group_, {.name = "sdxi0v"}, &machine_);
  EXPECT_EQ(look(vf)["function"]["vf_of"], machine_.device->name());
}

TEST_F(InspectTest, TablesThatLeadNowhereAreSaidSo) {
  machine_.activate();
  auto& c = machine_.start_context(5);
  spec::set_address(machine_.at<spec::cxt_l1_ent>(c.l1), spec::cxt_l1_ent::cxt_ctl_ptr, 0x40);
  const auto tree = look();
  EXPECT_THAT(context(tree, 5)["invalid"].get<std::string>(), HasSubstr("ERRV_CXT"));
}

TEST_F(InspectTest, ContextsAreShownPageByPageAndCounted) {
  machine_.activate();
  for (unsigned number = 1; number <= 40; ++number) machine_.make_context(2 * number);
  const auto tree = look();
  EXPECT_EQ(tree["contexts"].size(), 16u);
  EXPECT_EQ(tree["contexts_count"], 41);
  EXPECT_EQ(tree["contexts_shown"], "16 of 41, --from 0x20 for more");
  const auto page = look(machine_, {.json = true, .from = 0x20, .count = 2});
  ASSERT_EQ(page["contexts"].size(), 2u);
  EXPECT_EQ(page["contexts"][0]["number"], 0x20);
  EXPECT_EQ(page["contexts_shown"], "2 of 41, --from 0x24 for more");
}

TEST_F(InspectTest, AFunctionOfManyContextsIsShownInTurnsOfBoundedWork) {
  Machine large(group_, {.name = "large", .capabilities = {.max_cxt = 4095}});
  large.activate();
  for (unsigned number = 1; number <= 100; ++number) large.make_context(number);
  constexpr std::int64_t kAllowed = 10'000;
  const util::Inspection::Options options{.json = true, .count = 64};
  const auto in_turns = softhca::test::inspect_in_turns(*large.device, options, kAllowed);
  EXPECT_GE(in_turns.turns, 100u);
  EXPECT_LE(in_turns.longest, 6 * kAllowed)
      << "a context, or all registers, beyond what is allowed";
  EXPECT_EQ(in_turns.text, softhca::test::inspected(*large.device, options));
}

TEST_F(InspectTest, AKeyTableIsReadEntryByEntryAndPageByPage) {
  machine_.make_rkeys();
  for (unsigned i = 0; i < 40; ++i) machine_.rkey(3 * i).set(spec::rkey_ent::vl, 1);
  machine_.activate();
  const auto tree = look();
  EXPECT_EQ(tree["rkeys"].size(), 16u);
  EXPECT_EQ(tree["rkeys_shown"], "16 of 40, --from 0x30 for more");
  const auto page = look(machine_, {.json = true, .from = 0x30, .count = 256});
  EXPECT_EQ(page["rkeys"].size(), 24u);
  EXPECT_EQ(page["rkeys"][0]["number"], 48);
}

TEST_F(InspectTest, MemoryByMessagesIsNotAskedForAndThatIsSaid) {
  Machine remote(group_, {.name = "remote"}, nullptr, Machine::Memory::kTraced);
  remote.make_rkeys();
  remote.activate();
  auto& c = remote.start_context(5);
  remote.execute(c, copy(0x1000, Machine::kBase, 8));
  remote.trace.accesses.clear();
  const auto tree = look(remote);
  ASSERT_TRUE(remote.trace.accesses.empty());
  const std::string why = "not mapped: the client gives it by messages only";
  EXPECT_EQ(tree["contexts_unreadable"], "from 0x0 on: " + why);
  EXPECT_EQ(context(tree, 0)["tables"], why);
  EXPECT_EQ(context(tree, 0)["work"]["read_index"], 1) << "what the function knows";
  EXPECT_EQ(tree["rkeys_unreadable"], "from 0x0 on: " + why);
  EXPECT_EQ(tree["error_log"]["unreadable_records"], why);
  EXPECT_EQ(tree["pci"]["mappings"][0]["kind"], "by messages");
}

TEST_F(InspectTest, LookingChangesNothing) {
  machine_.activate();
  auto& c = machine_.start_context(5);
  machine_.submit(c, nop());
  const auto records = machine_.records();
  const auto before = look().dump();
  EXPECT_EQ(look().dump(), before);
  EXPECT_EQ(machine_.records(), records);
  machine_.run();
  EXPECT_EQ(machine_.read_index(c), 1u);
}

}  // namespace
}  // namespace softhca::sdxi::test
