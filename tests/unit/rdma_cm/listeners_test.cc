// Listeners, their backlogs, and requests that wait for them.
#include <gtest/gtest.h>

#include "rdma_cm/ip_service.h"
#include "rdma_cm/own_host.h"

namespace softhca::rdma_cm {
namespace {

// perftest's -R: its server ends one listener and keeps the connection. It then listens on the same
// number again, with -c UD in another port space. Its client may be faster.
TEST_F(RdmaCm, ARequestWaitsForAListenerThatComesBack) {
  for (const auto space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    const auto listener = listen(1, 7471);
    const auto [client, server] = establish(7471);
    destroy(listener);
    const auto late = create(4, static_cast<std::uint16_t>(space));
    resolve(late, 7471);
    connect(late, "");
    EXPECT_TRUE(is_quiet());
    const auto second = listen(5, 7471, static_cast<std::uint16_t>(space));
    const auto request = next();
    ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
    for (const auto id : {request.id, late, second, client, server}) destroy(id);
    now_ += 2 * Manager::kListenAgain;
    EXPECT_TRUE(is_quiet());
  }
}

TEST_F(RdmaCm, ARequestDoesNotWaitForever) {
  const auto listener = listen(1, 7471);
  establish(7471);
  destroy(listener);
  const auto late = create(4);
  resolve(late, 7471);
  connect(late, "");
  EXPECT_TRUE(is_quiet());
  now_ += Manager::kListenAgain;
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kRejected));
  EXPECT_EQ(event.status, 8u);
}

TEST_F(RdmaCm, AListenerThatHasGoneIsNoSuchService) {
  destroy(listen(1, 7471));
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kRejected));
  EXPECT_EQ(event.status, 8u);
}

TEST_F(RdmaCm, WithoutAListenerThereIsNoSuchService) {
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kRejected));
  EXPECT_EQ(event.status, 8u);
}

// kernel interface 8.4: the event comes when the network has answered, or at the timeout.
TEST_F(RdmaCm, AListenerThatIsDestroyedRejectsWaitingRequests) {
  const auto listener = listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  work();
  EXPECT_EQ(destroy(listener), 0u) << "the program has read no event";
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kRejected));
  EXPECT_EQ(event.status, 28u);
}

// ucma of Linux: a request beyond the backlog is dropped, and its sender retries.
TEST_F(RdmaCm, NoMoreRequestsWaitThanTheProgramWants) {
  const auto listener = create(1);
  ASSERT_EQ(bind(listener, 7471), 0);
  ASSERT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = listener, .backlog = 2}), 0);
  for (std::uint64_t uid = 2; uid != 5; ++uid) {
    const auto client = create(uid);
    resolve(client, 7471);
    connect(client, "");
  }
  work();
  EXPECT_EQ(next_type(), EventType::kConnectRequest);
  EXPECT_EQ(next_type(), EventType::kConnectRequest);
  rdma_ucm_event_resp none{};
  work();
  EXPECT_EQ(get_event(none), EAGAIN) << "two were to wait";
  now_ += std::chrono::seconds(6);
  EXPECT_EQ(next_type(), EventType::kConnectRequest) << "those were read, and it asks again";
}

TEST_F(RdmaCm, NoMoreDatagramRequestsWaitThanTheProgramWants) {
  const auto listener = create(1, RDMA_PS_UDP);
  ASSERT_EQ(bind(listener, 7471), 0);
  ASSERT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = listener, .backlog = 1}), 0);
  for (std::uint64_t uid = 2; uid != 4; ++uid) {
    const auto client = create(uid, RDMA_PS_UDP);
    resolve(client, 7471);
    connect(client, "");
  }
  work();
  EXPECT_EQ(next_type(), EventType::kConnectRequest);
  const auto refused = next();
  EXPECT_EQ(refused.event, static_cast<std::uint32_t>(EventType::kUnreachable));
  EXPECT_EQ(static_cast<std::int32_t>(refused.status), 2);
}

// Programs that share an address need their listeners to be known outside the process.
TEST_F(RdmaCm, EachListenerIsRegisteredUntilItEnds) {
  using Family = ListenerService::Family;
  const auto of_address = listen(1, 7471);
  const auto of_all = create(2), of_ipv4 = create(3);
  ASSERT_EQ(bind(of_all, 7472, {}), 0);
  ASSERT_EQ(bind(of_ipv4, 7473, driver::Gid::from_ipv4(0, 0, 0, 0)), 0);
  for (const auto id : {of_all, of_ipv4}) {
    EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = 1}), 0);
  }
  ASSERT_EQ(listened_.size(), 3u);
  EXPECT_EQ(listened_[0].service, service_of(RDMA_PS_TCP, 7471));
  EXPECT_EQ(listened_[0].port, 0u);
  EXPECT_EQ(listened_[0].address, kOwn);
  EXPECT_EQ(listened_[1].service, service_of(RDMA_PS_TCP, 7472));
  EXPECT_EQ(listened_[1].port, std::nullopt);
  EXPECT_EQ(listened_[1].family, Family::kBoth);
  EXPECT_EQ(listened_[2].family, Family::kIpv4);
  destroy(create(4));
  EXPECT_TRUE(unlistened_.empty()) << "it did not listen";
  destroy(of_address);
  destroy(of_ipv4);
  ASSERT_EQ(unlistened_.size(), 2u);
  EXPECT_EQ(unlistened_[0].service, service_of(RDMA_PS_TCP, 7471));
  EXPECT_EQ(unlistened_[0].address, kOwn);
  EXPECT_EQ(unlistened_[1].family, Family::kIpv4);
}

TEST_F(RdmaCm, AListenerThatIsRefusedListensNot) {
  const auto id = create(1);
  ASSERT_EQ(bind(id, 7471), 0);
  listens_refused_ = true;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = 1}), ENOMEM);
  listens_refused_ = false;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = 1}), 0);
  EXPECT_EQ(listened_.size(), 1u);
}

}  // namespace
}  // namespace softhca::rdma_cm
