// Commands that Linux accepts or refuses: their order, options and sizes.
#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_sa.h>

#include <array>
#include <utility>

#include "rdma_cm/guest_on_wire.h"

namespace softhca::rdma_cm {
namespace {

class RdmaCmCommands : public RdmaCmWithGuest {
 protected:
  /// ib_qp_state.
  enum : std::uint32_t { kToRtr = 2, kToRts = 3 };
  /// ib_qp_attr_mask: what responders and requesters have.
  enum : std::uint32_t { kTimeout = 0x200, kSends = 0x2e00, kResponds = 0x28000 };
  Errno notify(std::uint32_t id, std::uint32_t event) {
    return command(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{.id = id, .event = event});
  }
  Errno listen_at(std::uint32_t id, std::uint32_t backlog = 1) {
    return command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = id, .backlog = backlog});
  }
  Errno resolve_from(std::uint32_t id, const SocketAddress& from, const SocketAddress& to) {
    rdma_ucm_resolve_addr in{};
    in.id = id;
    in.timeout_ms = 1000;
    in.src_size = from.size();
    std::memcpy(&in.src_addr, &from.storage, sizeof in.src_addr);
    in.dst_size = to.size();
    std::memcpy(&in.dst_addr, &to.storage, sizeof in.dst_addr);
    return command(RDMA_USER_CM_CMD_RESOLVE_ADDR, in);
  }
  ib_uverbs_qp_attr attributes_of(std::uint32_t id, std::uint32_t state) {
    ib_uverbs_qp_attr out{};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_INIT_QP_ATTR,
                      rdma_ucm_init_qp_attr{.response = reinterpret_cast<std::uint64_t>(&out),
                                            .id = id,
                                            .qp_state = state}),
              0);
    return out;
  }
  std::uint32_t create_of(std::uint16_t space, std::uint8_t qp_type) {
    rdma_ucm_create_id_resp out{};
    rdma_ucm_create_id in{};
    in.uid = 1;
    in.response = reinterpret_cast<std::uint64_t>(&out);
    in.ps = space;
    in.qp_type = qp_type;
    EXPECT_EQ(command(RDMA_USER_CM_CMD_CREATE_ID, in), 0);
    return out.id;
  }
  Errno accept_with(std::uint32_t id, std::size_t bytes) {
    rdma_ucm_accept in{};
    in.uid = 3;
    in.id = id;
    in.conn_param = param(0x200, std::string(bytes, 'x'));
    return command(RDMA_USER_CM_CMD_ACCEPT, in);
  }
  Errno reject_with(std::uint32_t id, std::uint8_t bytes, std::uint8_t reason = 0) {
    rdma_ucm_reject in{};
    in.id = id;
    in.private_data_len = bytes;
    in.reason = reason;
    std::memset(in.private_data, 'x', bytes);
    return command(RDMA_USER_CM_CMD_REJECT, in);
  }
  rdma_ucm_event_resp ask(std::uint16_t space) {
    const auto client = create(20, space);
    resolve(client, 7471);
    connect(client, "");
    return next();
  }
};

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

TEST_F(RdmaCmCommands, PrivateDataThatASidrReplyHasNoRoomForAreRefused) {
  listen(1, 7471, RDMA_PS_UDP);
  auto request = ask(RDMA_PS_UDP);
  EXPECT_EQ(accept_with(request.id, 136), 0);
  EXPECT_EQ(next_type(), EventType::kEstablished);
  request = ask(RDMA_PS_UDP);
  EXPECT_EQ(accept_with(request.id, 137), EINVAL);
  auto answer = next();
  EXPECT_EQ(answer.event, static_cast<std::uint32_t>(EventType::kUnreachable));
  EXPECT_EQ(answer.status, 2u);
  request = ask(RDMA_PS_UDP);
  EXPECT_EQ(reject_with(request.id, 137), EINVAL);
  EXPECT_EQ(reject_with(request.id, 135), 0);
  answer = next();
  EXPECT_EQ(answer.event, static_cast<std::uint32_t>(EventType::kUnreachable));
  EXPECT_EQ(answer.param.ud.private_data[134], 'x');
  EXPECT_EQ(answer.param.ud.private_data[135], 0);
  EXPECT_EQ(answer.param.ud.qp_num, 0u);
  EXPECT_EQ(answer.param.ud.ah_attr.is_global, 0);
}

