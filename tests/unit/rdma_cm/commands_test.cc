// Commands that Linux accepts or refuses: their order, options and sizes.
#include <gtest/gtest.h>
#include <rdma/ib_user_sa.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "rdma_cm/command_host.h"

namespace softhca::rdma_cm {
namespace {

TEST_F(RdmaCmCommands, AConnectionNeedsARoute) {
  const auto id = create(1);
  ask_to_resolve(id, kGuest, 7471);
  ASSERT_EQ(next_type(), EventType::kAddrResolved);
  rdma_ucm_connect in{};
  in.id = id;
  in.conn_param = param(0x100, "");
  EXPECT_EQ(command(RDMA_USER_CM_CMD_CONNECT, in), EINVAL);
  resolve_route(id);
  EXPECT_EQ(
      command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{.id = id, .timeout_ms = 1}),
      EINVAL);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_CONNECT, in), 0);
}

// rdma_resolve_route() of Linux. The identifier stays as it is.
TEST_F(RdmaCmCommands, ARouteIsNotResolvedInNoTime) {
  const auto id = create(1);
  ask_to_resolve(id, kGuest, 7471);
  ASSERT_EQ(next_type(), EventType::kAddrResolved);
  EXPECT_EQ(
      command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{.id = id, .timeout_ms = 0}),
      EINVAL);
  EXPECT_TRUE(is_quiet());
  resolve_route(id);
}

TEST_F(RdmaCmCommands, AnIdentifierListensOnce) {
  const auto id = create(1);
  ASSERT_EQ(bind(id, 7471), 0);
  EXPECT_EQ(listen_at(id), 0);
  EXPECT_EQ(listen_at(id, 2), EINVAL);
}

TEST_F(RdmaCmCommands, DisconnectingIsAnErrorBeforeThereIsAConnection) {
  const auto datagrams = ask_guest(2, RDMA_PS_UDP);
  EXPECT_EQ(disconnect(datagrams), 0);
  EXPECT_EQ(disconnect(listen(9, 7473)), 0) << "as Linux, whose manager has it";
  const auto id = create(3);
  EXPECT_EQ(disconnect(id), EINVAL);
  resolve_guest(id);
  EXPECT_EQ(disconnect(id), EINVAL);
  connect(id, "");
  EXPECT_EQ(disconnect(id), 0);
  work();
  EXPECT_EQ(count(cm_attribute::DREQ), 0u) << "and nothing is said";
}

TEST_F(RdmaCmCommands, EventsOfAQpAreTakenInTheRightState) {
  constexpr std::uint32_t kEstablished = 4, kPathMigrated = 6;
  EXPECT_EQ(notify(create(1), kEstablished), EINVAL);
  const auto server = be_asked_by_guest();
  EXPECT_EQ(notify(server, kEstablished), EINVAL);
  ASSERT_EQ(accept(server, 3, false), 0);
  EXPECT_EQ(notify(server, kPathMigrated), EINVAL);
  EXPECT_EQ(notify(server, kEstablished), 0);
  EXPECT_EQ(next_type(), EventType::kEstablished);
  EXPECT_EQ(notify(server, kEstablished), EISCONN);
  EXPECT_EQ(notify(server, kPathMigrated), 0);
  EXPECT_EQ(notify(server, 5), EINVAL);
}

// IBTA 12.6: private data is 196 bytes in REP, 148 in REJ, 136 in SIDR_REP.
TEST_F(RdmaCmCommands, PrivateDataThatAMessageHasNoRoomForAreRefused) {
  listen(1, 7471);
  auto request = ask(RDMA_PS_TCP);
  EXPECT_EQ(accept_with(request.id, 196), 0);
  EXPECT_EQ(next_type(), EventType::kConnectResponse);
  request = ask(RDMA_PS_TCP);
  EXPECT_EQ(accept_with(request.id, 197), EINVAL);
  EXPECT_EQ(next_type(), EventType::kRejected) << "as rdma_accept() of Linux";
  request = ask(RDMA_PS_TCP);
  EXPECT_EQ(reject_with(request.id, 149), EINVAL);
  EXPECT_EQ(reject_with(request.id, 1, 3), EINVAL) << "no reason of a program's";
  EXPECT_EQ(reject_with(request.id, 148), 0);
  EXPECT_EQ(next_type(), EventType::kRejected);
}

