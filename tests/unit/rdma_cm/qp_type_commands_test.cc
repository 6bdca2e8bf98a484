// Types of QPs: those of a port space, and XRC.
#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "rdma_cm/command_host.h"

namespace softhca::rdma_cm {
namespace {

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

}  // namespace
}  // namespace softhca::rdma_cm
