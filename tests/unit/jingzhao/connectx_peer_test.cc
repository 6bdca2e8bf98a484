// A JingZhao and a ConnectX connected over RoCEv2: two HCA families on one transport.
#include <gtest/gtest.h>

#include "connectx/device.h"
#include "driver/connectx/completion_queue.h"
#include "driver/connectx/datagram.h"
#include "driver/connectx/hca.h"
#include "driver/connectx/memory_key.h"
#include "driver/connectx/protection_domain.h"
#include "driver/connectx/queue_pair.h"
#include "jingzhao/world.h"

namespace softhca::jingzhao::test {
namespace {

namespace cx = driver::connectx;
using driver::SendOpcode;

/// A ConnectX on the switch of a world.
class ConnectxPeer : public driver::test::SideMemory {
 public:
  explicit ConnectxPeer(World& world)
      : SideMemory(64 << 10),
        device_({.mac = mac(),
                 .node_guid = 0x025fca0000000009,
                 .clock = [&world] { return world.now(); }},
                world.create_port("connectx")),
        host_((world.add(device_), device_), world.host_options()),
        hca(must(cx::Hca::open(host_))) {
    must(hca->set_roce_address(0, {.gid = gid(), .mac = mac()}));
    pd = must(cx::ProtectionDomain::create(*hca));
    key = must(cx::MemoryKey::register_memory(
        *pd, memory, {.remote_read = true, .remote_write = true, .remote_atomic = true}));
    cq = must(cx::CompletionQueue::create(*hca));
    qp = must(cx::QueuePair::create(*pd, {.send_cq = *cq, .receive_cq = *cq}));
  }

  static driver::Mac mac() { return driver::Mac::from_u64(0x020000000009u); }
  static constexpr std::uint32_t kIpv4 = 0xC0A80A09;
  static driver::Gid gid() { return driver::Gid::from_ipv4(192, 168, 10, 9); }
  Sge piece(std::size_t offset, std::uint32_t length) const {
    return {address(offset), length, key->key()};
  }

 private:
  softhca::connectx::Device device_;
  driver::InProcessHost host_;

