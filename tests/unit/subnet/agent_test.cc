// Answers of a port's subnet management agent to a subnet manager (IBTA 14).
#include "subnet/agent.h"

#include <gtest/gtest.h>

#include "subnet/numbers.h"
#include "util/endian.h"

namespace softhca::subnet {
namespace {

using spec::infiniband::node_info;
using spec::infiniband::node_type;
using spec::infiniband::sm_attribute;
using spec::infiniband::sm_info;
using spec::infiniband::switch_info;

Agent::Identity adapter() {
  return {.node_guid = 0x1111,
          .port_guid = 0x1112,
          .description = "an HCA",
          .device_id = 7,
          .vendor_id = 0xABCDEF};
}
Agent::Identity switch_of(std::uint8_t ports) {
  return {.type = node_type::SWITCH,
          .ports = ports,
          .node_guid = 0x2222,
          .port_guid = 0x2222,
          .description = "a switch",
          .partition_cap = 32,
          .is_manager = true};
}

class AgentTest : public ::testing::Test {
 protected:
  Mad request(Method method, sm_attribute attribute, std::uint32_t modifier = 0) {
    Mad mad{};
    const util::MutableView<Smp> smp(mad);
    smp.set(Smp::base_version, 1);
    smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_LID_ROUTED));
    smp.set(Smp::class_version, 1);
    smp.set(Smp::method, static_cast<std::uint32_t>(method));
    smp.set(Smp::attribute_id, static_cast<std::uint32_t>(attribute));
    smp.set(Smp::attribute_modifier, modifier);
    return mad;
  }
  static MadStatus status_of(const Mad& mad) {
    return MadStatus(util::View<Smp>(mad).get(Smp::status));
  }
  template <class Layout>
  static util::MutableView<Layout> data(Mad& mad) {
    return util::MutableView<Layout>(util::MutableView<Smp>(mad).sub(Smp::data));
  }
  MadStatus ask(Agent& agent, Mad& mad, std::uint8_t port = 1) {
    EXPECT_TRUE(agent.answer(mad, port));
    EXPECT_EQ(Method(util::View<Smp>(mad).get(Smp::method)), Method::GET_RESP);
    return status_of(mad);
  }

  unsigned changes_ = 0;
  Agent hca_{adapter(), [this](std::uint8_t) { ++changes_; }};
  Agent switch_{switch_of(40), [this](std::uint8_t) { ++changes_; }};
};

// opensm asks an HCA and a switch for these attributes in a sweep.
TEST_F(AgentTest, EachAttributeOfASweepIsAnswered) {
  using enum sm_attribute;
  struct Row {
    sm_attribute attribute;
    std::uint32_t modifier;
    bool hca;
  };
  for (const auto& [attribute, modifier, hca] : {Row{NODE_INFO, 0, true},
                                                 {NODE_DESCRIPTION, 0, true},
                                                 {PORT_INFO, 1, true},
                                                 {GUID_INFO, 0, true},
                                                 {P_KEY_TABLE, 0, true},
                                                 {SL_TO_VL_TABLE, 1, true},
                                                 {VL_ARBITRATION, 0x10001, true},
                                                 {VL_ARBITRATION, 0x30001, true},
                                                 {NOTICE, 0, true},
                                                 {SWITCH_INFO, 0, false},
                                                 {LINEAR_FORWARDING, 3, false},
                                                 {MULTICAST_FORWARDING, 0, false},
                                                 {SM_INFO, 0, false}}) {
    auto mad = request(Method::GET, attribute, modifier);
    EXPECT_EQ(ask(switch_, mad), MadStatus::OK) << static_cast<unsigned>(attribute);
    mad = request(Method::GET, attribute, modifier);
    EXPECT_EQ(ask(hca_, mad), hca ? MadStatus::OK : MadStatus::UNSUPPORTED_ATTRIBUTE)
        << static_cast<unsigned>(attribute);
  }
}

TEST_F(AgentTest, NodeInfoHasTheNodesGuidAndItsPort) {
  auto mad = request(Method::GET, sm_attribute::NODE_INFO);
  ASSERT_EQ(ask(hca_, mad), MadStatus::OK);
  const auto info = data<node_info>(mad);
  EXPECT_EQ(node_type(info.get(node_info::node_type)), node_type::CHANNEL_ADAPTER);
  EXPECT_EQ(info.get(node_info::node_guid), 0x1111u);
  EXPECT_EQ(info.get(node_info::port_guid), 0x1112u);
  EXPECT_EQ(info.get(node_info::local_port_num), 1u);
  EXPECT_EQ(info.get(node_info::vendor_id), 0xABCDEFu);
  mad = request(Method::GET, sm_attribute::NODE_INFO);
  ASSERT_EQ(ask(switch_, mad, 33), MadStatus::OK);
  EXPECT_EQ(data<node_info>(mad).get(node_info::local_port_num), 33u);
  EXPECT_EQ(data<node_info>(mad).get(node_info::port_guid), 0x2222u);
}