// cma_set_qkey() of Linux.
TEST_F(RdmaCmCommands, AQpOfDatagramsKeepsTheQkeyThatItHas) {
  const auto answered = [this](bool has_qp, std::uint32_t qkey) {
    using Rep = spec::cm_sidr_rep;
    const auto client = create(2, RDMA_PS_UDP);
    resolve_guest(client);
    if (has_qp) EXPECT_EQ(attributes_of(client, 1).qkey, kDefaultQkey);
    connect(client, "");
    work();
    Message<Rep> rep(cm_attribute::SIDR_REP, 1);
    rep.body().set(Rep::request_id, number_in(last(cm_attribute::SIDR_REQ)));
    rep.body().set(Rep::qpn, 0x300);
    rep.body().set(Rep::qkey, qkey);
    say(rep.mad());
    const auto event = next();
    const bool established = event.event == static_cast<std::uint32_t>(EventType::kEstablished);
    EXPECT_EQ(event.event, static_cast<std::uint32_t>(established ? EventType::kEstablished
                                                                  : EventType::kAddrError));
    EXPECT_EQ(static_cast<std::int32_t>(event.status), established ? 0 : -EINVAL);
    EXPECT_EQ(event.param.ud.qp_num, established ? 0x300u : 0u);
    EXPECT_EQ(event.param.ud.qkey, established ? qkey : 0u);
    return established;
  };
  EXPECT_TRUE(answered(true, kDefaultQkey));
  EXPECT_FALSE(answered(true, 0x77));
  EXPECT_TRUE(answered(false, 0x77)) << "without a QP any Q_Key will do";
  EXPECT_FALSE(answered(false, 0)) << "but there must be one";
}

// ucma_copy_conn_param() of Linux: only AF_IB addresses have Q_Keys of the program.
TEST_F(RdmaCmCommands, TheQkeyOfADatagramServiceIsNotTheProgramsChoice) {
  listen(1, 7471, RDMA_PS_UDP);
  rdma_ucm_accept in{};
  in.uid = 3;
  in.id = ask(RDMA_PS_UDP).id;
  in.conn_param = param(0x200, "");
  in.conn_param.qkey = 0x77;
  ASSERT_EQ(command(RDMA_USER_CM_CMD_ACCEPT, in), 0);
  EXPECT_EQ(next().param.ud.qkey, kDefaultQkey);
}

// rdma_bind_addr() and rdma_resolve_addr() of Linux on a host whose ports are all RoCE.
TEST_F(RdmaCmCommands, AddressesOfInfiniBandHaveNoDevice) {
  constexpr std::uint64_t kMask = 0xffff'ffff'ffff'0000;
  rdma_ucm_bind in{};
  IbAddress to{};
  to.family = kFamilyIb;
  to.service = htobe64(service_of(RDMA_PS_TCP, 0));
  to.service_mask = htobe64(kMask);
  const auto bind_ib = [&](std::uint32_t id, std::uint16_t size = sizeof(IbAddress)) {
    in.id = id;
    in.addr_size = size;
    std::memcpy(&in.addr, &to, sizeof to);
    return command(RDMA_USER_CM_CMD_BIND, in);
  };
  const auto probe = create_of(RDMA_PS_IB, IB_UVERBS_QPT_RC);
  EXPECT_EQ(bind_ib(probe, sizeof to - 1), EINVAL);
  EXPECT_EQ(bind_ib(probe), 0) << "as librdmacm asks";
  EXPECT_EQ(bind_ib(probe), EINVAL) << "it is bound";
  EXPECT_EQ(bind(probe, 7471), EINVAL);
  rdma_ucm_query_addr_resp addresses{};
  EXPECT_EQ(command(RDMA_USER_CM_CMD_QUERY,
                    rdma_ucm_query{.response = reinterpret_cast<std::uint64_t>(&addresses),
                                   .id = probe,
                                   .option = RDMA_USER_CM_QUERY_ADDR}),
            0);
  EXPECT_EQ(addresses.src_size, sizeof to);
  EXPECT_EQ(resolve_from(probe, SocketAddress{}, SocketAddress::of(kGuest, 7471)), EINVAL);
  EXPECT_EQ(bind_ib(create(2)), 0);
  EXPECT_EQ(bind_ib(create(3, RDMA_PS_UDP)), EPROTONOSUPPORT) << "the service is of another space";
  EXPECT_EQ(bind_ib(create(4, RDMA_PS_IPOIB)), EPROTONOSUPPORT);
  to.gid[0] = 0xfe;
  EXPECT_EQ(bind_ib(create(5)), ENODEV);

  SocketAddress remote;
  std::memcpy(&remote.storage, &to, sizeof to);
  const auto client = create(6);
  EXPECT_EQ(resolve_from(client, SocketAddress{}, remote), ENODEV);
  EXPECT_EQ(bind(client, 7471), EINVAL) << "as after any attempt to resolve";
  EXPECT_EQ(resolve_from(create(7), SocketAddress::of(kOwn, 0), remote), EINVAL);
  EXPECT_TRUE(is_quiet());
}