 public:
  std::unique_ptr<cx::Hca> hca;
  std::unique_ptr<cx::ProtectionDomain> pd;
  std::unique_ptr<cx::MemoryKey> key;
  std::unique_ptr<cx::CompletionQueue> cq;
  std::unique_ptr<cx::QueuePair> qp;
};

class JingzhaoAndConnectx : public testing::Test {
 protected:
  JingzhaoAndConnectx() : c(world) {
    world.a().open();
    j.emplace(world.a());
    must(j->qp->connect(world.a().address,
                        {.qpn = c.qp->qpn(), .psn = 3, .at = {c.mac(), ConnectxPeer::kIpv4}},
                        {.psn = 7}));
    must(c.qp->connect({.qpn = j->qp->qpn(),
                        .psn = 7,
                        .gid = driver::Gid::from_ipv4(192, 168, 10, 1),
                        .mac = world.a().address.mac},
                       {.psn = 3}));
    fill(j->memory, 1);
    fill(c.memory, 2);
  }
  ~JingzhaoAndConnectx() override {
    // Before the peer goes, because a driver that closes runs all devices.
    j.reset();
    world.a().hca = nullptr;
  }
  World world;
  ConnectxPeer c;
  std::optional<Side> j;
};

TEST_F(JingzhaoAndConnectx, SendsGoBothWays) {
  const auto from = j->piece(0, 9000), to = c.piece(0x8000, 0x4000);
  ASSERT_EQ(c.qp->post_receive({.id = 1, .pieces = {&to, 1}}), PostStatus::kOk);
  ASSERT_EQ(j->qp->post_send({.id = 2, .pieces = {&from, 1}}), PostStatus::kOk);
  expect_success(wait(world, *c.cq), 1, CompletionOpcode::kReceive);
  expect_success(wait(world, *j->send_cq), 2, CompletionOpcode::kSend);
  EXPECT_TRUE(same(j->bytes(0, 9000), c.bytes(0x8000, 9000)));
  j->receive(3, 0x8000, 0x4000);
  const auto back = c.piece(0, 9000);
  ASSERT_EQ(c.qp->post_send({.id = 4, .pieces = {&back, 1}}), PostStatus::kOk);
  expect_success(wait(world, *j->receive_cq), 3, CompletionOpcode::kReceive);
  expect_success(wait(world, *c.cq), 4, CompletionOpcode::kSend);
  EXPECT_TRUE(same(j->bytes(0x8000, 9000), c.bytes(0, 9000)));
}

TEST_F(JingzhaoAndConnectx, WritesAndReadsGoBothWays) {
  for (const auto opcode : {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    const auto mine = j->piece(0, 9000);
    ASSERT_EQ(j->qp->post_send({.id = 1,
                                .opcode = opcode,
                                .pieces = {&mine, 1},
                                .remote_address = c.address(0x4000),
                                .rkey = c.key->key()}),
              PostStatus::kOk);
    ASSERT_EQ(wait(world, *j->send_cq).size(), 1u);
    EXPECT_TRUE(same(j->bytes(0, 9000), c.bytes(0x4000, 9000)));
    fill(c.memory, 5);
    const auto theirs = c.piece(0, 9000);
    ASSERT_EQ(c.qp->post_send({.id = 1,
                               .opcode = opcode,
                               .pieces = {&theirs, 1},
                               .remote_address = j->address(0x4000),
                               .rkey = j->key->key()}),
              PostStatus::kOk);
    ASSERT_EQ(wait(world, *c.cq).size(), 1u);
    EXPECT_TRUE(same(j->bytes(0x4000, 9000), c.bytes(0, 9000)));
  }
}

TEST_F(JingzhaoAndConnectx, AtomicsCountOnTheOtherSide) {
  const std::uint64_t before = 41;
  std::memcpy(c.bytes(0x100, 8).data(), &before, 8);
  const auto mine = j->piece(0, 8);
  ASSERT_EQ(j->qp->post_send({.id = 1,
                              .opcode = SendOpcode::kFetchAdd,
                              .pieces = {&mine, 1},
                              .remote_address = c.address(0x100),
                              .rkey = c.key->key(),
                              .swap_or_add = 1}),
            PostStatus::kOk);
  expect_success(wait(world, *j->send_cq), 1, CompletionOpcode::kFetchAdd);
  std::uint64_t old, now;
  std::memcpy(&old, j->bytes(0, 8).data(), 8);
  std::memcpy(&now, c.bytes(0x100, 8).data(), 8);
  EXPECT_EQ(old, 41u);
  EXPECT_EQ(now, 42u);
}

/// The ConnectX reserves 40 bytes for the GRH in front of the payload; the JingZhao reserves none.
TEST_F(JingzhaoAndConnectx, DatagramsGoBothWays) {
  Side::Options options;
  options.type = spec::jingzhao::qp_type::UD;
  Side ud(world.a(), options);
  must(ud.qp->listen(world.a().address, kQkey));
  auto qp = must(cx::QueuePair::create(
      *c.pd, {.send_cq = *c.cq, .receive_cq = *c.cq, .service = spec::connectx::service_type::UD}));
  must(qp->activate(kQkey));
  fill(ud.memory, 3);
  const auto from = ud.piece(0, 500), to = c.piece(0x8000, 0x1000);
  ASSERT_EQ(qp->post_receive({.id = 1, .pieces = {&to, 1}}), PostStatus::kOk);
  ASSERT_EQ(
      ud.qp->post_send({.id = 2, .pieces = {&from, 1}},
                       {.to = {c.mac(), ConnectxPeer::kIpv4}, .qpn = qp->qpn(), .qkey = kQkey}),
      PostStatus::kOk);
  const auto received = wait(world, *c.cq);
  expect_success(received, 1, CompletionOpcode::kReceive);
  EXPECT_EQ(received[0].byte_count, 540u);
  EXPECT_EQ(received[0].source_qpn, ud.qp->qpn());
  EXPECT_TRUE(same(ud.bytes(0, 500), c.bytes(0x8000 + 40, 500)));
  ud.receive(3, 0x8000, 0x1000);
  const cx::AddressVector way(
      {.gid = driver::Gid::from_ipv4(192, 168, 10, 1), .mac = world.a().address.mac});
  const auto back = c.piece(0, 500);
  ASSERT_EQ(qp->post_send({.id = 4,
                           .pieces = {&back, 1},
                           .address = &way.form(),
                           .remote_qpn = ud.qp->qpn(),
                           .remote_qkey = kQkey}),
            PostStatus::kOk);
  const auto answered = wait(world, *ud.receive_cq);
  expect_success(answered, 3, CompletionOpcode::kReceive);
  EXPECT_EQ(answered[0].byte_count, 500u);
  EXPECT_EQ(answered[0].source_qpn, qp->qpn());
  EXPECT_TRUE(same(ud.bytes(0x8000, 500), c.bytes(0, 500)));
}

}  // namespace
}  // namespace softhca::jingzhao::test