TEST_F(RdmaCmCommands, TheTypeOfServiceIsThatOfBothQps) {
  listen(1, 7471);
  const auto client = create(2);
  ASSERT_EQ(set_option(client, RDMA_OPTION_ID_TOS, std::uint8_t{0x68}), 0);
  resolve(client, 7471);
  connect(client, "");
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  ASSERT_EQ(accept(request.id, 3, false), 0);
  ASSERT_EQ(next_type(), EventType::kConnectResponse);
  const auto one = attributes_of(client, 2).ah_attr.grh;
  const auto other = attributes_of(request.id, 2).ah_attr.grh;
  EXPECT_EQ(one.traffic_class, 0x68);
  EXPECT_EQ(other.traffic_class, 0x68);
  EXPECT_NE(one.flow_label, 0u) << "of the port numbers";
  EXPECT_EQ(one.flow_label, other.flow_label);
}

// cm_ack_timeout() of Linux: twice the packet lifetime, plus the ACK delay.
TEST_F(RdmaCmCommands, TheAckTimeoutIsWhatTheProgramWantsOrTheWaysOwn) {
  EXPECT_EQ(attributes_of(connect_to_guest(), 3).timeout, 18);
  const auto id = create(5);
  EXPECT_EQ(set_option(id, RDMA_OPTION_ID_ACK_TIMEOUT, std::uint8_t{32}), 0);
  EXPECT_EQ(set_option(id, RDMA_OPTION_ID_ACK_TIMEOUT, std::uint8_t{21}), 0);
  resolve_guest(id);
  connect(id, "");
  work();
  const auto req = last(cm_attribute::REQ);
  EXPECT_EQ(body_of<spec::cm_req>(req).get(spec::cm_req::primary_ack_timeout), 21u);
  say(reply(number_in(req)));
  EXPECT_EQ(next_type(), EventType::kConnectResponse);
  EXPECT_EQ(attributes_of(id, 3).timeout, 21);
}

