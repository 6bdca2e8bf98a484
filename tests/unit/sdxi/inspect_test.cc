// What `softhca inspect` shows of an SDXI function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sdxi/faults.h"
#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using ::testing::HasSubstr;

class InspectTest : public ::testing::Test {
 protected:
  nlohmann::json look(Machine& machine) {
    util::InspectNode root(machine.device->name());
    machine.device->inspect(root);
    return nlohmann::json::parse(root.to_json());
  }
  nlohmann::json look() { return look(machine_); }
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

TEST_F(InspectTest, RulesTellHowOftenTheyFired) {
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
