// Identifiers and the communication manager.
#include "rdma_cm/manager.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <utility>

#include "rdma_cm/own_host.h"

namespace softhca::rdma_cm {
namespace {

TEST_F(RdmaCm, MalformedCommandsAreRefused) {
  EXPECT_EQ(command(99, std::uint64_t{0}), EINVAL);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_GET_OPTION, std::uint64_t{0}), ENOSYS);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_BIND, std::uint64_t{0}), EINVAL) << "without an address";
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = 7, .backlog = 1}), ENOENT);
  rdma_ucm_event_resp event;
  EXPECT_EQ(get_event(event), EAGAIN);
}

TEST_F(RdmaCm, AConnectionIsMadeAndEnds) {
  const auto listener = listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "hello");

  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  EXPECT_EQ(request.uid, 1u) << "whose program gives the new one a name when it accepts";
  EXPECT_STREQ(reinterpret_cast<const char*>(request.param.conn.private_data), "hello");
  EXPECT_EQ(request.param.conn.responder_resources, 5) << "what the other begins, we respond to";
  EXPECT_EQ(request.param.conn.initiator_depth, 3);
  ASSERT_EQ(accept(request.id, 3, false), 0);

  const auto response = next();
  ASSERT_EQ(response.event, static_cast<std::uint32_t>(EventType::kConnectResponse));
  EXPECT_EQ(response.uid, 2u);
  EXPECT_EQ(response.param.conn.qp_num, 0x200u);
  EXPECT_STREQ(reinterpret_cast<const char*>(response.param.conn.private_data), "yes");
  ASSERT_EQ(accept(client, 2, true), 0);
  const auto established = next();
  EXPECT_EQ(established.event, static_cast<std::uint32_t>(EventType::kEstablished));
  EXPECT_EQ(established.uid, 3u);

  EXPECT_EQ(disconnect(client), 0);
  EXPECT_EQ(next().uid, 3u) << "the other end is told first";
  rdma_ucm_event_resp none{};
  work();
  EXPECT_EQ(get_event(none), EAGAIN) << "its program has not disconnected yet";
  EXPECT_EQ(disconnect(request.id), 0);
  EXPECT_EQ(next().uid, 2u);
  work();
  EXPECT_EQ(get_event(none), EAGAIN);
  now_ += std::chrono::milliseconds(1024);
  EXPECT_EQ(next_type(), EventType::kTimeWaitExit) << "IBTA 12.9.8.4";
  EXPECT_EQ(next_type(), EventType::kTimeWaitExit);
  now_ += std::chrono::seconds(10);
  work();
  EXPECT_EQ(get_event(none), EAGAIN) << "once";
  EXPECT_EQ(destroy(client), 5u) << "events that its program has read";
  EXPECT_EQ(destroy(request.id), 3u);
  EXPECT_EQ(destroy(listener), 1u);
  EXPECT_TRUE(numbers_.used.empty());
}

// ucma_migrate_id(): the events of an identifier move, the identifiers of its requests do not.
TEST_F(RdmaCm, AnUnreadRequestIsReadWhereItsListenerIsAndAcceptedWhereItArrived) {
  const auto listener = listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "hello");
  work();

  named_ = std::exchange(channel_, *manager_->open());
  rdma_ucm_migrate_resp out{};
  rdma_ucm_migrate_id in{};
  in.response = reinterpret_cast<std::uint64_t>(&out);
  in.id = listener;
  ASSERT_EQ(command(RDMA_USER_CM_CMD_MIGRATE_ID, in), 0);
  EXPECT_EQ(out.events_reported, 0u);
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  EXPECT_EQ(accept(request.id, 3, false), EINVAL);

  channel_ = named_;
  EXPECT_EQ(accept(request.id, 3, false), 0);
  EXPECT_EQ(next_type(), EventType::kConnectResponse) << "the client stays where it was";
}

