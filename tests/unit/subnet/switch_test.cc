// An InfiniBand switch: forwarding of frames, and bring-up of ports (IBTA 7.2.7, 14.4, 18.2).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "subnet/subnet.h"
#include "util/endian.h"
#include "wire/gid.h"
#include "wire/ib_header.h"

namespace softhca::subnet {
namespace {

using spec::infiniband::sm_attribute;

constexpr std::size_t kAll = 100'000;

/// A node on a switch port: an agent, and a list of all other frames that arrive.
class Station final : public fabric::Receiver {
 public:
  Station(fabric::Switch& network, std::uint64_t guid)
      : agent_({.node_guid = guid, .port_guid = guid + 1, .description = "station"},
               [](std::uint8_t) {}),
        port_(network.create_port("station")) {
    agent_.set_link(1, true);
    port_->set_receiver(this);
  }
  ~Station() override { port_->set_receiver(nullptr); }

  void handle_frame(const wire::Frame& frame) override {
    auto mad = read_mad(frame);
    if (!mad || mad->route.destination_qpn != kSmiQpn) {
      arrived.emplace_back(frame);
      return;
    }
    ++smps;
    last_smp = mad->mad;
    if (deaf || agent_.step(mad->mad, 1) != Agent::Hop::kHere || !agent_.answer(mad->mad, 1))
      return;
    if (refuses) {
      util::MutableView<Smp>(mad->mad).set(
          Smp::status, static_cast<std::uint32_t>(MadStatus::UNSUPPORTED_ATTRIBUTE));
    }
    Agent::turn_back(mad->mad);
    send_mad(mad->mad, reversed(mad->route));
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override {}
  void handle_cost(std::int64_t units) override { cost += units; }
  void send_mad(const Mad& mad, const MadRoute& route) {
    wire::Frame frame;
    write_mad(mad, route, frame);
    port_->transmit(frame);
  }
  void send(Lid to, std::uint8_t lane = 0) {
    wire::IbAddress address;
    address.encapsulation = wire::Encapsulation::kLocal;
    address.destination_lid = to;
    address.source_lid = agent_.lid(1);
    address.virtual_lane = lane;
    wire::Frame frame;
    wire::IbHeader(address).begin(wire::Opcode::RC_RDMA_WRITE_ONLY, 0, frame);
    port_->transmit(frame);
  }
  Lid lid() const { return agent_.lid(1); }
  PortState state() const { return agent_.state(1); }
  Agent& agent() { return agent_; }

  std::vector<wire::Frame> arrived;
  unsigned smps = 0;
  std::int64_t cost = 0;  ///< of its frames
  Mad last_smp{};
  bool deaf = false;
  bool refuses = false;  ///< answers with a status

 private:
  Agent agent_;
  std::unique_ptr<fabric::Port> port_;
};

class SubnetTest : public ::testing::Test {
 protected:
  void settle() {
    while (network_.deliver(kAll)) {
    }
  }
  /// `from` sends the switch a Set of `attribute`, routed by LID.
  void set(Station& from, sm_attribute attribute, std::uint32_t modifier,
           std::span<const std::byte> data) {
    Mad mad{};
    const util::MutableView<Smp> smp(mad);
    smp.set(Smp::base_version, 1);
    smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_LID_ROUTED));
    smp.set(Smp::class_version, 1);
    smp.set(Smp::method, static_cast<std::uint32_t>(Method::SET));
    smp.set(Smp::attribute_id, static_cast<std::uint32_t>(attribute));
    smp.set(Smp::attribute_modifier, modifier);
    std::ranges::copy(data, smp.sub(Smp::data).begin());
    from.send_mad(mad, {from.lid(), Manager::kOwnLid, kSmiQpn, kSmiQpn});
    settle();
  }
  /// A response from a station to the switch, by directed route.
  static Mad response(std::uint64_t transaction) {
    Mad mad{};
    const util::MutableView<Smp> smp(mad);
    smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_DIRECTED_ROUTE));
    smp.set(Smp::method, static_cast<std::uint32_t>(Method::GET_RESP));
    smp.set(Smp::transaction_id, transaction);
    smp.set(Smp::direction, 1);
    smp.set(Smp::hop_count, 1);
    smp.set(Smp::hop_pointer, 1);
    return mad;
  }
  fabric::Switch network_;
  Subnet subnet_{network_};
  std::unique_ptr<Station> a_ = std::make_unique<Station>(network_, 0xA00);
  std::unique_ptr<Station> b_ = std::make_unique<Station>(network_, 0xB00);
};

