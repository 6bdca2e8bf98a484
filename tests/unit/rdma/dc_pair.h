// A DC initiator on host a, and two targets on host b that share receives.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "rdma/pair.h"
#include "wire/ib_header.h"

namespace softhca::rdma::test {

inline constexpr std::uint64_t kDcKey = 0x1122'3344'5566'7788;
inline constexpr Qpn kFirst{0x31};
inline constexpr Qpn kSecond{0x32};

class DcPair {
 public:
  using Adjust = std::function<void(DcTargetAttributes&)>;

  explicit DcPair(const Adjust& adjust = {}, WireOptions options = {}, unsigned seed = 1,
                  Joined joined = Joined::kRoceV2)
      : pair(options, seed, joined) {
    for_a = pair.attributes_for(pair.a, pair.b, Qpn{});
    for_a.path = {};
    for_a.ack_timeout = 8;  // 1.05 ms
    pair.qa = &make_initiator(Qpn(0x11));
    for (const auto qpn : {kFirst, kSecond}) make_target(qpn, adjust);
    pair.a.fill(0, 0x40000, 1);
  }

  void make_target(Qpn qpn, const Adjust& adjust = {}) {
    DcTargetAttributes target;
    target.key = kDcKey;
    target.connection = pair.attributes_for(pair.b, pair.a, Qpn{});
    target.connection.path = {};
    target.counters = &pair.b.counters;
    if (adjust) adjust(target);
    pair.b.transport.dc_targets().add(qpn, target, pair.b.hca.queues_of(qpn, true));
  }

  QueuePair& make_initiator(Qpn qpn) {
    auto& qp = pair.a.create_qp(qpn, QpType::kDcInitiator, for_a,
                                {.has_receive_queue = false, .counters = &pair.a.counters});
    Pair::to_rts(pair.a, qp, for_a);
    return qp;
  }
  SendRequest to(Qpn target, SendRequest request) const {
    static_cast<Path&>(request.ud) = pair.path_to(pair.b);
    request.ud.qpn = target;
    request.dc_key = kDcKey;
    return request;
  }
  void post(Qpn target, SendRequest request) {
    pair.a.post(*pair.qa, to(target, std::move(request)));
  }
  void post_receive(std::uint64_t offset, std::uint32_t cookie, std::uint32_t length = 0x8000) {
    pair.b.hca.srq.push_back({.cookie = cookie, .sges = {End::sge(offset, length)}});
  }
  static SendRequest with_immediate(SendRequest request, std::uint32_t immediate) {
    request.opcode = request.opcode == SendOpcode::kSend ? SendOpcode::kSendWithImmediate
                                                         : SendOpcode::kRdmaWriteWithImmediate;
    request.immediate = immediate;
    return request;
  }
  const DcTarget* target(Qpn qpn) { return pair.b.transport.dc_targets().find(qpn); }
  /// True once the target is drained.
  bool drain(Qpn qpn) {
    util::WorkBudget work(1'000'000);
    return pair.b.transport.dc_targets().drain(qpn, work);
  }
  /// Delivers `packet` without payload to `end`, addressed to `dest_qp`.
  void inject(End& end, wire::IbPacket packet, Qpn dest_qp) {
    auto& other = &end == &pair.a ? pair.b : pair.a;
    packet.bth.dest_qp = dest_qp;
    packet.address.source_gid = other.gid.gid;
    packet.address.source_mac = other.gid.mac;
    packet.address.destination_gid = end.gid.gid;
    packet.address.destination_mac = end.gid.mac;
    wire::Frame frame;
    wire::IbHeader(packet.address).emit(packet.bth, packet.ext, 0, frame);
    (void)end.transport.handle_frame(frame, pair.now);
  }

  QpAttributes for_a;
  Pair pair;
};

}  // namespace softhca::rdma::test