// cm_format_paths_from_req and cm_init_av_by_path of Linux: 0 would be no timeout at all.
TEST_F(RdmaCmCommands, TheAckTimeoutOfARequestIsAtLeastOne) {
  listen(1, 7471);
  for (const std::uint32_t asked : {0, 1, 14}) {
    say(request([&](auto body) {
      body.set(spec::cm_req::local_comm_id, kGuestsId + asked);
      body.set(spec::cm_req::primary_ack_timeout, asked);
    }));
    const auto event = next();
    ASSERT_EQ(event.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
    EXPECT_EQ(attributes_of(event.id, kToRts).timeout, asked == 0 ? 1 : asked);
  }
}

// cma_ib_init_qp_attr, and cm_init_qp_init_attr and related functions of Linux.
TEST_F(RdmaCmCommands, AQpIsDescribedAsTheConnectionStands) {
  enum : std::uint32_t { kReset, kInit, kRtr, kRts, kError = 6, kNone };
  constexpr std::uint32_t kWithoutConnection = 0x39;
  const auto asked = [&](std::uint32_t id, std::uint32_t state) {
    ib_uverbs_qp_attr out{};
    const auto wrong = command(
        RDMA_USER_CM_CMD_INIT_QP_ATTR,
        rdma_ucm_init_qp_attr{
            .response = reinterpret_cast<std::uint64_t>(&out), .id = id, .qp_state = state});
    return std::pair(wrong, out.qp_attr_mask);
  };
  const auto id = create(1);
  EXPECT_EQ(asked(id, kInit).first, EINVAL) << "it has no device";
  resolve_guest(id);
  for (const auto state : {kReset, kInit, kRtr, kRts, kError}) {
    EXPECT_EQ(asked(id, state), std::pair(0, kWithoutConnection)) << state;
  }
  EXPECT_EQ(asked(id, kNone).first, EINVAL) << "there is no such state";
  connect(id, "");
  EXPECT_EQ(asked(id, kInit), std::pair(0, kWithoutConnection));
  EXPECT_EQ(attributes_of(id, kInit).qp_access_flags, 14u) << "it answers reads";
  for (const auto state : {kReset, kRtr, kRts, kError}) {
    EXPECT_EQ(asked(id, state).first, EINVAL) << state << ", without an answer";
  }
  work();
  say(reply(number_in(last(cm_attribute::REQ))));
  ASSERT_EQ(next_type(), EventType::kConnectResponse);
  for (const auto state : {kInit, kRtr, kRts}) EXPECT_EQ(asked(id, state).first, 0) << state;
  const auto listener = listen(2, 7472);
  EXPECT_EQ(asked(listener, kInit).first, EINVAL) << "a listener has no QP";
  const auto datagrams = ask_guest(3, RDMA_PS_UDP);
  EXPECT_EQ(asked(datagrams, kRts), std::pair(0, std::uint32_t{0x71}));
}

// cma_resolve_iboe_route: the MTU of the path is that of the interface, here at most the guest's.
TEST_F(RdmaCmCommands, ThePathFitsTheInterface) {
  const auto path_mtu = [&](std::uint64_t uid) {
    (void)ask_guest(uid);
    return body_of<spec::cm_req>(last(cm_attribute::REQ)).get(spec::cm_req::path_mtu);
  };
  program_.interface_mtu = 65536;
  EXPECT_EQ(path_mtu(1), 3u);
  program_.interface_mtu = 700;
  EXPECT_EQ(path_mtu(2), 2u);
}

TEST_F(RdmaCmCommands, OptionsAreTakenAsLinuxTakesThem) {
  const auto id = create(1);
  const auto set = [&](std::uint32_t level, std::uint32_t name, std::uint64_t at,
                       std::uint32_t size) {
    rdma_ucm_set_option in{};
    in.optval = at;
    in.id = id;
    in.level = level;
    in.optname = name;
    in.optlen = size;
    return command(RDMA_USER_CM_CMD_SET_OPTION, in);
  };
  const std::array<std::byte, 4096> bytes{};
  const auto at = reinterpret_cast<std::uint64_t>(bytes.data());
  for (const std::uint32_t size : {0, 2, 4, 4096, 5 << 20}) {
    EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, at, size), EINVAL) << size;
  }
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 0, 1), EFAULT);
  EXPECT_EQ(set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, at, 1), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_ID, 77, at, 1), ENOSYS);
  EXPECT_EQ(set(RDMA_OPTION_ID, 77, at, 4096), ENOSYS) << "whatever its size";
  EXPECT_EQ(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, at, 7), EINVAL);
  EXPECT_EQ(set(RDMA_OPTION_IB, 77, at, 7), ENOSYS);
  EXPECT_EQ(set(2, 0, at, 1), ENOSYS);
  ib_path_rec_data path{};
  path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  const auto path_at = reinterpret_cast<std::uint64_t>(&path);
  EXPECT_EQ(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path_at, sizeof path), EINVAL);
  ask_to_resolve(id, kGuest, 7471);
  ASSERT_EQ(next_type(), EventType::kAddrResolved);
  EXPECT_EQ(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path_at, sizeof path), 0);
  EXPECT_EQ(next_type(), EventType::kRouteResolved);
  const auto datagrams = create(2, RDMA_PS_UDP);
  EXPECT_EQ(set_option(datagrams, RDMA_OPTION_ID_ACK_TIMEOUT, std::uint8_t{14}), EINVAL);
}