// A REQ carries a path, a SIDR REQ carries none.
TEST_F(RdmaCmCommands, ARequestOfDatagramsHasNoPath) {
  listen(1, 7471);
  listen(2, 7471, RDMA_PS_UDP);
  const auto paths = [this](std::uint32_t id) {
    std::array<std::uint32_t, 20> path{};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_QUERY,
                      rdma_ucm_query{.response = reinterpret_cast<std::uint64_t>(&path),
                                     .id = id,
                                     .option = RDMA_USER_CM_QUERY_PATH}),
              0);
    return path[0];
  };
  EXPECT_EQ(paths(ask(RDMA_PS_TCP).id), 1u);
  EXPECT_EQ(paths(ask(RDMA_PS_UDP).id), 0u);
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
  say(reply(number_in(last(cm_attribute::REQ))));
  EXPECT_EQ(next_type(), EventType::kConnectResponse);
  EXPECT_EQ(attributes_of(id, 3).timeout, 21);
}

// rdma_set_ack_timeout() of Linux.
TEST_F(RdmaCmCommands, OnlyQpsThatAwaitAcknowledgmentsHaveAnAckTimeout) {
  const auto set = [this](std::uint8_t qp_type) {
    return set_option(create_of(RDMA_PS_IB, qp_type), RDMA_OPTION_ID_ACK_TIMEOUT, std::uint8_t{18});
  };
  EXPECT_EQ(set(IB_UVERBS_QPT_RC), 0);
  EXPECT_EQ(set(IB_UVERBS_QPT_XRC_INI), 0);
  EXPECT_EQ(set(IB_UVERBS_QPT_UC), EINVAL);
  EXPECT_EQ(set(IB_UVERBS_QPT_UD), EINVAL);
  EXPECT_EQ(set(IB_UVERBS_QPT_XRC_TGT), EINVAL);
}

// ucma_get_qp_type() of Linux. rdma_create_ep() passes any type with any port space.
TEST_F(RdmaCmCommands, APortSpaceDecidesOnTheTypeOfQps) {
  const auto transport_of = [this](std::uint16_t space) {
    const auto id = create_of(space, IB_UVERBS_QPT_UC);
    resolve_guest(id);
    connect(id, "");
    work();
    const auto req = last(cm_attribute::REQ);
    say(reply(number_in(req)));
    EXPECT_EQ(next_type(), EventType::kConnectResponse);
    return std::pair(body_of<spec::cm_req>(req).get(spec::cm_req::transport),
                     attributes_of(id, kToRts).qp_attr_mask & kTimeout);
  };
  EXPECT_EQ(transport_of(RDMA_PS_IB), std::pair(kTransportUc, 0u));
  EXPECT_EQ(transport_of(RDMA_PS_TCP), std::pair(0u, std::uint32_t{kTimeout}));
  EXPECT_EQ(set_option(create_of(RDMA_PS_UDP, IB_UVERBS_QPT_RC), RDMA_OPTION_ID_ACK_TIMEOUT,
                       std::uint8_t{18}),
            EINVAL);
}

