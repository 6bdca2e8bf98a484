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

/// A ConnectX on the switch of a world. It follows the world's clock.
class ConnectxPeer {
 public:
  explicit ConnectxPeer(World& world)
      : world_(world),
        port_(world.network().create_port("connectx")),
        device_({.mac = wire::MacAddress{mac().bytes},
                 .node_guid = 0x025fca0000000009,
                 .clock = [&world] { return world.now(); }},
                *port_),
        host_(device_, {.progress = [this] { progress(); },
                        .clock = [&world] { return world.now(); },
                        .on_interrupt = {}}),
        hca(must(cx::Hca::open(host_))) {
    must(hca->set_roce_address(0, {.gid = gid(), .mac = mac()}));
    pd = must(cx::ProtectionDomain::create(*hca));
    key = must(cx::MemoryKey::register_memory(
        *pd, memory, {.remote_read = true, .remote_write = true, .remote_atomic = true}));
    cq = must(cx::CompletionQueue::create(*hca));
    qp = must(cx::QueuePair::create(*pd, {.send_cq = *cq, .receive_cq = *cq}));
  }

  static driver::Mac mac() {
    driver::Mac mac;
    mac.bytes = {std::byte{2}, {}, {}, {}, {}, std::byte{9}};
    return mac;
  }
  static constexpr std::uint32_t kIpv4 = 0xC0A80A09;
  static driver::Gid gid() { return driver::Gid::from_ipv4(192, 168, 10, 9); }

  void progress() {
    device_.run(world_.now());
    world_.progress();
  }
  template <class Cq>
  std::vector<Completion> wait(Cq& queue) {
    std::vector<Completion> found(1);
    for (unsigned i = 0; i != 20'000; ++i) {
      if (queue.poll(found) == 1) return found;
      progress();
    }
    return {};
  }

 private:
  World& world_;
  std::unique_ptr<fabric::Port> port_;
  softhca::connectx::Device device_;
  driver::InProcessHost host_;

 public:
  std::vector<std::byte> memory = std::vector<std::byte>(64 << 10);
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
  std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uintptr_t>(c.memory.data()) + offset;
  }
  Sge piece(std::size_t offset, std::uint32_t length) const {
    return {address(offset), length, c.key->key()};
  }
  std::span<std::byte> bytes(std::size_t offset, std::size_t length) {
    return std::span(c.memory).subspan(offset, length);
  }
  World world;
  ConnectxPeer c;
  std::optional<Side> j;
};

TEST_F(JingzhaoAndConnectx, SendsGoBothWays) {
  const auto from = j->piece(0, 9000), to = piece(0x8000, 0x4000);
  ASSERT_EQ(c.qp->post_receive({.id = 1, .pieces = {&to, 1}}), PostStatus::kOk);
  ASSERT_EQ(j->qp->post_send({.id = 2, .pieces = {&from, 1}}), PostStatus::kOk);
  expect_success(c.wait(*c.cq), 1, CompletionOpcode::kReceive);
  expect_success(c.wait(*j->send_cq), 2, CompletionOpcode::kSend);
  EXPECT_TRUE(same(j->bytes(0, 9000), bytes(0x8000, 9000)));
  j->receive(3, 0x8000, 0x4000);
  const auto back = piece(0, 9000);
  ASSERT_EQ(c.qp->post_send({.id = 4, .pieces = {&back, 1}}), PostStatus::kOk);
  expect_success(c.wait(*j->receive_cq), 3, CompletionOpcode::kReceive);
  expect_success(c.wait(*c.cq), 4, CompletionOpcode::kSend);
  EXPECT_TRUE(same(j->bytes(0x8000, 9000), bytes(0, 9000)));
}

TEST_F(JingzhaoAndConnectx, WritesAndReadsGoBothWays) {
  for (const auto opcode : {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    const auto mine = j->piece(0, 9000);
    ASSERT_EQ(j->qp->post_send({.id = 1,
                                .opcode = opcode,
                                .pieces = {&mine, 1},
                                .remote_address = address(0x4000),
                                .rkey = c.key->key()}),
              PostStatus::kOk);
    ASSERT_EQ(c.wait(*j->send_cq).size(), 1u);
    EXPECT_TRUE(same(j->bytes(0, 9000), bytes(0x4000, 9000)));
    fill(c.memory, 5);
    const auto theirs = piece(0, 9000);
    ASSERT_EQ(c.qp->post_send({.id = 1,
                               .opcode = opcode,
                               .pieces = {&theirs, 1},
                               .remote_address = j->address(0x4000),
                               .rkey = j->key->key()}),
              PostStatus::kOk);
    ASSERT_EQ(c.wait(*c.cq).size(), 1u);
    EXPECT_TRUE(same(j->bytes(0x4000, 9000), bytes(0, 9000)));
  }
}

TEST_F(JingzhaoAndConnectx, AtomicsCountOnTheOtherSide) {
  const std::uint64_t before = 41;
  std::memcpy(bytes(0x100, 8).data(), &before, 8);
  const auto mine = j->piece(0, 8);
  ASSERT_EQ(j->qp->post_send({.id = 1,
                              .opcode = SendOpcode::kFetchAdd,
                              .pieces = {&mine, 1},
                              .remote_address = address(0x100),
                              .rkey = c.key->key(),
                              .swap_or_add = 1}),
            PostStatus::kOk);
  expect_success(c.wait(*j->send_cq), 1, CompletionOpcode::kFetchAdd);
  std::uint64_t old, now;
  std::memcpy(&old, j->bytes(0, 8).data(), 8);
  std::memcpy(&now, bytes(0x100, 8).data(), 8);
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
  const auto from = ud.piece(0, 500), to = piece(0x8000, 0x1000);
  ASSERT_EQ(qp->post_receive({.id = 1, .pieces = {&to, 1}}), PostStatus::kOk);
  ASSERT_EQ(
      ud.qp->post_send({.id = 2, .pieces = {&from, 1}},
                       {.to = {c.mac(), ConnectxPeer::kIpv4}, .qpn = qp->qpn(), .qkey = kQkey}),
      PostStatus::kOk);
  const auto received = c.wait(*c.cq);
  expect_success(received, 1, CompletionOpcode::kReceive);
  EXPECT_EQ(received[0].byte_count, 540u);
  EXPECT_EQ(received[0].source_qpn, ud.qp->qpn());
  EXPECT_TRUE(same(ud.bytes(0, 500), bytes(0x8000 + 40, 500)));
  ud.receive(3, 0x8000, 0x1000);
  const cx::AddressVector way(
      {.gid = driver::Gid::from_ipv4(192, 168, 10, 1), .mac = world.a().address.mac});
  const auto back = piece(0, 500);
  ASSERT_EQ(qp->post_send({.id = 4,
                           .pieces = {&back, 1},
                           .address = &way.form(),
                           .remote_qpn = ud.qp->qpn(),
                           .remote_qkey = kQkey}),
            PostStatus::kOk);
  const auto answered = c.wait(*ud.receive_cq);
  expect_success(answered, 3, CompletionOpcode::kReceive);
  EXPECT_EQ(answered[0].byte_count, 500u);
  EXPECT_EQ(answered[0].source_qpn, qp->qpn());
  EXPECT_TRUE(same(ud.bytes(0x8000, 500), bytes(0, 500)));
}

}  // namespace
}  // namespace softhca::jingzhao::test
