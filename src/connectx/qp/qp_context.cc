#include "connectx/qp/qp_context.h"

#include <algorithm>

#include "connectx/qp/atomic_mode.h"
#include "connectx/qp/path_mtu.h"
#include "connectx/queue/receive_wqe.h"
#include "wire/traffic_class.h"

namespace softhca::connectx {

namespace {

using spec::connectx::ads;
using AtomicMode = spec::connectx::qp_atomic_mode;
using RqType = spec::connectx::qp_rq_type;

rdma::Path make_path(util::View<ads> address) {
  rdma::Path path;
  path.dst_mac = rdma::Mac::from(address.get(ads::rmac));
  path.dst_gid = rdma::Gid::from(address.get(ads::rgid_rip));
  path.src_gid_index = static_cast<std::uint8_t>(address.get(ads::src_addr_index));
  path.hop_limit = static_cast<std::uint8_t>(address.get(ads::hop_limit));
  path.traffic_class = static_cast<std::uint8_t>(address.get(ads::tclass));
  // Drivers write the value in both forms. If a driver writes only the second form, use that.
  if (path.traffic_class == 0) {
    path.traffic_class = wire::TrafficClass::make(static_cast<std::uint8_t>(address.get(ads::dscp)),
                                                  static_cast<std::uint8_t>(address.get(ads::ecn)))
                             .value;
  }
  path.vlan_priority = static_cast<std::uint8_t>(address.get(ads::eth_prio));
  path.flow_label = address.get(ads::flow_label);
  if (const auto port = address.get(ads::udp_sport); port != 0) {
    path.udp_source_port = static_cast<std::uint16_t>(port);
  }
  return path;
}

}  // namespace

std::optional<rdma::QpType> QpContext::transport_type(View context) {
  switch (static_cast<Service>(context.get(Layout::st))) {
    case Service::RC:
    // Drivers create a REG_UMR QP whatever the UMR capabilities are. It never has a peer. Without
    // the capability, its UMR WQEs end in an error, as on any other QP.
    case Service::REG_UMR:
      return rdma::QpType::kRc;
    case Service::UC:
      return rdma::QpType::kUc;
    case Service::UD:
    case Service::QP1:
      return rdma::QpType::kUd;
    case Service::XRC:
      return context.get(Layout::no_sq) == 0 ? rdma::QpType::kXrcInitiator
                                             : rdma::QpType::kXrcTarget;
    case Service::DCI:
      return rdma::QpType::kDcInitiator;
    default:
      return std::nullopt;
  }
}

std::uint32_t QpContext::receive_stride(View context) {
  return 1u << (context.get(Layout::log_rq_stride) + kLogWqeUnit);
}

std::uint64_t QpContext::receive_queue_size(View context) {
  if (receives_of(context) != Receives::kOwn) return 0;
  return std::uint64_t{receive_stride(context)} << context.get(Layout::log_rq_size);
}

hca::WorkRing QpContext::make_receive_ring(View context) {
  return hca::WorkRing({.offset = 0,
                        .log_stride = context.get(Layout::log_rq_stride) + kLogWqeUnit,
                        .log_count = context.get(Layout::log_rq_size),
                        .record_dword = kReceiveCounter});
}

/// If the RQ fills whole pages, or there is none, all alignments give the same offset.
std::uint64_t QpContext::send_queue_offset(View context, std::uint32_t alignment) {
  const auto size = receive_queue_size(context);
  return alignment <= kWqeBasicBlock ? size : (size + alignment - 1) / alignment * alignment;
}

hca::WorkRing QpContext::make_send_ring(View context, std::uint32_t alignment) {
  return hca::WorkRing({.offset = send_queue_offset(context, alignment),
                        .log_stride = 6,
                        .log_count = context.get(Layout::log_sq_size),
                        .record_dword = kSendCounter});
}

QueuePlace QpContext::place(View context, std::span<const std::byte> pas, std::uint32_t alignment) {
  std::uint64_t size = receive_queue_size(context);
  if (context.get(Layout::no_sq) == 0) {
    size = send_queue_offset(context, alignment) +
           (kWqeBasicBlock << context.get(Layout::log_sq_size));
  }
  QueuePlace place{.log_page_size = context.get(Layout::log_page_size),
                   .page_offset = context.get(Layout::page_offset),
                   .size = size,
                   .pas = pas,
                   .dbr_addr = context.get(Layout::dbr_addr)};
  place.set_dbr_umem(context.get(Layout::dbr_umem_valid) != 0, context.get(Layout::dbr_umem_id));
  return place;
}

QpContext::Receives QpContext::receives_of(View context) {
  if (is_xrc(context)) return Receives::kXrc;
  switch (static_cast<RqType>(context.get(Layout::rq_type))) {
    case RqType::NON_ZERO_RQ:
      return Receives::kOwn;
    case RqType::SRQ:
      return Receives::kSrq;
    default:
      return Receives::kNone;
  }
}

QpContext::QpContext(View context) { replace_with(context); }

void QpContext::replace_with(View context) {
  std::ranges::copy(context.bytes(), context_.bytes().begin());
  receives_ = receives_of(context);
  send_cqn_ = has_send_queue() ? Cqn(context.get(Layout::cqn_snd)) : Cqn();
  receive_cqn_ = receives_nothing() ? Cqn() : Cqn(context.get(Layout::cqn_rcv));
  srqn_ = Srqn(context.get(Layout::srqn_rmpn_xrqn));
  user_index_ = context.get(Layout::user_index);
  is_gsi_ = service() == Service::QP1;
}

rdma::QpAttributes QpContext::attributes(const Limits& limits) const {
  const auto context = view();
  const auto primary = context.get(Layout::primary_address_path);
  rdma::QpAttributes a;
  a.pd = rdma::Pd(context.get(Layout::pd));
  a.path = make_path(primary);
  a.path_mtu = path_mtu_of(context.get(Layout::mtu));
  const auto log_msg_max = context.get(Layout::log_msg_max);
  a.message_max = Limits::count(log_msg_max == 0 ? limits.log_max_msg : log_msg_max);
  a.remote_qpn = rdma::Qpn(context.get(Layout::remote_qpn));
  a.qkey = context.get(Layout::q_key);
  a.pkey_index = static_cast<std::uint16_t>(primary.get(ads::pkey_index));
  a.rq_psn = context.get(Layout::next_rcv_psn);
  a.sq_psn = context.get(Layout::next_send_psn);
  a.retry_count = static_cast<std::uint8_t>(context.get(Layout::retry_count));
  a.rnr_retry = static_cast<std::uint8_t>(context.get(Layout::rnr_retry));
  a.ack_timeout = static_cast<std::uint8_t>(primary.get(ads::ack_timeout));
  a.min_rnr_timer = static_cast<std::uint8_t>(context.get(Layout::min_rnr_nak));
  a.max_rd_atomic = 1u << context.get(Layout::log_sra_max);
  a.max_dest_rd_atomic = 1u << context.get(Layout::log_rra_max);
  a.access_flags.remote_read = context.get(Layout::rre) != 0;
  a.access_flags.remote_write = context.get(Layout::rwe) != 0;
  // Without an atomic_mode the QP accepts no atomics, whatever rae is.
  a.access_flags.remote_atomic =
      context.get(Layout::rae) != 0 &&
      AtomicMode(context.get(Layout::atomic_mode)) != AtomicMode::NOT_SUPPORTED;
  a.access_flags.masked_atomic_sizes = masked_atomic_sizes_of(context.get(Layout::atomic_mode));
  a.reserved_lkey = context.get(Layout::rlky) != 0;
  // For peers the QP is QP1, whatever its own number is.
  if (service() == Service::QP1) {
    a.deth_source_qpn = wire::kGsiQpn;
  } else if (const auto source = context.get(Layout::deth_sqpn); source != 0) {
    a.deth_source_qpn = rdma::Qpn(source);
  }
  return a;
}

}  // namespace softhca::connectx