// IBTA 7.2.7, 14.2.5.6: a refused Set changes nothing.
TEST_F(AgentTest, APortGoesFromInitOverArmedToActive) {
  hca_.set_link(1, true);
  EXPECT_EQ(hca_.state(1), PortState::INIT);
  auto mad = request(Method::GET, sm_attribute::PORT_INFO, 1);
  ASSERT_EQ(ask(hca_, mad), MadStatus::OK);
  const auto set = [&](PortState state, std::uint32_t lid) {
    util::MutableView<Smp>(mad).set(Smp::method, static_cast<std::uint32_t>(Method::SET));
    data<PortInfo>(mad).set(PortInfo::port_state, static_cast<std::uint32_t>(state));
    data<PortInfo>(mad).set(PortInfo::lid, lid);
    return ask(hca_, mad);
  };
  EXPECT_EQ(set(PortState::ACTIVE, 5), MadStatus::INVALID_VALUE);
  EXPECT_EQ(set(PortState::NO_CHANGE, 0), MadStatus::INVALID_VALUE);
  EXPECT_EQ(set(PortState::NO_CHANGE, 0xC000), MadStatus::INVALID_VALUE);
  EXPECT_EQ(hca_.lid(1), Lid(0));
  EXPECT_EQ(set(PortState::ARMED, 5), MadStatus::OK);
  EXPECT_EQ(hca_.lid(1), Lid(5));
  EXPECT_EQ(set(PortState::INIT, 5), MadStatus::INVALID_VALUE);
  EXPECT_EQ(set(PortState::ACTIVE, 5), MadStatus::OK);
  EXPECT_EQ(hca_.state(1), PortState::ACTIVE);
  EXPECT_EQ(set(PortState::DOWN, 5), MadStatus::OK);
  EXPECT_EQ(hca_.state(1), PortState::INIT) << "the link is there";
}

TEST_F(AgentTest, TablesAreWhatTheyWereSetTo) {
  auto mad = request(Method::SET, sm_attribute::LINEAR_FORWARDING, 1);
  util::MutableView<Smp>(mad).sub(Smp::data)[6] = std::byte{9};
  util::MutableView<Smp>(mad).sub(Smp::data)[7] = std::byte{41};  // no such port
  ASSERT_EQ(ask(switch_, mad), MadStatus::OK);
  EXPECT_EQ(switch_.way_to(Lid(64 + 6)), 9);
  EXPECT_EQ(switch_.way_to(Lid(64 + 7)), Agent::kNoPort);
  EXPECT_EQ(switch_.way_to(Lid(6)), Agent::kNoPort);
  mad = request(Method::SET, sm_attribute::MULTICAST_FORWARDING, 2u << 28 | 1);
  util::store_be16(&util::MutableView<Smp>(mad).sub(Smp::data)[2 * 3], 1u << 4);
  ASSERT_EQ(ask(switch_, mad), MadStatus::OK);
  EXPECT_TRUE(switch_.has_member(Lid(0xC000 + 32 + 3), 36));
  EXPECT_FALSE(switch_.has_member(Lid(0xC000 + 32 + 3), 4));
  EXPECT_FALSE(switch_.has_member(Lid(0xFFFE), 36)) << "beyond the table";
  mad = request(Method::SET, sm_attribute::P_KEY_TABLE);
  util::store_be16(&util::MutableView<Smp>(mad).sub(Smp::data)[2], 0x8123);
  ASSERT_EQ(ask(hca_, mad), MadStatus::OK);
  EXPECT_EQ(hca_.pkeys(1)[1], 0x8123);
  mad = request(Method::SET, sm_attribute::SL_TO_VL_TABLE);
  util::MutableView<Smp>(mad).sub(Smp::data)[1] = std::byte{0x4F};
  ASSERT_EQ(ask(hca_, mad), MadStatus::OK);
  EXPECT_EQ(hca_.virtual_lane(1, 2), 4);
  EXPECT_EQ(hca_.virtual_lane(1, 3), 15);
}

// 14.2.4: a requester with another M_Key must not Set. A protected port also refuses its Get.
TEST_F(AgentTest, ThePortIsProtectedByItsMkey) {
  auto mad = request(Method::GET, sm_attribute::PORT_INFO, 1);
  ASSERT_EQ(ask(hca_, mad), MadStatus::OK);
  const auto set = [&](std::uint64_t given, std::uint32_t protect) {
    const util::MutableView<Smp> smp(mad);
    smp.set(Smp::method, static_cast<std::uint32_t>(Method::SET));
    smp.set(Smp::m_key, given);
    data<PortInfo>(mad).set(PortInfo::lid, 5);
    data<PortInfo>(mad).set(PortInfo::m_key, 0xC0FFEE);
    data<PortInfo>(mad).set(PortInfo::m_key_protect_bits, protect);
    return hca_.answer(mad, 1);
  };
  ASSERT_TRUE(set(0, 0));
  EXPECT_FALSE(set(0, 0));
  auto look = request(Method::GET, sm_attribute::NODE_INFO);
  EXPECT_TRUE(hca_.answer(look, 1));
  ASSERT_TRUE(set(0xC0FFEE, 3));
  look = request(Method::GET, sm_attribute::NODE_INFO);
  EXPECT_FALSE(hca_.answer(look, 1));
  EXPECT_TRUE(hca_.answer(look, 1, true)) << "software of its own (MAD_IFC)";
  EXPECT_EQ(hca_.port_info(1).get(PortInfo::m_key_violations), 1u) << "since it was last set";
}