TEST_F(SubnetTest, PortsComeUpWithLids) {
  settle();
  EXPECT_EQ(a_->state(), PortState::ACTIVE);
  EXPECT_EQ(b_->state(), PortState::ACTIVE);
  EXPECT_EQ(a_->lid(), Lid(2));
  EXPECT_EQ(b_->lid(), Lid(3));
  EXPECT_EQ(subnet_.agent().state(1), PortState::ACTIVE);
  EXPECT_EQ(subnet_.agent().lid(0), Manager::kOwnLid);
  ASSERT_NE(subnet_.manager().find(0xB01), nullptr);
  EXPECT_EQ(subnet_.manager().find(0xB01)->lid, Lid(3));
}

TEST_F(SubnetTest, FramesGoWhereTheirLidIs) {
  settle();
  for (int i = 0; i != 3; ++i) a_->send(b_->lid());
  a_->send(Lid(77));
  settle();
  EXPECT_EQ(b_->arrived.size(), 3u);
  EXPECT_EQ(a_->arrived.size(), 0u);
  EXPECT_EQ(network_.counters().dropped_no_way, 1u);
}

TEST_F(SubnetTest, DataDoNotPassALinkThatIsNotActive) {
  settle();
  a_->send(b_->lid());
  settle();
  ASSERT_EQ(b_->arrived.size(), 1u);
  Station late(network_, 0xC00);  // and the switch invalidates its cached routes
  late.deaf = true;
  settle();
  EXPECT_EQ(late.state(), PortState::INIT);
  late.send(b_->lid());
  a_->send(Manager::lid_of(3));
  settle();
  EXPECT_EQ(b_->arrived.size(), 1u);
  EXPECT_TRUE(late.arrived.empty());
}

TEST_F(SubnetTest, AWayIsForgottenWhenItsLinkIsNotActiveAnyMore) {
  Station other(network_, 0xC00);
  settle();
  for (int i = 0; i != 2; ++i) a_->send(b_->lid());
  settle();
  ASSERT_EQ(b_->arrived.size(), 2u);
  util::Struct<PortInfo> down;
  down.set(PortInfo::port_state, static_cast<std::uint32_t>(PortState::DOWN));
  set(other, sm_attribute::PORT_INFO, 2, down.bytes());
  ASSERT_EQ(subnet_.agent().state(2), PortState::INIT);
  a_->send(b_->lid());
  settle();
  EXPECT_EQ(b_->arrived.size(), 2u);
}

// IBTA 18.2.4.3
TEST_F(SubnetTest, AGroupsFramesGoToItsMembersAndNotBack) {
  Station stranger(network_, 0xC00);
  settle();
  std::array<std::byte, 64> members{};
  util::store_be16(members.data(),
                   1u << 1 | 1u << 2);  // ports 1 and 2 are members of the first group
  set(*a_, sm_attribute::MULTICAST_FORWARDING, 0, members);
  const auto before = a_->arrived.size();  // the response to the Set
  a_->send(Lid(spec::infiniband::kFirstMulticastLid));
  settle();
  EXPECT_EQ(b_->arrived.size(), 1u);
  EXPECT_EQ(a_->arrived.size(), before);
  EXPECT_TRUE(stranger.arrived.empty());
}

// If a user plugs in a separate manager such as opensm, the switch runs none.
TEST(Subnet, WithoutAManagerPortsWaitForOne) {
  fabric::Switch network;
  Subnet subnet(network, false);
  Station a(network, 0xA00);
  while (network.deliver(kAll)) {
  }
  EXPECT_EQ(subnet.run(util::Time(std::chrono::hours(1))), util::kNever);
  EXPECT_EQ(a.smps, 0u);
  EXPECT_EQ(a.state(), PortState::INIT);
  EXPECT_EQ(subnet.agent().state(1), PortState::INIT);
  EXPECT_EQ(subnet.agent().lid(0), Lid(0));
  EXPECT_FALSE(subnet.agent().identity().is_manager);
}

TEST_F(SubnetTest, LaneFifteenIsForQp0Alone) {
  settle();
  a_->send(kPermissive);
  settle();
  EXPECT_EQ(network_.counters().dropped_no_way, 1u);
  wire::Frame frame;
  write_mad(Mad{}, {Lid(2), Lid(3), Qpn(5), Qpn(1)}, frame);
  EXPECT_TRUE(read_mad(frame));
  frame.mutable_head()[0] |= std::byte{0xF0};
  frame.set_icrc(wire::Frame::Icrc::kDeferred);
  EXPECT_FALSE(read_mad(frame)) << "to QP1 on lane 15";
}

