// How connections end: a program disconnects, or a peer is gone.
#include <gtest/gtest.h>

#include "rdma_cm/guest_on_wire.h"

namespace softhca::rdma_cm {
namespace {

using std::chrono::milliseconds;

// IBTA 12.6.10: DREP is sent when the program disconnects.
TEST_F(RdmaCmWithGuest, ADisconnectIsAnsweredWhenTheProgramDisconnects) {
  for (const bool by_destroying : {false, true}) {
    const auto client = connect_to_guest();
    const auto drep_before = count(cm_attribute::DREP);
    const auto req = body_of<spec::cm_req>(last(cm_attribute::REQ));
    const auto disconnect_of = [&](std::uint32_t qpn) {
      return message<spec::cm_dreq>(cm_attribute::DREQ, kGuestsId,
                                    req.get(spec::cm_req::local_comm_id),
                                    [&](auto body) { body.set(spec::cm_dreq::remote_qpn, qpn); });
    };
    say(disconnect_of(0x101));
    EXPECT_TRUE(is_quiet()) << "another QP";
    say(disconnect_of(0x100));
    EXPECT_EQ(next_type(), EventType::kDisconnected);
    say(disconnect_of(0x100));
    EXPECT_EQ(count(cm_attribute::DREP), drep_before);
    if (by_destroying) {
      destroy(client);
      work();
      EXPECT_EQ(count(cm_attribute::DREP), drep_before + 1);
      say(disconnect_of(0x100));
      EXPECT_EQ(count(cm_attribute::DREP), drep_before + 2) << "as if it had been answered";
      continue;
    }
    EXPECT_EQ(disconnect(client), 0);
    work();
    EXPECT_EQ(count(cm_attribute::DREP), drep_before + 1);
    say(disconnect_of(0x100));
    EXPECT_EQ(count(cm_attribute::DREP), drep_before + 2) << "the first was lost";
    now_ += milliseconds(1024);
    EXPECT_EQ(next_type(), EventType::kTimeWaitExit);
    destroy(client);
  }
}

TEST_F(RdmaCmWithGuest, ADisconnectThatIsNotAnsweredEnds) {
  const auto client = connect_to_guest();
  EXPECT_EQ(disconnect(client), 0);
  EXPECT_EQ(disconnect(client), 0) << "once more";
  for (unsigned times = 0; times != 16; ++times) {
    EXPECT_TRUE(is_quiet());
    now_ += milliseconds(4608 * 9 / 8 + 1);
  }
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kDisconnected));
  EXPECT_EQ(status_of(event), -ETIMEDOUT);
  EXPECT_EQ(count(cm_attribute::DREQ), 16u);
}

TEST_F(RdmaCm, BothEndsMayDisconnectInOneMoment) {
  listen(1, 7471);
  const auto [client, server] = establish(7471);
  EXPECT_EQ(disconnect(client), 0);
  EXPECT_EQ(disconnect(server), 0);
  EXPECT_EQ(next_type(), EventType::kDisconnected);
  EXPECT_EQ(next_type(), EventType::kDisconnected);
  EXPECT_TRUE(is_quiet());
}

// If a peer is killed on hardware, its kernel reports it. Here each peer is polled once a second
// for all its connections.
TEST_F(RdmaCm, APeerIsLookedForOnceASecond) {
  const auto listener = create(1);
  ASSERT_EQ(bind(listener, 7471), 0);
  ASSERT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = listener, .backlog = 9}), 0);
  for (int i = 0; i != 5; ++i) establish(7471);
  now_ += std::chrono::seconds(1);
  manager_->tick(now_);
  const auto before = looked_for_gone_;
  for (int i = 0; i != 100; ++i) manager_->tick(now_);
  EXPECT_EQ(looked_for_gone_, before);
  now_ += std::chrono::seconds(1);
  manager_->tick(now_);
  EXPECT_EQ(looked_for_gone_, before + 1);
}

// The address has other processes, so only the number of the connection shows it.
TEST_F(RdmaCmWithGuest, APeerWhoseBlockIsGoneEnds) {
  (void)connect_to_guest();
  gone_block_ = (kGuestsId >> 24) + 1;
  now_ += std::chrono::seconds(1);
  EXPECT_TRUE(is_quiet());
  gone_block_ = kGuestsId >> 24;
  now_ += std::chrono::seconds(1);
  work();
  EXPECT_EQ(next_type(), EventType::kDisconnected);
}

TEST_F(RdmaCmWithGuest, APeerThatIsGoneEndsWhateverWasBegun) {
  const auto looks = [this] { now_ += std::chrono::seconds(1), work(); };
  const auto server = be_asked_by_guest();
  const auto waits = ask_guest(5);
  peer_is_gone_ = true;
  looks();
  EXPECT_EQ(accept(server, 3, false), EINVAL);
  EXPECT_EQ(next_type(), EventType::kRejected);
  peer_is_gone_ = false;
  const auto client = connect_to_guest();
  EXPECT_EQ(disconnect(client), 0);
  peer_is_gone_ = true;
  looks();
  EXPECT_EQ(next_type(), EventType::kDisconnected);
  ask_guest(9, RDMA_PS_UDP);
  looks();
  EXPECT_EQ(next_type(), EventType::kUnreachable);
  destroy(waits);
}

// The kernel of a killed process reports it. Without one, the peers must find out.
TEST_F(RdmaCm, APeerThatIsGoneHasDisconnected) {
  listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto request = next();
  ASSERT_EQ(accept(request.id, 3, false), 0);
  ASSERT_EQ(next_type(), EventType::kConnectResponse);
  ASSERT_EQ(accept(client, 2, true), 0);
  ASSERT_EQ(next_type(), EventType::kEstablished);
  peer_is_gone_ = true;
  rdma_ucm_event_resp none{};
  manager_->tick(now_);
  EXPECT_EQ(get_event(none), EAGAIN) << "it is looked for now and then";
  now_ += std::chrono::seconds(1);
  manager_->tick(now_);
  EXPECT_EQ(next_type(), EventType::kDisconnected);
  EXPECT_EQ(next_type(), EventType::kDisconnected) << "both ends are here";
  EXPECT_EQ(command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{.id = client}), 0);
  now_ += std::chrono::seconds(1);
  manager_->tick(now_);
  EXPECT_EQ(get_event(none), EAGAIN) << "once";
}

}  // namespace
}  // namespace softhca::rdma_cm