// 14.2.4.2: protection levels.
TEST_F(AgentTest, LevelOneGivesTheMkeyToRequestersThatHaveIt) {
  constexpr std::uint64_t kKey = 0xC0FFEE;
  const auto port_info = [&](Method method, std::uint64_t given) {
    auto mad = request(method, sm_attribute::PORT_INFO, 1);
    util::MutableView<Smp>(mad).set(Smp::m_key, given);
    data<PortInfo>(mad).set(PortInfo::lid, 5);
    return mad;
  };
  const auto hears = [&](std::uint64_t given) {
    auto mad = port_info(Method::GET, given);
    EXPECT_EQ(ask(hca_, mad), MadStatus::OK);
    return data<PortInfo>(mad).get(PortInfo::m_key);
  };
  for (const auto level : {0u, 1u}) {
    auto mad = port_info(Method::SET, kKey);
    data<PortInfo>(mad).set(PortInfo::m_key, kKey);
    data<PortInfo>(mad).set(PortInfo::m_key_protect_bits, level);
    ASSERT_EQ(ask(hca_, mad), MadStatus::OK);
    EXPECT_EQ(hears(kKey), kKey) << level;
    EXPECT_EQ(hears(1), level == 0 ? kKey : 0) << level;
  }
}

// 13.4.7
TEST_F(AgentTest, UnsupportedRequestsAreAnsweredWithAStatus) {
  auto mad = request(Method::GET, sm_attribute(0x7777));
  EXPECT_EQ(ask(hca_, mad), MadStatus::UNSUPPORTED_ATTRIBUTE);
  mad = request(Method::SET, sm_attribute::NODE_INFO);
  EXPECT_EQ(ask(hca_, mad), MadStatus::UNSUPPORTED_ATTRIBUTE);
  mad = request(Method::GET, sm_attribute::NODE_INFO);
  util::MutableView<Smp>(mad).set(Smp::class_version, 2);
  EXPECT_EQ(ask(hca_, mad), MadStatus::UNSUPPORTED_VERSION);
  mad = request(Method::GET, sm_attribute::VL_ARBITRATION, 9u << 16);
  EXPECT_EQ(ask(hca_, mad), MadStatus::INVALID_VALUE);
  mad = request(Method::GET_RESP, sm_attribute::NODE_INFO);
  EXPECT_FALSE(hca_.answer(mad, 1)) << "no answer to an answer";
}

// 14.2.2: the SMP crosses a switch and returns.
TEST_F(AgentTest, ADirectedRouteIsWalkedHopByHop) {
  auto mad = request(Method::GET, sm_attribute::NODE_INFO);
  const util::MutableView<Smp> smp(mad);
  smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_DIRECTED_ROUTE));
  smp.set(Smp::hop_count, 2);
  smp.set(Smp::hop_pointer, 1);  // the SMP has left its sender
  smp.sub(Smp::initial_path)[1] = std::byte{1};
  smp.sub(Smp::initial_path)[2] = std::byte{20};
  ASSERT_EQ(switch_.step(mad, 7), Agent::Hop::kOnwards);
  EXPECT_EQ(Agent::next_port(mad), 20);
  ASSERT_EQ(hca_.step(mad, 1), Agent::Hop::kHere);
  ASSERT_TRUE(hca_.answer(mad, 1));
  EXPECT_EQ(smp.get(Smp::direction), 1u);
  Agent::turn_back(mad);
  ASSERT_EQ(switch_.step(mad, 20), Agent::Hop::kOnwards);
  EXPECT_EQ(Agent::next_port(mad), 7);
  EXPECT_EQ(smp.get(Smp::hop_pointer), 1u);
}

TEST_F(AgentTest, ARouteThatMakesNoSenseIsDropped) {
  auto mad = request(Method::GET, sm_attribute::NODE_INFO);
  const util::MutableView<Smp> smp(mad);
  for (const auto& [count, pointer, direction] : {std::tuple{64u, 1u, 0u},
                                                  {255u, 255u, 0u},
                                                  {2u, 3u, 0u},
                                                  {2u, 1u, 0u},
                                                  {2u, 0u, 1u},
                                                  {2u, 3u, 1u}}) {
    smp.set(Smp::hop_count, count);
    smp.set(Smp::hop_pointer, pointer);
    smp.set(Smp::direction, direction);
    EXPECT_EQ(hca_.step(mad, 1), Agent::Hop::kNowhere) << count << " " << pointer;
    smp.set(Smp::hop_pointer, pointer);
    smp.sub(Smp::initial_path)[2] = std::byte{99};
    if (count != 2 || pointer != 1) {
      EXPECT_EQ(switch_.step(mad, 1), Agent::Hop::kNowhere) << count << " " << pointer;
    }
  }
}

}  // namespace
}  // namespace softhca::subnet