// The manager repeats a request that gets no answer, pauses, and repeats it again.
TEST_F(SubnetTest, AnUnansweredRequestIsRepeated) {
  a_->deaf = true;
  settle();
  const auto begin = util::Time(std::chrono::seconds(1));
  auto now = begin;
  for (int i = 0; i != 5; ++i) {
    now = subnet_.run(now);
    ASSERT_NE(now, util::kNever);
    settle();
  }
  EXPECT_EQ(a_->smps, 5u);
  a_->deaf = false;
  subnet_.run(now);
  settle();
  EXPECT_EQ(a_->state(), PortState::ACTIVE);
  EXPECT_EQ(subnet_.run(now), begin + Manager::kSweepInterval) << "nothing but the next sweep";
}

// IBTA 14.4.4: a sweep reverts what software has changed on its port.
TEST_F(SubnetTest, ASweepFindsAPortThatIsNotAsItWasMade) {
  settle();
  auto now = util::Time(std::chrono::seconds(1));
  now = subnet_.run(now);
  for (const auto what : {PortInfo::port_state.kOffset, PortInfo::lid.kOffset}) {
    Mad mad{};
    const util::MutableView<Smp> smp(mad);
    smp.set(Smp::base_version, 1);
    smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_LID_ROUTED));
    smp.set(Smp::class_version, 1);
    smp.set(Smp::attribute_id, static_cast<std::uint32_t>(sm_attribute::PORT_INFO));
    smp.set(Smp::method, static_cast<std::uint32_t>(Method::GET));
    ASSERT_TRUE(a_->agent().answer(mad, 1, true));
    smp.set(Smp::method, static_cast<std::uint32_t>(Method::SET));
    const util::MutableView<PortInfo> info(smp.sub(Smp::data));
    info.set(PortInfo::port_state, static_cast<std::uint32_t>(PortState::NO_CHANGE));
    if (what == PortInfo::lid.kOffset) {
      info.set(PortInfo::lid, 77);
    } else {
      info.set(PortInfo::port_state, static_cast<std::uint32_t>(PortState::DOWN));
    }
    ASSERT_TRUE(a_->agent().answer(mad, 1, true));
    EXPECT_TRUE(a_->state() != PortState::ACTIVE || a_->lid() != Lid(2));
    settle();
    now = subnet_.run(now);  // the sweep
    settle();
    EXPECT_EQ(a_->state(), PortState::ACTIVE);
    EXPECT_EQ(a_->lid(), Lid(2));
    EXPECT_EQ(subnet_.agent().state(1), PortState::ACTIVE);
    now = subnet_.run(now);
  }
  a_->send(b_->lid());
  settle();
  EXPECT_EQ(b_->arrived.size(), 1u);
  EXPECT_EQ(subnet_.manager().counters().mended, 2u);
  EXPECT_GE(subnet_.manager().counters().swept, 4u) << "of both ports";
}

TEST_F(SubnetTest, ANodeThatRefusesASweepIsNotNamedUntilItIsDiscoveredAgain) {
  settle();
  auto now = subnet_.run(util::Time(std::chrono::seconds(1)));
  ASSERT_NE(subnet_.manager().find(Lid(2)), nullptr);
  a_->refuses = true;
  now = subnet_.run(now);  // the sweep
  settle();
  EXPECT_EQ(subnet_.manager().find(Lid(2)), nullptr);
  EXPECT_EQ(subnet_.manager().count(), 2u) << "the switch and the other node";
  a_->refuses = false;
  for (int i = 0; i != 3; ++i) {
    now = subnet_.run(now);
    settle();
  }
  EXPECT_NE(subnet_.manager().find(Lid(2)), nullptr);
}

TEST_F(SubnetTest, ANodeThatLeavesIsForgottenAndANewOneIsAsked) {
  settle();
  b_ = nullptr;
  EXPECT_EQ(subnet_.manager().find(Lid(3)), nullptr);
  EXPECT_EQ(subnet_.agent().state(2), PortState::DOWN);
  a_->send(Lid(3));
  settle();
  EXPECT_EQ(network_.counters().dropped_no_way, 1u);
  b_ = std::make_unique<Station>(network_, 0xD00);
  settle();
  EXPECT_EQ(b_->state(), PortState::ACTIVE);
  EXPECT_EQ(b_->lid(), Lid(3));
}

