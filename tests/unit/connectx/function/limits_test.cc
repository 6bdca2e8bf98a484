// Limits as data: the commands enforce exactly the limit that a capability reports. Covers every
// row of limit_list.inc.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "connectx/command/command_table.h"
#include "connectx/function/capabilities.h"
#include "connectx/function/limit_table.h"
#include "connectx/function/limits_host.h"
#include "spec/connectx/hca.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Code = s::command_status;
using Group = s::hca_cap_type;

// The table itself
// ---------------------------------------------------------------------------------

/// Expects every nonzero field of `Layout` with more than one bit in the table.
template <class Layout>
void expect_all_in_table(Group group, std::size_t offset = 0) {
  const Capabilities capabilities(Limits{});
  const auto image = capabilities.maximum(group).subspan(offset);
  for (const auto& field : Layout::kFields) {
    if (field.hi > 31) continue;
    const auto width = field.hi - field.lo + 1;
    const auto word = util::load_be32(image.data() + field.offset) >> field.lo;
    const auto value = width == 32 ? word : word & ((1u << width) - 1);
    const auto& table = capability_table();
    const auto known = std::ranges::any_of(
        table, [&](const auto& info) { return info.group == group && info.name == field.name; });
    EXPECT_TRUE(value == 0 || known) << field.name;
  }
}

TEST(LimitTable, NamesEveryCapabilityThatIsNotZero) {
  expect_all_in_table<s::hca_cap>(Group::GENERAL);
  expect_all_in_table<s::eth_offload_cap>(Group::ETHERNET_OFFLOADS);
  expect_all_in_table<s::roce_cap>(Group::ROCE);
  expect_all_in_table<s::atomic_cap>(Group::ATOMIC);
  expect_all_in_table<s::flow_table_properties>(
      Group::FLOW_TABLE_NIC, s::flow_table_nic_cap::flow_table_properties_nic_receive.kOffset);
  expect_all_in_table<s::flow_table_nic_cap>(Group::FLOW_TABLE_NIC);
}

TEST(LimitTable, NamesCommandsThatTheDeviceHasOrSaysWhyNone) {
  for (const auto& info : capability_table()) {
    EXPECT_FALSE(info.what.empty()) << info.name;
    const bool refuses = info.kind != LimitKind::kTold && info.kind != LimitKind::kBit;
    EXPECT_EQ(refuses, !info.commands.empty()) << info.name;
    EXPECT_EQ(refuses, info.limit != nullptr) << info.name;
    for (auto rest = info.commands; !rest.empty();) {
      const auto name = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
      const auto table = command_table();
      EXPECT_TRUE(std::ranges::any_of(table, [&](const auto& spec) {
        return spec.name() == name && spec.handler != nullptr;
      })) << name;
    }
  }
}

TEST(LimitTable, ADeviceReportsTheLimitsThatItWasMadeWith) {
  Limits limits;
  limits.log_max_qp = 7;
  limits.log_max_ft_num = 3;
  const Capabilities capabilities(limits);
  const util::View<s::hca_cap> general(capabilities.current(Group::GENERAL));
  EXPECT_EQ(general.get(s::hca_cap::log_max_qp), 7u);
  EXPECT_EQ(capabilities.limits(), limits);
  for (const auto& info : capability_table()) {
    const auto expected = info.limit == nullptr ? info.value : limits.*info.limit;
    EXPECT_EQ(info.read(capabilities.maximum(info.group)), expected) << info.name;
  }
}

// Each limit, for each of its commands
// -------------------------------------------------------------

struct Row {
  const CapabilityInfo* info;
  std::string command;
};

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const auto& info : capability_table()) {
    for (auto rest = info.commands; !rest.empty();) {
      const auto name = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
      all.push_back({&info, std::string(name)});
    }
  }
  return all;
}

bool counts_objects(LimitKind kind) {
  return kind == LimitKind::kLogObjects || kind == LimitKind::kObjects;
}

/// A limit small enough to reach, and below the field's maximum.
std::uint32_t small(const CapabilityInfo& info) {
  static const std::map<std::string_view, std::uint32_t> kOthers{
      {"log_max_stride_sz_rq", 7}, {"log_min_stride_sz_rq", 5},    {"log_max_stride_sz_sq", 6},
      {"log_min_stride_sz_sq", 6}, {"max_wqe_sz_rq", 128},         {"log_pg_sz", 13},
      {"log_max_tis_per_sq", 0},   {"roce_address_table_size", 9}, {"log_max_msg", 20},
      {"log_max_ft_size", 6},      {"log_max_ra_req_qp", 3},       {"log_max_ra_res_qp", 3},
      {"log_max_ra_req_dc", 3},    {"log_max_flow_counter", 3}};
  if (const auto at = kOthers.find(info.name); at != kOthers.end()) return at->second;
  return counts_objects(info.kind) ? 3 : 5;
}

