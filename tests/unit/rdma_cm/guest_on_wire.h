// A host that talks to a peer whose messages the test builds.
#pragma once

#include "cm/message.h"
#include "rdma_cm/ip_service.h"
#include "rdma_cm/own_host.h"
#include "rdma_cm/qp1_on_wire.h"

namespace softhca::rdma_cm {

using namespace cm;

inline cm_attribute kind_of(const Mad& mad) {
  using Header = spec::mad_header;
  return static_cast<cm_attribute>(
      util::View<Header>(std::span<const std::byte>(mad).first(Header::kSize))
          .get(Header::attribute_id));
}

inline std::int32_t status_of(const rdma_ucm_event_resp& event) {
  return static_cast<std::int32_t>(event.status);
}

class RdmaCmWithGuest : public RdmaCm {
 protected:
  static constexpr std::uint32_t kGuestsId = 0x2a000077, kGuestsQpn = 0x300;
  static inline const driver::Gid kStranger = driver::Gid::from_ipv4(198, 19, 0, 66);

  RdmaCmWithGuest() : peer_(program_.network().create_port("guest")) {
    program_.network().set_tap(&ear_);
    guest_is_known_ = true;
  }
  ~RdmaCmWithGuest() override { program_.network().set_tap(nullptr); }

  void say(const Mad& mad, const driver::Gid& from = kGuest,
           wire::Encapsulation encapsulation = wire::Encapsulation::kRoceV2) {
    (void)peer_->transmit(qp1_frame(mad, from, kOwn, encapsulation));
    work();
  }
  /// A message with both communication IDs. All other fields are what `more` sets.
  template <class Layout>
  static Mad message(
      cm_attribute kind, std::uint32_t local, std::uint32_t remote,
      const std::function<void(util::MutableView<Layout>)>& more = [](auto) {}) {
    Message<Layout> made(kind, 1);
    made.body().set(Layout::local_comm_id, local);
    made.body().set(Layout::remote_comm_id, remote);
    more(made.body());
    return made.mad();
  }
  static Mad request(const std::function<void(util::MutableView<spec::cm_req>)>& more = [](auto) {
  }) {
    using Req = spec::cm_req;
    Message<Req> made(cm_attribute::REQ, 1);
    const auto body = made.body();
    body.set(Req::local_comm_id, kGuestsId);
    body.set(Req::service_id, service_of(RDMA_PS_TCP, 7471));
    body.set(Req::local_qpn, kGuestsQpn);
    body.set(Req::local_response_timeout, kResponseTimeout);
    body.set(Req::max_cm_retries, kRepeats);
    util::MutableView<spec::cma_header> cma(body.sub(Req::private_data).first(kCmaHeader));
    cma.set(spec::cma_header::ip_version, 4);
    std::ranges::copy(kGuest.bytes, cma.sub(spec::cma_header::source).begin());
    std::ranges::copy(kOwn.bytes, cma.sub(spec::cma_header::destination).begin());
    more(body);
    return made.mad();
  }
  static Mad reply(std::uint32_t to) {
    return message<spec::cm_rep>(cm_attribute::REP, kGuestsId, to, [](auto body) {
      body.set(spec::cm_rep::local_qpn, kGuestsQpn);
      body.set(spec::cm_rep::flow_control, 1);
      body.set(spec::cm_rep::rnr_retry, 6);
      body.set(spec::cm_rep::target_ack_delay, kAckDelay);
    });
  }
  std::size_t count(cm_attribute kind) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(ear_.heard, [&](const Mad& mad) { return kind_of(mad) == kind; }));
  }
  /// The last message of its kind.
  const Mad& last(cm_attribute kind) const {
    const auto at = std::find_if(ear_.heard.rbegin(), ear_.heard.rend(),
                                 [&](const Mad& mad) { return kind_of(mad) == kind; });
    static const Mad kNone{};
    EXPECT_NE(at, ear_.heard.rend());
    return at == ear_.heard.rend() ? kNone : *at;
  }
  static std::uint32_t number_in(const Mad& mad) {
    return body_of<spec::cm_rtu>(mad).get(spec::cm_rtu::local_comm_id);
  }
  void resolve_guest(std::uint32_t id) {
    ask_to_resolve(id, kGuest, 7471);
    EXPECT_EQ(next_type(), EventType::kAddrResolved);
    resolve_route(id);
  }
  /// Creates a client that has sent a REQ to the guest.
  std::uint32_t ask_guest(std::uint64_t uid = 2, std::uint16_t space = RDMA_PS_TCP) {
    const auto client = create(uid, space);
    resolve_guest(client);
    connect(client, "");
    work();
    return client;
  }
  std::uint32_t connect_to_guest() {
    const auto client = ask_guest();
    say(reply(number_in(last(cm_attribute::REQ))));
    EXPECT_EQ(next_type(), EventType::kConnectResponse);
    EXPECT_EQ(accept(client, 2, true), 0);
    work();
    return client;
  }
  /// The new identifier at a listener, from the guest's request.
  std::uint32_t be_asked_by_guest() {
    listen(1, 7471);
    say(request());
    const auto event = next();
    EXPECT_EQ(event.event, static_cast<std::uint32_t>(EventType::kConnectRequest));
    return event.id;
  }

  Ear ear_;
  std::unique_ptr<fabric::Port> peer_;
};

}  // namespace softhca::rdma_cm