// ucma_get_ctx(), ucma_migrate_id() and ucma_leave_multicast(): EINVAL for an identifier of another
// channel, ENOENT for an unknown one.
TEST_F(RdmaCm, AnIdentifierOfAnotherChannelIsNone) {
  const auto id = create(1, RDMA_PS_UDP);
  ASSERT_EQ(bind(id, 0), 0);
  rdma_ucm_create_id_resp made{};
  rdma_ucm_join_mcast join{};
  join.response = reinterpret_cast<std::uint64_t>(&made);
  join.id = id;
  join.addr_size = sizeof(sockaddr_in);
  const auto group = SocketAddress::of(driver::Gid::from_ipv4(239, 1, 2, 3), 0);
  std::memcpy(&join.addr, &group.storage, sizeof join.addr);
  ASSERT_EQ(command(RDMA_USER_CM_CMD_JOIN_MCAST, join), 0);

  auto* const own = std::exchange(channel_, *manager_->open());
  rdma_ucm_destroy_id_resp left{};
  rdma_ucm_destroy_id leave{
      .response = reinterpret_cast<std::uint64_t>(&left), .id = made.id, .reserved = 0};
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = 1}), EINVAL);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), EINVAL);
  rdma_ucm_migrate_resp out{};
  rdma_ucm_migrate_id in{};
  in.response = reinterpret_cast<std::uint64_t>(&out);
  in.id = id;
  in.fd = 0xffffffff;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_MIGRATE_ID, in), ENOENT) << "no descriptor";
  named_ = channel_;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_MIGRATE_ID, in), EINVAL) << "it is on another channel";
  in.id = 0x7fffffff;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_MIGRATE_ID, in), ENOENT);
  channel_ = own;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), 0);
}

// The checks of ucma_write() and of its commands.
TEST_F(RdmaCm, SizesOfCommandsAreCheckedAsLinuxDoes) {
  constexpr std::size_t kHeader = sizeof(rdma_ucm_cmd_hdr);
  std::array<std::byte, kHeader + sizeof(rdma_ucm_accept)> bytes{};
  const auto say = [&](rdma_ucm_cmd_hdr header, std::size_t size) {
    std::memcpy(bytes.data(), &header, kHeader);
    return manager_->serve(
        *channel_, reinterpret_cast<std::uint64_t>(bytes.data()), size, [](int) { return nullptr; },
        now_);
  };
  rdma_ucm_create_id_resp out{};
  rdma_ucm_create_id in{};
  in.uid = 1;
  in.response = reinterpret_cast<std::uint64_t>(&out);
  in.ps = RDMA_PS_TCP;
  std::memcpy(bytes.data() + kHeader, &in, sizeof in);
  constexpr auto kCreate = RDMA_USER_CM_CMD_CREATE_ID;
  constexpr auto kConnect = RDMA_USER_CM_CMD_CONNECT;
  EXPECT_EQ(say({.cmd = kCreate, .in = 24, .out = 4}, 7), EINVAL) << "less than a header";
  EXPECT_EQ(say({.cmd = kCreate, .in = 24, .out = 4}, 31), EINVAL) << "less than it promises";
  EXPECT_EQ(say({.cmd = 1000, .in = 24, .out = 4}, 31), EINVAL);
  EXPECT_EQ(say({.cmd = RDMA_USER_CM_CMD_GET_OPTION, .in = 24, .out = 4}, 31), EINVAL);
  EXPECT_EQ(say({.cmd = kCreate, .in = 24, .out = 3}, 32), ENOSPC);
  EXPECT_EQ(say({.cmd = kCreate, .in = 0, .out = 4}, 32), 0) << "Linux does not ask the header";
  EXPECT_EQ(say({.cmd = kCreate, .in = 40, .out = 4}, bytes.size()), 0) << "nor for more";
  rdma_ucm_connect connect{};
  connect.conn_param.valid = 1;
  std::memcpy(bytes.data() + kHeader, &connect, sizeof connect);
  EXPECT_EQ(say({.cmd = kConnect, .in = 279, .out = 0}, bytes.size()), EINVAL);
  EXPECT_EQ(say({.cmd = kConnect, .in = 280, .out = 0}, bytes.size()), ENOENT)
      << "a librdmacm from before rdma_ucm_ece";
  EXPECT_EQ(say({.cmd = RDMA_USER_CM_CMD_ACCEPT, .in = 287, .out = 0}, bytes.size()), EINVAL);
  const rdma_ucm_query query{
      .response = in.response, .id = out.id, .option = RDMA_USER_CM_QUERY_PATH};
  std::memcpy(bytes.data() + kHeader, &query, sizeof query);
  EXPECT_EQ(say({.cmd = RDMA_USER_CM_CMD_QUERY, .in = 16, .out = 7}, 24), ENOSPC);
  EXPECT_EQ(manager_->serve(*channel_, 0, kHeader, [](int) { return nullptr; }, now_), EFAULT);
}

