// Subnet administration requests of software on an InfiniBand port, by datagrams to QP1 (IBTA 15).

#include <gtest/gtest.h>

#include <cstring>

#include "jingzhao/world.h"
#include "spec/infiniband/mad.h"
#include "subnet/mad.h"
#include "util/endian.h"

namespace softhca::jingzhao::test {
namespace {

using spec::infiniband::mc_member_record;
using spec::infiniband::path_record;
using spec::infiniband::port_info;
using spec::infiniband::port_info_record;
using spec::infiniband::sa_attribute;
using subnet::Mad;
using subnet::MadStatus;
using subnet::Method;
using subnet::SaMad;

constexpr std::uint32_t kGsiQkey = 0x80010000;
constexpr std::uint64_t kDgid = 1u << 2, kSlid = 1u << 5, kLidOfRecord = 1;
constexpr std::uint64_t kJoin = 1u << 0 | 1u << 1 | 1u << 16;
constexpr std::uint64_t kCreate = kJoin | 1u << 2 | 1u << 6 | 1u << 7 | 1u << 12 | 1u << 13;

class SubnetAdministration : public World, public ::testing::Test {
 public:
  SubnetAdministration() : World({.card = {.link = wire::Link::kInfiniband}}) {
    open();
    for (auto* node : {&a(), &b()}) {
      auto side = std::make_unique<Side>(*node, Side::Options{});
      side->qp = must(jz::QueuePair::create(*node->hca, {.send_cq = *side->send_cq,
                                                         .receive_cq = *side->receive_cq,
                                                         .type = spec::jingzhao::qp_type::UD,
                                                         .pd = side->pd,
                                                         .inline_size = 0,
                                                         .gsi = true}));
      must(side->qp->listen(node->address, kGsiQkey));
      sides_.push_back(std::move(side));
    }
  }
  ~SubnetAdministration() override { sides_.clear(); }

  /// Asks the manager as a() if `who` is 0, as b() if it is 1.
  Mad ask(Mad mad, std::size_t who = 0) {
    auto& side = *sides_[who];
    side.receive(9, 1024, 256);
    std::ranges::copy(mad, side.bytes(0, mad.size()).begin());
    const auto piece = side.piece(0, mad.size());
    EXPECT_EQ(
        side.qp->post_send({.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&piece, 1}},
                           {.to = {.mac = {}, .lid = 1}, .qpn = 1, .qkey = kGsiQkey}),
        PostStatus::kOk);
    const auto answer = wait(*this, *side.receive_cq);
    expect_success(answer, 9, CompletionOpcode::kReceive);
    if (!answer.empty()) {
      EXPECT_EQ(answer[0].byte_count, mad.size());
      EXPECT_EQ(answer[0].source_lid, 1);
    }
    std::ranges::copy(side.bytes(1024, mad.size()), mad.begin());
    return mad;
  }

  /// Sends the manager a MAD that it does not answer.
  void tell(const Mad& mad) {
    auto& side = *sides_[0];
    std::ranges::copy(mad, side.bytes(0, mad.size()).begin());
    const auto piece = side.piece(0, mad.size());
    EXPECT_EQ(
        side.qp->post_send({.id = 1, .opcode = driver::SendOpcode::kSend, .pieces = {&piece, 1}},
                           {.to = {.mac = {}, .lid = 1}, .qpn = 1, .qkey = kGsiQkey}),
        PostStatus::kOk);
    advance(std::chrono::milliseconds(1));
  }

