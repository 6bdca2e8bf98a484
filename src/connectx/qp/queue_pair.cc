#include "connectx/qp/queue_pair.h"

#include <algorithm>
#include <utility>

#include "connectx/qp/atomic_mode.h"
#include "connectx/qp/path_mtu.h"
#include "connectx/qp/rdma.h"
#include "wire/traffic_class.h"

namespace softhca::connectx {

namespace {

using spec::connectx::ads;
using AtomicMode = spec::connectx::qp_atomic_mode;
using Qpc = QueuePair::Qpc;

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

std::optional<rdma::QpType> QueuePair::transport_type(util::View<Qpc> context) {
  switch (static_cast<Service>(context.get(Qpc::st))) {
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
      return context.get(Qpc::no_sq) == 0 ? rdma::QpType::kXrcInitiator : rdma::QpType::kXrcTarget;
    case Service::DCI:
      return rdma::QpType::kDcInitiator;
    default:
      return std::nullopt;
  }
}

std::uint32_t QueuePair::receive_stride(util::View<Qpc> context) {
  return 1u << (context.get(Qpc::log_rq_stride) + kLogWqeUnit);
}

std::uint64_t QueuePair::receive_queue_size(util::View<Qpc> context) {
  if (receives(context) != Receives::kOwn) return 0;
  return std::uint64_t{receive_stride(context)} << context.get(Qpc::log_rq_size);
}

hca::WorkRing QueuePair::make_receive_ring(util::View<Qpc> context) {
  return hca::WorkRing({.offset = 0,
                        .log_stride = context.get(Qpc::log_rq_stride) + kLogWqeUnit,
                        .log_count = context.get(Qpc::log_rq_size),
                        .record_dword = kReceiveCounter});
}

/// If the RQ fills whole pages, or there is none, all alignments give the same offset.
std::uint64_t QueuePair::send_queue_offset(util::View<Qpc> context, std::uint32_t alignment) {
  const auto size = receive_queue_size(context);
  return alignment <= kWqeBasicBlock ? size : (size + alignment - 1) / alignment * alignment;
}

hca::WorkRing QueuePair::make_send_ring(util::View<Qpc> context, std::uint32_t alignment) {
  return hca::WorkRing({.offset = send_queue_offset(context, alignment),
                        .log_stride = 6,
                        .log_count = context.get(Qpc::log_sq_size),
                        .record_dword = kSendCounter});
}

QueuePlace QueuePair::place(util::View<Qpc> context, std::span<const std::byte> pas,
                            std::uint32_t alignment) {
  std::uint64_t size = receive_queue_size(context);
  if (context.get(Qpc::no_sq) == 0) {
    size =
        send_queue_offset(context, alignment) + (kWqeBasicBlock << context.get(Qpc::log_sq_size));
  }
  QueuePlace place{.log_page_size = context.get(Qpc::log_page_size),
                   .page_offset = context.get(Qpc::page_offset),
                   .size = size,
                   .pas = pas,
                   .dbr_addr = context.get(Qpc::dbr_addr)};
  place.set_dbr_umem(context.get(Qpc::dbr_umem_valid) != 0, context.get(Qpc::dbr_umem_id));
  return place;
}

QueuePair::QueuePair(Qpn qpn, util::View<Qpc> context, MappedQueue queue, Rdma& rdma)
    : qpn_(qpn),
      queue_(std::move(queue)),
      send_ring_(make_send_ring(context, rdma.model().send_queue_alignment)),
      receive_ring_(make_receive_ring(context)),
      rdma_(rdma) {
  std::ranges::copy(context.bytes(), context_.bytes().begin());
  refresh();
}

void QueuePair::bind(rdma::QueuePair& rdma_qp, bool atomics) {
  rdma_qp_ = &rdma_qp;
  send_rules_.atomics = atomics;
  if (rdma_qp.service().datagram) seen_datagram_wqe = std::make_unique<SeenDatagramWqe>();
  seen_send_wqe.forget();
}

void QueuePair::set_context(util::View<Qpc> context, const QueueMapper& mapper) {
  std::ranges::copy(context.bytes(), context_.bytes().begin());
  const auto address = context.get(Qpc::dbr_addr);
  if (address != queue_.dbr_addr) {
    queue_.dbr_addr = address;
    queue_.record = mapper.record(address);
    queue_.record_use = {};
  }
  refresh();
}

QueuePair::Receives QueuePair::receives(util::View<Qpc> context) {
  if (is_xrc(context)) return Receives::kXrc;
  switch (rq_type(context)) {
    case RqType::NON_ZERO_RQ:
      return Receives::kOwn;
    case RqType::SRQ:
      return Receives::kSrq;
    default:
      return Receives::kNone;
  }
}

void QueuePair::refresh() {
  seen_send_wqe.forget();
  if (seen_datagram_wqe != nullptr) seen_datagram_wqe->forget();
  const util::View<Qpc> context = context_;
  receives_ = receives(context);
  send_cqn_ = has_send_queue() ? Cqn(context.get(Qpc::cqn_snd)) : Cqn();
  receive_cqn_ = receives_nothing() ? Cqn() : Cqn(context.get(Qpc::cqn_rcv));
  srqn_ = Srqn(context.get(Qpc::srqn_rmpn_xrqn));
  user_index_ = context.get(Qpc::user_index);
  is_gsi_ = service() == Service::QP1;
  signs_receive_wqes_ = send_rules_.is_signed = context.get(Qpc::wq_signature) != 0;
  send_rules_.type = transport_type(context).value_or(rdma::QpType::kRc);
  send_rules_.qpn = qpn_;
}

void QueuePair::reset_rings() {
  send_ring_.reset();
  receive_ring_.reset();
  stale_send_blocks = 0;
  has_reported_error = false;
  failure = hca::Failure::kNone;
}

rdma::QpAttributes QueuePair::attributes() const {
  const auto context = this->context();
  const auto primary = context.get(Qpc::primary_address_path);
  rdma::QpAttributes a;
  a.pd = rdma::Pd(context.get(Qpc::pd));
  a.path = make_path(primary);
  a.path_mtu = path_mtu_of(context.get(Qpc::mtu));
  a.message_max = rdma_.message_max(context.get(Qpc::log_msg_max));
  a.remote_qpn = rdma::Qpn(context.get(Qpc::remote_qpn));
  a.qkey = context.get(Qpc::q_key);
  a.pkey_index = static_cast<std::uint16_t>(primary.get(ads::pkey_index));
  a.rq_psn = context.get(Qpc::next_rcv_psn);
  a.sq_psn = context.get(Qpc::next_send_psn);
  a.retry_count = static_cast<std::uint8_t>(context.get(Qpc::retry_count));
  a.rnr_retry = static_cast<std::uint8_t>(context.get(Qpc::rnr_retry));
  a.ack_timeout = static_cast<std::uint8_t>(primary.get(ads::ack_timeout));
  a.min_rnr_timer = static_cast<std::uint8_t>(context.get(Qpc::min_rnr_nak));
  a.max_rd_atomic = 1u << context.get(Qpc::log_sra_max);
  a.max_dest_rd_atomic = 1u << context.get(Qpc::log_rra_max);
  a.remote_read = context.get(Qpc::rre) != 0;
  a.remote_write = context.get(Qpc::rwe) != 0;
  // Without an atomic_mode the QP accepts no atomics, whatever rae is.
  a.remote_atomic = context.get(Qpc::rae) != 0 &&
                    AtomicMode(context.get(Qpc::atomic_mode)) != AtomicMode::NOT_SUPPORTED;
  a.masked_atomic_sizes = masked_atomic_sizes_of(context.get(Qpc::atomic_mode));
  a.reserved_lkey = context.get(Qpc::rlky) != 0;
  // For peers the QP is QP1, whatever its own number is.
  if (service() == Service::QP1) {
    a.deth_source_qpn = wire::kGsiQpn;
  } else if (const auto source = context.get(Qpc::deth_sqpn); source != 0) {
    a.deth_source_qpn = rdma::Qpn(source);
  }
  return a;
}

// Interface for the transport ---------------------------------------------------------------------

rdma::Fetch QueuePair::fetch_send(rdma::SendRequest& request) {
  return rdma_.fetch_send(*this, request);
}
rdma::Fetch QueuePair::fetch_short_datagram(std::uint64_t destination, std::uint32_t bytes_max,
                                            rdma::ShortDatagram& datagram) {
  return rdma_.fetch_short_datagram(*this, destination, bytes_max, datagram);
}
void QueuePair::restart_send() { rdma_.restart_send(*this); }
rdma::LocalOutcome QueuePair::execute_local(const rdma::SendRequest& request, bool again) {
  return rdma_.execute_local(*this, request, again);
}
rdma::Fetch QueuePair::fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) {
  return rdma_.fetch_receive(*this, request, srqn);
}
bool QueuePair::fetch_receive_piece(rdma::ReceivePiece& piece) {
  return rdma_.fetch_receive_piece(*this, piece);
}
void QueuePair::complete_send(const rdma::SendCompletion& completion) {
  rdma_.complete_send(*this, completion);
}
void QueuePair::complete_receive(const rdma::ReceiveCompletion& completion) {
  rdma_.complete_receive(*this, completion);
}
void QueuePair::complete_send_with(const rdma::SendCompletion& completion,
                                   std::span<const std::byte> data) {
  rdma_.complete_send_with(*this, completion, data);
}
void QueuePair::complete_receive_with(const rdma::ReceiveCompletion& completion,
                                      std::span<const std::byte> data) {
  rdma_.complete_receive_with(*this, completion, data);
}
void QueuePair::handle_signature_error(const rdma::SignatureError& error, bool sends,
                                       rdma::XrcSrqn srqn) {
  rdma_.handle_signature_error(*this, error, sends, srqn);
}
void QueuePair::handle_event(rdma::QpEvent event, rdma::Reason reason) {
  rdma_.handle_event(*this, event, reason);
}
rdma::FaultAnswer QueuePair::open_fault(const rdma::PageFault& fault) {
  return rdma_.open_fault(*this, fault);
}
void QueuePair::close_fault() { rdma_.close_fault(); }

}  // namespace softhca::connectx