// rdma_set_local_ece(3): ib_cm carries the options of both ends, in REQ and REP.
TEST_F(RdmaCm, OptionsOfTheMakersAreCarriedBothWays) {
  listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  rdma_ucm_connect ask{};
  ask.id = client;
  ask.conn_param = param(0x100, "");
  ask.ece = {.vendor_id = 0x123456, .attr_mod = 0x89abcdef};
  ASSERT_EQ(command(RDMA_USER_CM_CMD_CONNECT, ask), 0);
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  EXPECT_EQ(request.ece.vendor_id, 0x123456u);
  EXPECT_EQ(request.ece.attr_mod, 0x89abcdefu);
  rdma_ucm_accept give{};
  give.uid = 3;
  give.id = request.id;
  give.conn_param = param(0x200, "");
  give.ece = {.vendor_id = 0x654321, .attr_mod = 7};
  ASSERT_EQ(command(RDMA_USER_CM_CMD_ACCEPT, give), 0);
  const auto response = next();
  ASSERT_EQ(response.event, static_cast<std::uint32_t>(EventType::kConnectResponse));
  EXPECT_EQ(response.ece.vendor_id, 0x654321u);
  EXPECT_EQ(response.ece.attr_mod, 7u);
  EXPECT_EQ(response.param.conn.qp_num, 0x200u) << "beside the maker's number";
}

// IBTA 12.6.6: a host that waits for its program sends MRA, and its peer does not give up the
// request.
TEST_F(RdmaCm, AProgramMayTakeItsTimeToAnswer) {
  listen(1, 7471);
  const auto client = create(2);
  resolve(client, 7471);
  connect(client, "");
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  for (int i = 0; i != 90; ++i) {
    now_ += std::chrono::seconds(1);
    rdma_ucm_event_resp none{};
    for (int turns = 0; turns != 20; ++turns) {
      program_.device().hca().host().progress();
      program_.device().poll_events();
      manager_->tick(now_);
    }
    ASSERT_EQ(get_event(none), EAGAIN) << "after " << i << " s: " << none.event;
  }
  ASSERT_EQ(accept(request.id, 3, false), 0);
  EXPECT_EQ(next_type(), EventType::kConnectResponse);
}

// cma_iboe_set_mgid of Linux: an IPv4 group is ::ffff:a.b.c.d on RoCE v2.
TEST_F(RdmaCm, AGroupIsJoinedByItsAddressAndLeft) {
  const auto id = create(1, RDMA_PS_UDP);
  ASSERT_EQ(bind(id, 0), 0);
  rdma_ucm_create_id_resp made{};
  rdma_ucm_join_mcast in{};
  in.response = reinterpret_cast<std::uint64_t>(&made);
  in.uid = 77;
  in.id = id;
  in.addr_size = sizeof(sockaddr_in);
  const auto join = [&](std::uint8_t first) {
    const auto group = SocketAddress::of(driver::Gid::from_ipv4(first, 1, 2, 3), 0);
    std::memcpy(&in.addr, &group.storage, sizeof in.addr);
    return command(RDMA_USER_CM_CMD_JOIN_MCAST, in);
  };
  ASSERT_EQ(join(239), 0);
  const auto event = next();
  EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kMulticastJoin));
  EXPECT_EQ(event.uid, 77u);
  EXPECT_EQ(event.id, made.id);
  EXPECT_EQ(event.param.ud.qp_num, 0xffffffu);
  const auto group = driver::Gid::from_ipv4(239, 1, 2, 3);
  EXPECT_EQ(std::memcmp(event.param.ud.ah_attr.grh.dgid, group.bytes.data(), 16), 0);
  // The library waits until it has read as many events as this reports.
  rdma_ucm_destroy_id_resp left{};
  const rdma_ucm_destroy_id leave{
      .response = reinterpret_cast<std::uint64_t>(&left), .id = made.id, .reserved = 0};
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), 0);
  EXPECT_EQ(left.events_reported, 1u);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), ENOENT);
  ASSERT_EQ(join(239), 0);
  EXPECT_EQ(destroy(id), 1u) << "unread events are removed";

  const auto other = create(2, RDMA_PS_UDP);
  ASSERT_EQ(bind(other, 0), 0);
  in.id = other;
  ASSERT_EQ(join(198), 0);
  const auto joined = next();
  EXPECT_EQ(joined.event, static_cast<std::uint32_t>(EventType::kMulticastJoin))
      << "that it is no group the QP is told that is attached";
  EXPECT_EQ(joined.param.ud.qp_num, 0xffffffu);
  in.id = create(3);
  ASSERT_EQ(bind(in.id, 0), 0);
  EXPECT_EQ(join(239), EINVAL) << "it has no QP of datagrams";
}