 private:
  std::vector<std::unique_ptr<Side>> sides_;
};

Mad request(Method method, sa_attribute attribute, std::uint64_t components) {
  Mad mad{};
  const util::MutableView<SaMad> sa(mad);
  sa.set(SaMad::base_version, 1);
  sa.set(SaMad::mgmt_class, static_cast<std::uint32_t>(subnet::MadClass::SUBN_ADMINISTRATION));
  sa.set(SaMad::class_version, 2);
  sa.set(SaMad::method, static_cast<std::uint32_t>(method));
  sa.set(SaMad::transaction_id, 0x1234);
  sa.set(SaMad::attribute_id, static_cast<std::uint32_t>(attribute));
  sa.set(SaMad::component_mask, components);
  return mad;
}

template <class Record>
util::MutableView<Record> record(Mad& mad) {
  return util::MutableView<Record>(util::MutableView<SaMad>(mad).sub(SaMad::data));
}

MadStatus sa_status_of(const Mad& mad) {
  return MadStatus(util::View<SaMad>(mad).get(SaMad::status));
}

/// The GID of node n of a world: the default prefix and its port's GUID.
std::array<std::byte, 16> gid_of(unsigned node) {
  std::array<std::byte, 16> gid{};
  util::store_be64(gid.data(), 0xFE80000000000000);
  util::store_be64(gid.data() + 8, DeviceOptions().node_guid + (node << 8) + 1);
  return gid;
}

TEST_F(SubnetAdministration, ARequestIsTheWorkOfTheDeviceThatSendsIt) {
  constexpr int kTimes = 20;
  const auto work_of = [&](auto&& what) {
    const auto before = a().device->work_done();
    for (int i = 0; i != kTimes; ++i) what();
    return a().device->work_done() - before;
  };
  const auto mad = request(Method::GET, sa_attribute::CLASS_PORT_INFO, 0);
  auto other = mad;
  constexpr std::uint32_t kPerformance = 4;  // a class without an agent
  util::MutableView<SaMad>(other).set(SaMad::mgmt_class, kPerformance);
  const auto of_others = work_of([&] { tell(other); });
  const auto of_requests = work_of([&] { EXPECT_EQ(sa_status_of(ask(mad)), MadStatus::OK); });
  EXPECT_GE(of_requests - of_others, kTimes * 1'000);
}

TEST_F(SubnetAdministration, APathRecordGivesTheLidOfAGid) {
  auto mad = request(Method::GET, sa_attribute::PATH_RECORD, kDgid | kSlid);
  const auto in = record<path_record>(mad);
  std::ranges::copy(gid_of(1), in.sub(path_record::dgid).begin());
  in.set(path_record::slid, a().address.lid);
  auto answer = ask(mad);
  ASSERT_EQ(sa_status_of(answer), MadStatus::OK);
  EXPECT_EQ(util::View<SaMad>(answer).get(SaMad::method),
            static_cast<std::uint32_t>(Method::GET_RESP));
  EXPECT_EQ(util::View<SaMad>(answer).get(SaMad::transaction_id), 0x1234u);
  const auto path = record<path_record>(answer);
  EXPECT_EQ(path.get(path_record::dlid), b().address.lid);
  EXPECT_EQ(path.get(path_record::slid), a().address.lid);
  EXPECT_TRUE(std::ranges::equal(path.get(path_record::sgid), gid_of(0)));
  EXPECT_EQ(path.get(path_record::mtu), 5u);
  EXPECT_EQ(path.get(path_record::p_key), 0xFFFFu);
}

TEST_F(SubnetAdministration, AnUnknownGidHasNoPath) {
  auto mad = request(Method::GET, sa_attribute::PATH_RECORD, kDgid);
  std::ranges::copy(gid_of(5), record<path_record>(mad).sub(path_record::dgid).begin());
  EXPECT_EQ(sa_status_of(ask(mad)), MadStatus::SA_NO_RECORDS);
  EXPECT_EQ(sa_status_of(ask(request(Method::GET, sa_attribute::PATH_RECORD, kSlid))),
            MadStatus::SA_INSUFFICIENT);
}

TEST_F(SubnetAdministration, APortInfoRecordIsWhatThePortAnswered) {
  auto mad = request(Method::GET, sa_attribute::PORT_INFO_RECORD, kLidOfRecord);
  record<port_info_record>(mad).set(port_info_record::end_port_lid, b().address.lid);
  auto answer = ask(mad);
  ASSERT_EQ(sa_status_of(answer), MadStatus::OK);
  const auto info = record<port_info_record>(answer).sub(port_info_record::port_info);
  EXPECT_EQ(info.get(port_info::lid), b().address.lid);
  EXPECT_EQ(spec::infiniband::port_state(info.get(port_info::port_state)),
            spec::infiniband::port_state::ACTIVE);
}

Mad membership(Method method, std::uint64_t components, unsigned node,
               const std::array<std::byte, 16>& mgid, std::uint32_t state = 1) {
  auto mad = request(method, sa_attribute::MC_MEMBER_RECORD, components);
  const auto in = record<mc_member_record>(mad);
  std::ranges::copy(mgid, in.sub(mc_member_record::mgid).begin());
  std::ranges::copy(gid_of(node), in.sub(mc_member_record::port_gid).begin());
  in.set(mc_member_record::q_key, 0x0B1B);
  in.set(mc_member_record::p_key, 0xFFFF);
  in.set(mc_member_record::join_state, state);
  return mad;
}

// IBTA 15.2.5.17: the first full member creates the group; when the last one leaves, the group is
// deleted.
TEST_F(SubnetAdministration, PortsJoinAndLeaveAMulticastGroup) {
  std::array<std::byte, 16> mgid{};
  mgid[0] = std::byte{0xFF};
  mgid[15] = std::byte{0x42};
  const auto groups = subnet()->administration().groups();
  // The group does not exist. A request that creates it must give its attributes.
  EXPECT_EQ(sa_status_of(ask(membership(Method::SET, kJoin, 0, mgid))), MadStatus::SA_INSUFFICIENT);
  auto made = ask(membership(Method::SET, kCreate, 0, mgid));
  ASSERT_EQ(sa_status_of(made), MadStatus::OK);
  const auto mlid = record<mc_member_record>(made).get(mc_member_record::mlid);
  ASSERT_GE(mlid, 0xC000u);
  ASSERT_EQ(sa_status_of(ask(membership(Method::SET, kJoin, 1, mgid), 1)), MadStatus::OK);
  const wire::Lid group(static_cast<std::uint16_t>(mlid));
  EXPECT_TRUE(subnet()->agent().has_member(group, 1));
  EXPECT_TRUE(subnet()->agent().has_member(group, 2));
  EXPECT_FALSE(subnet()->agent().has_member(group, 3));
  // A port cannot join or leave for another port.
  EXPECT_EQ(sa_status_of(ask(membership(Method::DELETE, kJoin, 1, mgid))),
            MadStatus::SA_REQUEST_INVALID);
  auto left = ask(membership(Method::DELETE, kJoin, 0, mgid));
  EXPECT_EQ(sa_status_of(left), MadStatus::OK);
  EXPECT_EQ(util::View<SaMad>(left).get(SaMad::method),
            static_cast<std::uint32_t>(Method::DELETE_RESP));
  EXPECT_FALSE(subnet()->agent().has_member(group, 1));
  EXPECT_EQ(subnet()->administration().groups(), groups + 1);
  EXPECT_EQ(sa_status_of(ask(membership(Method::DELETE, kJoin, 1, mgid), 1)), MadStatus::OK);
  EXPECT_EQ(subnet()->administration().groups(), groups);
  EXPECT_FALSE(subnet()->agent().has_member(group, 2));
}

// IBTA 15.2.5.17.2: the manager names a group that is created without an MGID.
TEST_F(SubnetAdministration, ANameThatTheManagerChoosesIsNoOtherGroups) {
  // The name that the second group after the IPoIB broadcast group would get.
  std::array<std::byte, 16> mgid{std::byte{0xFF}, std::byte{0x12}, std::byte{0xA0},
                                 std::byte{0x1B}, std::byte{0xFF}, std::byte{0xFF}};
  util::store_be16(mgid.data() + 14, 0xC002);
  const auto groups = subnet()->administration().groups();
  auto taken = ask(membership(Method::SET, kCreate, 1, mgid), 1);
  ASSERT_EQ(sa_status_of(taken), MadStatus::OK);
  const wire::Lid old(
      static_cast<std::uint16_t>(record<mc_member_record>(taken).get(mc_member_record::mlid)));
  auto made = ask(membership(Method::SET, kCreate, 0, {}));
  ASSERT_EQ(sa_status_of(made), MadStatus::OK);
  const auto named = record<mc_member_record>(made);
  EXPECT_EQ(named.get(mc_member_record::mlid), 0xC002u);
  EXPECT_FALSE(std::ranges::equal(named.get(mc_member_record::mgid), mgid));
  EXPECT_EQ(subnet()->administration().groups(), groups + 2);
  EXPECT_TRUE(subnet()->agent().has_member(old, 2));
  EXPECT_EQ(sa_status_of(ask(membership(Method::DELETE, kJoin, 1, mgid), 1)), MadStatus::OK);
}

/// The `number`-th name that the manager tries for a group without one that gets this LID.
std::array<std::byte, 16> name_of(unsigned lid, unsigned number) {
  std::array<std::byte, 16> mgid{std::byte{0xFF}, std::byte{0x12}, std::byte{0xA0},
                                 std::byte{0x1B}, std::byte{0xFF}, std::byte{0xFF}};
  util::store_be32(mgid.data() + 10, number);
  util::store_be16(mgid.data() + 14, static_cast<std::uint16_t>(lid));
  return mgid;
}

// A node may take the names that the manager would choose next, thousands of them. Each costs the
// switch one search, however often the node creates a group without a name.
TEST_F(SubnetAdministration, ANameThatWasTakenIsNotTriedAgain) {
  constexpr unsigned kTaken = 5;
  // 0xC000 is the IPoIB broadcast group's. These get the LIDs up to 0xC000 + kTaken.
  for (unsigned i = 0; i != kTaken; ++i) {
    const auto mgid = name_of(0xC001 + kTaken, i);
    ASSERT_EQ(sa_status_of(ask(membership(Method::SET, kCreate, 0, mgid))), MadStatus::OK);
  }
  const auto names = [&] { return subnet()->administration().counters().names; };
  auto made = ask(membership(Method::SET, kCreate, 0, {}));
  ASSERT_EQ(sa_status_of(made), MadStatus::OK);
  EXPECT_EQ(names(), kTaken + 1);
  const auto mgid = name_of(0xC001 + kTaken, kTaken);
  EXPECT_TRUE(std::ranges::equal(record<mc_member_record>(made).get(mc_member_record::mgid), mgid));
  ASSERT_EQ(sa_status_of(ask(membership(Method::DELETE, kJoin, 0, mgid))), MadStatus::OK);
  ASSERT_EQ(sa_status_of(ask(membership(Method::SET, kCreate, 0, {}))), MadStatus::OK);
  EXPECT_EQ(names(), kTaken + 2);
}

// A join changes the mask of the ports around the member: a Get and a Set of the switch's table,
// whose sixteen positions are not all written.
TEST_F(SubnetAdministration, AJoinAndALeaveChangeOneEntryOfTheTable) {
  std::array<std::byte, 16> mgid{};
  mgid[0] = std::byte{0xFF};
  const auto requests = [&] { return subnet()->agent().counters().answered; };
  const auto before = requests();
  ASSERT_EQ(sa_status_of(ask(membership(Method::SET, kCreate, 0, mgid))), MadStatus::OK);
  EXPECT_EQ(requests() - before, 2u);
  ASSERT_EQ(sa_status_of(ask(membership(Method::DELETE, kJoin, 0, mgid))), MadStatus::OK);
  EXPECT_EQ(requests() - before, 4u);
}

TEST_F(SubnetAdministration, ALidIsFreeAgainWhenItsGroupIsGone) {
  std::array<std::byte, 16> mgid{};
  mgid[0] = std::byte{0xFF};
  const auto make = [&](unsigned number) {
    mgid[15] = static_cast<std::byte>(number);
    auto made = ask(membership(Method::SET, kCreate, 0, mgid));
    EXPECT_EQ(sa_status_of(made), MadStatus::OK);
    return record<mc_member_record>(made).get(mc_member_record::mlid);
  };
  // 0xC000 is the IPoIB broadcast group's.
  for (unsigned i = 1; i != 4; ++i) EXPECT_EQ(make(i), 0xC000u + i);
  mgid[15] = std::byte{2};
  ASSERT_EQ(sa_status_of(ask(membership(Method::DELETE, kJoin, 0, mgid))), MadStatus::OK);
  EXPECT_EQ(make(9), 0xC002u);
  EXPECT_EQ(make(10), 0xC004u);
}

// IBTA 13.4.7: the response to an unsupported request carries an error status.
TEST_F(SubnetAdministration, AnotherVersionOrAttributeIsRefusedInAnAnswer) {
  auto mad = request(Method::GET, sa_attribute::PATH_RECORD, kDgid);
  util::MutableView<SaMad>(mad).set(SaMad::class_version, 1);
  EXPECT_EQ(sa_status_of(ask(mad)), MadStatus::UNSUPPORTED_VERSION);
  EXPECT_EQ(sa_status_of(ask(request(Method::GET, sa_attribute(0x7777), 0))),
            MadStatus::UNSUPPORTED_ATTRIBUTE);
  EXPECT_EQ(sa_status_of(ask(request(Method::SET, sa_attribute::PATH_RECORD, kDgid))),
            MadStatus::UNSUPPORTED_ATTRIBUTE);
}

}  // namespace
}  // namespace softhca::jingzhao::test