Limits small_limits(const CapabilityInfo& info) {
  Limits limits;
  limits.*info.limit = small(info);
  return limits;
}

class Limit : public testing::TestWithParam<Row> {
 protected:
  const CapabilityInfo& info() const { return *GetParam().info; }
  const std::string& command() const { return GetParam().command; }
  Code send(std::uint32_t value) { return host_.send(info().name, command(), value); }

  LimitsHost host_{small_limits(*GetParam().info)};
};

TEST_P(Limit, IsAcceptedAndOneMoreIsRefused) {
  const auto limit = small(info());
  std::uint32_t last = limit;
  std::uint32_t beyond = limit + 1;
  switch (info().kind) {
    case LimitKind::kLogObjects:
    case LimitKind::kObjects: {
      const auto most = info().kind == LimitKind::kObjects ? limit : 1u << limit;
      EXPECT_EQ(host_.fill(info().name, command(), most + 1), most);
      EXPECT_TRUE(host_.end() == Code::NO_RESOURCES || host_.end() == Code::EXCEED_LIM)
          << to_string(host_.end());
      return;
    }
    case LimitKind::kLogField:
      last = 1u << limit;
      // RQT sizes are powers of two.
      beyond = info().name == "log_max_rqt_size" ? 2 * last : last + 1;
      break;
    case LimitKind::kLeast:
      beyond = limit - 1;
      break;
    case LimitKind::kIndex:
      last = limit - 1;
      beyond = limit;
      break;
    case LimitKind::kBytes:
      beyond = 2 * limit;
      break;
    case LimitKind::kField:
      break;
    case LimitKind::kTold:
    case LimitKind::kBit:
      FAIL() << "refuses nothing";
  }
  EXPECT_EQ(send(last), Code::OK);
  const auto refused = send(beyond);
  EXPECT_TRUE(refused == Code::EXCEED_LIM || refused == Code::BAD_INDEX ||
              refused == Code::BAD_PARAM)
      << to_string(refused);
  EXPECT_EQ(send(last), Code::OK) << "and nothing has changed";
}

std::string name_of(const testing::TestParamInfo<Row>& row) {
  return std::string(row.param.info->name) + "_" + row.param.command;
}

INSTANTIATE_TEST_SUITE_P(OfEachCapability, Limit, testing::ValuesIn(rows()), name_of);

// Limits that the driver lowers with SET_HCA_CAP
// ---------------------------------------------------

/// SET_HCA_CAP of log_max_qp 2 and log_max_sq 3.
void lower(FakeHost& host) {
  Input<s::set_hca_cap_in> in(FakeHost::Opcode::SET_HCA_CAP);
  const auto image = (*in).sub(s::set_hca_cap_in::capability);
  std::ranges::copy(host.device.driver().capabilities().current(Group::GENERAL), image.begin());
  util::MutableView<s::hca_cap>(image).set(s::hca_cap::log_max_qp, 2);
  util::MutableView<s::hca_cap>(image).set(s::hca_cap::log_max_sq, 3);
  EXPECT_TRUE(host.execute<s::set_hca_cap_out>(in).ok());
}

TEST(Limits, ALimitThatTheDriverLowersHolds) {
  LimitsHost qps(Limits{}, lower);
  EXPECT_EQ(qps.fill("log_max_qp", "CREATE_QP", 100), 4u);
  LimitsHost sqs(Limits{}, lower);
  EXPECT_EQ(sqs.fill("log_max_sq", "CREATE_SQ", 100), 8u);
}

// Object kinds that share a number space each keep their own limit.
TEST(Limits, QpsSqsAndRqsReachTheirLimitsTogether) {
  Limits limits;
  limits.log_max_qp = limits.log_max_sq = limits.log_max_rq = 3;
  LimitsHost host(limits);
  EXPECT_EQ(host.fill("log_max_qp", "CREATE_QP", 9), 8u);
  EXPECT_EQ(host.fill("log_max_sq", "CREATE_SQ", 9), 8u);
  EXPECT_EQ(host.fill("log_max_rq", "CREATE_RQ", 9), 8u);
}

TEST(Limits, SrqsAndRmpsReachTheirLimitsTogether) {
  Limits limits;
  limits.log_max_srq = limits.log_max_rmp = 3;
  LimitsHost host(limits);
  EXPECT_EQ(host.fill("log_max_srq", "CREATE_XRC_SRQ", 9), 8u);
  EXPECT_EQ(host.fill("log_max_rmp", "CREATE_RMP", 9), 8u);
}

TEST(Limits, ADriverThatComesAfterItFindsTheDeviceAsItWas) {
  FakeHost host;
  host.enable();
  lower(host);
  EXPECT_EQ(host.device.driver().limits().log_max_qp, 2u);
  host.start_queue();
  host.run();
  EXPECT_EQ(host.device.driver().limits(), Limits{});
}

}  // namespace
}  // namespace softhca::connectx