// rdma_set_ib_path: the packets of the connection have the attributes of that path.
TEST_F(RdmaCmCommands, APathOfTheProgramIsTheOneOfTheConnection) {
  constexpr std::size_t kFlowLabel = 44, kTrafficClass = 48, kMtu = 54, kLifetime = 56;
  const auto id = create(1);
  ask_to_resolve(id, kGuest, 7471);
  ASSERT_EQ(next_type(), EventType::kAddrResolved);
  std::array<ib_path_rec_data, 2> paths{};
  paths[1].flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  std::array<std::uint8_t, sizeof paths[1].path_rec> record{};
  record[kFlowLabel + 1] = 0xab;  // of bits 27 to 8 of four bytes
  record[kFlowLabel + 2] = 0xcd;
  record[kTrafficClass] = 0x68;
  record[kMtu] = 0x80 | 2;
  record[kLifetime] = 0x80 | 18;
  std::memcpy(paths[1].path_rec, record.data(), record.size());
  rdma_ucm_set_option in{};
  in.optval = reinterpret_cast<std::uint64_t>(paths.data());
  in.id = id;
  in.level = RDMA_OPTION_IB;
  in.optname = RDMA_OPTION_IB_PATH;
  in.optlen = sizeof paths;
  ASSERT_EQ(command(RDMA_USER_CM_CMD_SET_OPTION, in), 0);
  EXPECT_EQ(next_type(), EventType::kRouteResolved);
  connect(id, "");
  work();
  using Req = spec::cm_req;
  const auto req = body_of<Req>(last(cm_attribute::REQ));
  EXPECT_EQ(req.get(Req::path_mtu), 2u);
  EXPECT_EQ(req.get(Req::primary_flow_label), 0xabcdu);
  EXPECT_EQ(req.get(Req::primary_traffic_class), 0x68u);
  EXPECT_EQ(req.get(Req::primary_ack_timeout), 19u);
}

TEST_F(RdmaCmCommands, AnEventThatCannotBeWrittenStays) {
  const auto id = create(1);
  ask_to_resolve(id, kGuest, 7471);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{.response = 0}), EFAULT);
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  EXPECT_EQ(destroy(id), 1u);
}

// ucma_create_id of Linux.
TEST_F(RdmaCmCommands, AnIdentifierThatIsNotReportedToTheProgramIsNone) {
  const auto before = create(1);
  rdma_ucm_create_id in{};
  in.ps = RDMA_PS_TCP;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_CREATE_ID, in), EFAULT);
  EXPECT_EQ(listen_at(before + 1), ENOENT);
}

// ucma of Linux: a librdmacm from before rdma_ucm_ece has shorter structures.
TEST_F(RdmaCmCommands, AnAnswerIsNoLongerThanItsBuffer) {
  constexpr std::uint16_t kOld = sizeof(rdma_ucm_event_resp) - 12;
  constexpr std::uint64_t kGuard = 0x1122'3344'5566'7788;
  const auto id = create(1);
  ask_to_resolve(id, kGuest, 7471);
  struct {
    std::byte event[kOld];
    alignas(4) std::byte guard[sizeof kGuard];
  } old{};
  static_assert(sizeof old == kOld + sizeof kGuard);
  std::memcpy(old.guard, &kGuard, sizeof kGuard);
  const rdma_ucm_get_event in{.response = reinterpret_cast<std::uint64_t>(&old)};
  room_ = kOld - 1;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_GET_EVENT, in), ENOSPC);
  room_ = kOld;
  EXPECT_EQ(command(RDMA_USER_CM_CMD_GET_EVENT, in), 0);
  EXPECT_EQ(std::memcmp(old.guard, &kGuard, sizeof kGuard), 0);

  rdma_ucm_query_addr_resp addresses{};
  const auto query = [&](std::uint32_t option) {
    return command(
        RDMA_USER_CM_CMD_QUERY,
        rdma_ucm_query{
            .response = reinterpret_cast<std::uint64_t>(&addresses), .id = id, .option = option});
  };
  room_ = offsetof(rdma_ucm_query_addr_resp, ibdev_index);
  EXPECT_EQ(query(RDMA_USER_CM_QUERY_ADDR), 0);
  EXPECT_EQ(addresses.port_num, 1);
  EXPECT_EQ(addresses.ibdev_index, 0u);
  --room_;
  EXPECT_EQ(query(RDMA_USER_CM_QUERY_ADDR), ENOSPC);
  EXPECT_EQ(query(RDMA_USER_CM_QUERY_PATH), 0);
}

}  // namespace
}  // namespace softhca::rdma_cm