// IBTA Annex A14; cm_format_req(), cm_rep_get_qpn() and cm_init_qp_rts_attr() of Linux.
TEST_F(RdmaCmCommands, AnXrcInitiatorAsksForATarget) {
  using Req = spec::cm_req;
  const auto client = create_of(RDMA_PS_IB, IB_UVERBS_QPT_XRC_INI);
  resolve_guest(client);
  connect(client, "");
  work();
  const auto mad = last(cm_attribute::REQ);
  const auto req = body_of<Req>(mad);
  EXPECT_EQ(req.get(Req::transport), kTransportExtended);
  EXPECT_EQ(req.get(Req::extended_transport), kExtendedXrc);
  EXPECT_EQ(req.get(Req::responder_resources), 0u) << "it answers nothing";
  EXPECT_EQ(req.get(Req::initiator_depth), 5u);
  say(message<spec::cm_rep>(cm_attribute::REP, kGuestsId, number_in(mad), [](auto body) {
    body.set(spec::cm_rep::local_ee_context, kGuestsQpn);
  }));
  const auto response = next();
  ASSERT_EQ(response.event, static_cast<std::uint32_t>(EventType::kConnectResponse));
  EXPECT_EQ(response.param.conn.qp_num, kGuestsQpn);
  const auto receives = attributes_of(client, kToRtr);
  EXPECT_EQ(receives.dest_qp_num, kGuestsQpn);
  EXPECT_EQ(receives.qp_attr_mask & kResponds, 0u);
  EXPECT_EQ(attributes_of(client, kToRts).qp_attr_mask & kSends, std::uint32_t{kSends});
}

// cm_req_get_qp_type(), cm_format_rep() and cm_init_qp_rtr_attr() of Linux.
TEST_F(RdmaCmCommands, AnXrcTargetAnswersAnInitiator) {
  using Req = spec::cm_req;
  using Rep = spec::cm_rep;
  const auto listener = create_of(RDMA_PS_IB, IB_UVERBS_QPT_XRC_TGT);
  ASSERT_EQ(bind(listener, 7471), 0);
  ASSERT_EQ(listen_at(listener), 0);
  say(request([](auto body) {
    body.set(Req::service_id, service_of(RDMA_PS_IB, 7471));
    body.set(Req::transport, kTransportExtended);
    body.set(Req::extended_transport, kExtendedXrc);
  }));
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  ASSERT_EQ(accept(request.id, 3, false), 0);
  work();
  const auto mad = last(cm_attribute::REP);
  const auto rep = body_of<Rep>(mad);
  EXPECT_EQ(rep.get(Rep::local_qpn), 0u);
  EXPECT_EQ(rep.get(Rep::local_ee_context), 0x200u);
  EXPECT_EQ(rep.get(Rep::srq), 1u);
  EXPECT_EQ(rep.get(Rep::initiator_depth), 0u) << "it requests nothing";
  EXPECT_EQ(attributes_of(request.id, kToRtr).qp_attr_mask & kResponds, std::uint32_t{kResponds});
  EXPECT_EQ(attributes_of(request.id, kToRts).qp_attr_mask & kSends, std::uint32_t{kTimeout});
}