// Linux's rdma_join_multicast(): rdma_ip2gid() of the identifier's source address.
TEST_F(RdmaCm, AGroupIsJoinedFromTheAddressThatIsBound) {
  const auto second = driver::Gid::from_ipv4(198, 18, 0, 77);
  ASSERT_TRUE(program_.device().set_gid(1, uverbs::GidEntry{.gid = second}));
  rdma_ucm_create_id_resp made{};
  rdma_ucm_join_mcast in{};
  in.response = reinterpret_cast<std::uint64_t>(&made);
  in.addr_size = sizeof(sockaddr_in);
  const auto group = SocketAddress::of(driver::Gid::from_ipv4(239, 1, 2, 3), 0);
  std::memcpy(&in.addr, &group.storage, sizeof in.addr);
  for (const auto& [own, index] : {std::pair(second, 1), std::pair(kOwn, 0)}) {
    in.id = create(1, RDMA_PS_UDP);
    ASSERT_EQ(bind(in.id, 0, own), 0);
    ASSERT_EQ(command(RDMA_USER_CM_CMD_JOIN_MCAST, in), 0);
    EXPECT_EQ(next().param.ud.ah_attr.grh.sgid_index, index);
  }
}

// rdma_write_cm_event(3), which rdma_resolve_addrinfo() of newer librdmacm also uses to signal
// itself.
TEST_F(RdmaCm, AnEventThatIsWrittenIsRead) {
  struct {
    std::uint32_t id, reserved = 0, event, status = 0;
    std::uint64_t arg = 0x1122'3344'5566'7788;
  } in;
  constexpr std::uint32_t kWriteEvent = 24;
  in.id = create(7);
  for (const auto type : {EventType::kUser, EventType::kInternal}) {
    in.event = static_cast<std::uint32_t>(type);
    in.status = 5;
    ASSERT_EQ(command(kWriteEvent, in), 0);
    const auto event = next();
    EXPECT_EQ(event.event, in.event);
    EXPECT_EQ(event.uid, 7u);
    EXPECT_EQ(event.status, 5u);
    EXPECT_EQ(std::memcmp(&event.param, &in.arg, sizeof in.arg), 0);
  }
  in.event = static_cast<std::uint32_t>(EventType::kEstablished);
  EXPECT_EQ(command(kWriteEvent, in), EINVAL) << "no event of the kernel's own";
  in.event = static_cast<std::uint32_t>(EventType::kUser);
  ++in.id;
  EXPECT_EQ(command(kWriteEvent, in), ENOENT);
}

TEST_F(RdmaCm, ADatagramServiceGivesItsQp) {
  listen(1, 7174, RDMA_PS_UDP);
  const auto client = create(2, RDMA_PS_UDP);
  resolve(client, 7174);
  connect(client, "who");
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  EXPECT_STREQ(reinterpret_cast<const char*>(request.param.ud.private_data), "who");
  ASSERT_EQ(accept(request.id, 3, false), 0);
  const auto answer = next();
  ASSERT_EQ(answer.event, static_cast<std::uint32_t>(EventType::kEstablished));
  EXPECT_EQ(answer.param.ud.qp_num, 0x200u);
  EXPECT_EQ(answer.param.ud.qkey, 0x01234567u);
}

// IBTA 12.11: a SIDR_REQ is repeated until it is answered.
TEST_F(RdmaCm, AnAnswerThatWasLostIsGivenAgain) {
  listen(1, 7174, RDMA_PS_UDP);
  const auto client = create(2, RDMA_PS_UDP);
  resolve(client, 7174);
  connect(client, "who");
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  program_.knows_macs = false;
  ASSERT_EQ(accept(request.id, 3, false), 0);
  program_.knows_macs = true;
  rdma_ucm_event_resp none{};
  EXPECT_EQ(get_event(none), EAGAIN);
  now_ += std::chrono::seconds(6);
  EXPECT_EQ(next_type(), EventType::kEstablished);
}

}  // namespace
}  // namespace softhca::rdma_cm