// A separate manager behind a port can query the switch, too (14.2.2).
TEST_F(SubnetTest, AStationAsksTheSwitchByDirectedRoute) {
  settle();
  Mad mad{};
  const util::MutableView<Smp> smp(mad);
  smp.set(Smp::base_version, 1);
  smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_DIRECTED_ROUTE));
  smp.set(Smp::class_version, 1);
  smp.set(Smp::method, static_cast<std::uint32_t>(Method::GET));
  smp.set(Smp::attribute_id, static_cast<std::uint32_t>(sm_attribute::SWITCH_INFO));
  smp.set(Smp::hop_count, 1);
  smp.set(Smp::hop_pointer, 1);
  smp.sub(Smp::initial_path)[1] = std::byte{1};
  const auto answered = subnet_.agent().counters().answered;
  const auto before = a_->smps;
  a_->send_mad(mad, {kPermissive, kPermissive, kSmiQpn, kSmiQpn});
  settle();
  EXPECT_EQ(subnet_.agent().counters().answered, answered + 1);
  EXPECT_EQ(a_->smps, before + 1) << "the answer has come back";
  // The request passes the switch to the other station, and its response returns.
  smp.set(Smp::attribute_id, static_cast<std::uint32_t>(sm_attribute::NODE_INFO));
  smp.set(Smp::hop_count, 2);
  smp.sub(Smp::initial_path)[2] = std::byte{2};
  const auto of_b = b_->smps;
  a_->send_mad(mad, {kPermissive, kPermissive, kSmiQpn, kSmiQpn});
  settle();
  EXPECT_EQ(b_->smps, of_b + 1);
  EXPECT_EQ(a_->smps, before + 2);
}

// One station cannot make another pay, nor the loop that serves all.
TEST_F(SubnetTest, ARequestIsTheWorkOfItsSenderAlone) {
  settle();
  const auto cost_of = [&](Station& station, auto&& what) {
    const auto before = station.cost;
    const auto& other = &station == a_.get() ? *b_ : *a_;
    const auto of_other = other.cost;
    what();
    settle();
    EXPECT_EQ(other.cost, of_other);
    return station.cost - before;
  };
  // To the other station, which answers.
  Mad mad{};
  const util::MutableView<Smp> smp(mad);
  smp.set(Smp::base_version, 1);
  smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_DIRECTED_ROUTE));
  smp.set(Smp::class_version, 1);
  smp.set(Smp::method, static_cast<std::uint32_t>(Method::GET));
  smp.set(Smp::attribute_id, static_cast<std::uint32_t>(sm_attribute::NODE_INFO));
  smp.set(Smp::hop_count, 2);
  smp.set(Smp::hop_pointer, 1);
  smp.sub(Smp::initial_path)[1] = std::byte{1};
  smp.sub(Smp::initial_path)[2] = std::byte{2};
  EXPECT_GE(cost_of(*a_, [&] { a_->send_mad(mad, {kPermissive, kPermissive, kSmiQpn, kSmiQpn}); }),
            1'000);
  // A new group, whose MGID the administration chooses.
  using Record = spec::infiniband::mc_member_record;
  Mad join{};
  const util::MutableView<SaMad> sa(join);
  sa.set(SaMad::base_version, 1);
  sa.set(SaMad::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_ADMINISTRATION));
  sa.set(SaMad::class_version, 2);
  sa.set(SaMad::method, static_cast<std::uint32_t>(Method::SET));
  sa.set(SaMad::attribute_id,
         static_cast<std::uint32_t>(spec::infiniband::sa_attribute::MC_MEMBER_RECORD));
  // PortGID, Q_Key, TClass, P_Key, SL, FlowLabel, JoinState.
  sa.set(SaMad::component_mask,
         1u << 1 | 1u << 2 | 1u << 6 | 1u << 7 | 1u << 12 | 1u << 13 | 1u << 16);
  const util::MutableView<Record> record(sa.sub(SaMad::data));
  util::store_be64(record.sub(Record::port_gid).data(), 0xFE80'0000'0000'0000);
  util::store_be64(record.sub(Record::port_gid).data() + 8, 0xB01);
  record.set(Record::join_state, 1);
  EXPECT_GE(
      cost_of(
          *b_,
          [&] { b_->send_mad(join, {b_->lid(), Manager::kOwnLid, wire::kGsiQpn, wire::kGsiQpn}); }),
      2'050);
}

// IBTA 14.2.5.3: LocalPortNum is the port by which the request arrived, also after a request of
// another station.
TEST_F(SubnetTest, TheSwitchGivesEachStationItsOwnPort) {
  settle();
  Mad mad{};
  const util::MutableView<Smp> smp(mad);
  smp.set(Smp::base_version, 1);
  smp.set(Smp::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_LID_ROUTED));
  smp.set(Smp::class_version, 1);
  smp.set(Smp::method, static_cast<std::uint32_t>(Method::GET));
  smp.set(Smp::attribute_id, static_cast<std::uint32_t>(sm_attribute::NODE_INFO));
  using Info = spec::infiniband::node_info;
  const auto port_told_to = [&](Station& station) {
    station.send_mad(mad, {station.lid(), Manager::kOwnLid, kSmiQpn, kSmiQpn});
    settle();
    const auto data = util::View<Smp>(station.last_smp).get(Smp::data);
    return util::View<Info>(data).get(Info::local_port_num);
  };
  for (int i = 0; i != 2; ++i) {
    EXPECT_EQ(port_told_to(*a_), 1u);
    EXPECT_EQ(port_told_to(*b_), 2u);
  }
}