// cm_validate_req_param() and cma_ib_check_req_qp_type() of Linux.
TEST_F(RdmaCmCommands, TypesOfQpsThatDoNotFitAreRefused) {
  const auto listener = create_of(RDMA_PS_IB, IB_UVERBS_QPT_XRC_TGT);
  ASSERT_EQ(bind(listener, 7471), 0);
  ASSERT_EQ(listen_at(listener), 0);
  const auto connect_of = [this](std::uint8_t qp_type) {
    const auto client = create_of(RDMA_PS_IB, qp_type);
    resolve(client, 7471);
    rdma_ucm_connect in{};
    in.id = client;
    in.conn_param = param(0x100, "");
    return command(RDMA_USER_CM_CMD_CONNECT, in);
  };
  EXPECT_EQ(connect_of(IB_UVERBS_QPT_XRC_TGT), EINVAL) << "a target makes no requests";
  EXPECT_EQ(connect_of(0), EINVAL);
  EXPECT_EQ(connect_of(IB_UVERBS_QPT_RC), 0);
  EXPECT_EQ(next_type(), EventType::kRejected);
  destroy(listener);
  const auto any = create_of(RDMA_PS_IB, 0);
  ASSERT_EQ(bind(any, 7471), 0);
  ASSERT_EQ(listen_at(any), 0);
  EXPECT_EQ(connect_of(IB_UVERBS_QPT_UC), 0);
  const auto request = next();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  EXPECT_EQ(attributes_of(request.id, 3).qp_attr_mask & 0x200u, 0u) << "as the request, UC";
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

TEST_F(RdmaCmCommands, UnreachableAddressesAreNotResolved) {
  const auto none = SocketAddress{};
  const auto to = [](const driver::Gid& gid) { return SocketAddress::of(gid, 7471); };
  const auto id = create(1);
  EXPECT_EQ(resolve_from(id, none, to(driver::Gid::from_ipv4(255, 255, 255, 255))), ENETUNREACH);
  EXPECT_EQ(resolve_from(id, none, to(driver::Gid::from_ipv4(239, 1, 1, 1))), ENETUNREACH);
  EXPECT_EQ(resolve_from(create(2, RDMA_PS_UDP), none, to(driver::Gid::from_ipv4(239, 1, 1, 1))),
            0);
  EXPECT_EQ(next_type(), EventType::kAddrResolved) << "a group is no host, but mckey asks for it";
  EXPECT_EQ(resolve_from(id, none, to(kGuest)), 0) << "it is as it was";
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  // The address belongs to a device.
  const auto own = SocketAddress::of(kOwn, 0);
  EXPECT_EQ(resolve_from(create(4), own, to(driver::Gid::from_ipv4(239, 1, 1, 1))), 0);
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  EXPECT_EQ(resolve_from(create(5), own, to(driver::Gid::from_ipv4(255, 255, 255, 255))), 0);
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  const auto loopback = SocketAddress::of(driver::Gid::from_ipv4(127, 0, 0, 1), 0);
  EXPECT_EQ(resolve_from(create(6), loopback, to(driver::Gid::from_ipv4(239, 1, 1, 1))), ENODEV);
  driver::Gid group{};
  group.bytes[0] = std::byte{0xff};
  group.bytes[1] = std::byte{0x0e};
  EXPECT_EQ(resolve_from(create(3), none, to(group)), 0);
  const auto error = next();
  EXPECT_EQ(error.event, static_cast<std::uint32_t>(EventType::kAddrError));
  EXPECT_EQ(static_cast<std::int32_t>(error.status), -ENODEV);
}

TEST_F(RdmaCmCommands, TheSourceIsTheHostsAndOfTheSameFamily) {
  const auto to = SocketAddress::of(kOwn, 7471);
  EXPECT_EQ(resolve_from(create(1), SocketAddress::of(kGuest, 0), to), EADDRNOTAVAIL);
  driver::Gid loopback{};
  loopback.bytes[15] = std::byte{1};
  EXPECT_EQ(resolve_from(create(2), SocketAddress::of(loopback, 0), to), EINVAL);
  EXPECT_EQ(resolve_from(create(3), SocketAddress::of(kOwn, 0), to), 0);
}

TEST_F(RdmaCmCommands, AnEventThatCannotBeWrittenStays) {
  const auto id = create(1);
  ask_to_resolve(id, kGuest, 7471);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{.response = 0}), EFAULT);
  EXPECT_EQ(next_type(), EventType::kAddrResolved);
  EXPECT_EQ(destroy(id), 1u);
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

TEST_F(RdmaCmCommands, AGroupOfIpv6IsNoneForRoceV2) {
  const auto id = create(1, RDMA_PS_UDP);
  ASSERT_EQ(bind(id, 0), 0);
  rdma_ucm_create_id_resp made{};
  rdma_ucm_join_mcast in{};
  in.response = reinterpret_cast<std::uint64_t>(&made);
  in.id = id;
  sockaddr_in6 group{};
  group.sin6_family = AF_INET6;
  group.sin6_addr.s6_addr[0] = 0xff;
  group.sin6_addr.s6_addr[1] = 0x0e;
  in.addr_size = sizeof group;
  std::memcpy(&in.addr, &group, sizeof group);
  EXPECT_EQ(command(RDMA_USER_CM_CMD_JOIN_MCAST, in), 524) << "ENOTSUPP";
}

}  // namespace
}  // namespace softhca::rdma_cm
