// The end of connections between XRC initiators and XRC targets.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <chrono>

#include "rdma_cm/guest_on_wire.h"

namespace softhca::rdma_cm {
namespace {

class RdmaCmXrc : public RdmaCmWithGuest {
 protected:
  /// Listens for XRC targets. Returns the request of the guest's XRC initiator.
  rdma_ucm_event_resp be_asked_for_a_target() {
    using Req = spec::cm_req;
    const auto listener = create_of(RDMA_PS_IB, IB_UVERBS_QPT_XRC_TGT);
    EXPECT_EQ(bind(listener, 7471), 0);
    EXPECT_EQ(command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{.id = listener, .backlog = 1}), 0);
    say(request([](auto body) {
      body.set(Req::service_id, service_of(RDMA_PS_IB, 7471));
      body.set(Req::transport, kTransportExtended);
      body.set(Req::extended_transport, kExtendedXrc);
    }));
    return next();
  }
};

// cm_destroy_id() of Linux: the initiator goes on after the target's identifier has ended.
TEST_F(RdmaCmXrc, AnXrcTargetThatIsDestroyedDoesNotDisconnect) {
  const auto request = be_asked_for_a_target();
  ASSERT_EQ(request.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
  ASSERT_EQ(accept(request.id, 3, false), 0);
  work();
  say(message<spec::cm_rtu>(cm_attribute::RTU, kGuestsId, number_in(last(cm_attribute::REP))));
  ASSERT_EQ(next_type(), EventType::kEstablished);
  destroy(request.id);
  work();
  EXPECT_EQ(count(cm_attribute::DREQ), 0u);
  const auto other = connect_to_guest();
  destroy(other);
  work();
  EXPECT_EQ(count(cm_attribute::DREQ), 1u) << "an RC QP";
}

// A kernel that ends a process destroys its identifiers, which is silent here.
TEST_F(RdmaCmXrc, TheEndOfAnXrcTargetIsNotReported) {
  const auto client = create_of(RDMA_PS_IB, IB_UVERBS_QPT_XRC_INI);
  resolve_guest(client);
  connect(client, "");
  work();
  say(reply(number_in(last(cm_attribute::REQ))));
  ASSERT_EQ(next_type(), EventType::kConnectResponse);
  ASSERT_EQ(accept(client, 1, true), 0);
  peer_is_gone_ = true;
  now_ += std::chrono::seconds(1);
  const auto before = looked_for_gone_;
  EXPECT_TRUE(is_quiet());
  EXPECT_GT(looked_for_gone_, before);
  EXPECT_EQ(disconnect(client), 0);
  now_ += std::chrono::seconds(1);
  work();
  EXPECT_EQ(next_type(), EventType::kDisconnected) << "it does not wait for an answer";
}

}  // namespace
}  // namespace softhca::rdma_cm