// IBTA 15.2.5.17: a port joins and leaves only for itself, whatever source LID it writes.
TEST_F(SubnetTest, AStationCannotLeaveAGroupInTheNameOfAnother) {
  using Record = spec::infiniband::mc_member_record;
  constexpr std::uint64_t kJoin = 1u << 0 | 1u << 1 | 1u << 16;  // MGID, PortGID, JoinState
  settle();
  // The broadcast group of IPoIB.
  wire::Gid group;
  util::store_be64(group.bytes.data(), 0xFF12'401B'FFFF'0000);
  util::store_be64(group.bytes.data() + 8, 0xFFFF'FFFF);
  const auto ask_as_b = [&](Station& sender, Method method) {
    Mad mad{};
    const util::MutableView<SaMad> sa(mad);
    sa.set(SaMad::base_version, 1);
    sa.set(SaMad::mgmt_class, static_cast<std::uint32_t>(MadClass::SUBN_ADMINISTRATION));
    sa.set(SaMad::class_version, 2);
    sa.set(SaMad::method, static_cast<std::uint32_t>(method));
    sa.set(SaMad::attribute_id,
           static_cast<std::uint32_t>(spec::infiniband::sa_attribute::MC_MEMBER_RECORD));
    sa.set(SaMad::component_mask, kJoin);
    const util::MutableView<Record> record(sa.sub(SaMad::data));
    std::ranges::copy(group.bytes, record.sub(Record::mgid).begin());
    util::store_be64(record.sub(Record::port_gid).data(), 0xFE80'0000'0000'0000);
    util::store_be64(record.sub(Record::port_gid).data() + 8, 0xB01);
    record.set(Record::join_state, 1);
    sender.send_mad(mad, {b_->lid(), Manager::kOwnLid, wire::kGsiQpn, wire::kGsiQpn});
    settle();
  };
  const Lid of_group(spec::infiniband::kFirstMulticastLid);
  ask_as_b(*a_, Method::SET);
  EXPECT_FALSE(subnet_.agent().has_member(of_group, 2));
  ask_as_b(*b_, Method::SET);
  EXPECT_TRUE(subnet_.agent().has_member(of_group, 2));
  ask_as_b(*a_, Method::DELETE);
  EXPECT_TRUE(subnet_.agent().has_member(of_group, 2));
  ask_as_b(*b_, Method::DELETE);
  EXPECT_FALSE(subnet_.agent().has_member(of_group, 2));
}

// The manager accepts a response only if it matches an outstanding request.
TEST_F(SubnetTest, AnUnexpectedResponseChangesNothing) {
  settle();
  a_->send_mad(response(0), {kPermissive, kPermissive, kSmiQpn, kSmiQpn});
  settle();
  EXPECT_EQ(subnet_.manager().counters().unexpected, 1u);
  EXPECT_EQ(a_->state(), PortState::ACTIVE);
}

// IBTA 13.4.6.4: a response carries the transaction ID of its request.
TEST_F(SubnetTest, AResponseToAnotherRequestIsNotTaken) {
  a_->deaf = true;
  settle();
  a_->send_mad(response(0xDEAD), {kPermissive, kPermissive, kSmiQpn, kSmiQpn});
  settle();
  EXPECT_EQ(subnet_.manager().counters().unexpected, 1u);
  a_->deaf = false;
  const auto now = subnet_.run(util::Time(std::chrono::seconds(1)));
  subnet_.run(now);
  settle();
  EXPECT_EQ(a_->state(), PortState::ACTIVE) << "it waits for the right one";
}

}  // namespace
}  // namespace softhca::subnet
