#include "connectx/qp/dct.h"

#include <algorithm>
#include <utility>

#include "connectx/qp/atomic_mode.h"
#include "connectx/qp/path_mtu.h"

namespace softhca::connectx {

Dct::Dct(Qpn dctn, util::View<Context> context, Uses uses, const Parts& parts)
    : dctn_(dctn), uses_(std::move(uses)), parts_(parts) {
  std::ranges::copy(context.bytes(), context_.bytes().begin());
}

rdma::QpAttributes Dct::attributes() const {
  const auto context = this->context();
  rdma::QpAttributes a;
  a.pd = rdma::Pd(context.get(Context::pd));
  a.pkey_index = static_cast<std::uint16_t>(context.get(Context::pkey_index));
  a.path_mtu = path_mtu_of(context.get(Context::mtu));
  a.message_max = Limits::count(parts_.limits.log_max_msg);
  a.min_rnr_timer = static_cast<std::uint8_t>(context.get(Context::min_rnr_nak));
  a.max_dest_rd_atomic = 1u << kLogDctReads;
  a.access_flags.remote_read = context.get(Context::rre) != 0;
  a.access_flags.remote_write = context.get(Context::rwe) != 0;
  using AtomicMode = spec::connectx::qp_atomic_mode;
  a.access_flags.remote_atomic =
      context.get(Context::rae) != 0 &&
      AtomicMode(context.get(Context::atomic_mode)) != AtomicMode::NOT_SUPPORTED;
  a.access_flags.masked_atomic_sizes = masked_atomic_sizes_of(context.get(Context::atomic_mode));
  a.reserved_lkey = context.get(Context::rlky) != 0;
  // Only these fields of the path: the requests give the destination of answers.
  a.path.hop_limit = static_cast<std::uint8_t>(context.get(Context::hop_limit));
  a.path.traffic_class = static_cast<std::uint8_t>(context.get(Context::tclass));
  a.path.flow_label = context.get(Context::flow_label);
  a.path.vlan_priority = static_cast<std::uint8_t>(context.get(Context::eth_prio));
  return a;
}

// Interface for the transport ---------------------------------------------------------------------

rdma::Fetch Dct::fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn) {
  return failed ? rdma::Fetch::kUnreadable : parts_.shared_queues.fetch(srqn(), request);
}

/// If the CQ of a DCT fails, later requests that need a completion are refused. A DCT has no state
/// for this, in which it would accept WRITEs but no SENDs.
void Dct::complete_receive(const rdma::ReceiveCompletion& completion) {
  const CqeQueue queue{.qpn = dctn_, .user_index = cqe_user_index()};
  if (!parts_.completion_writer.write_receive(cqn(), queue, completion)) failed = true;
}

void Dct::complete_receive_with(const rdma::ReceiveCompletion& completion,
                                std::span<const std::byte> data) {
  auto& writer = parts_.completion_writer;
  const CqeQueue queue{.qpn = dctn_, .user_index = cqe_user_index()};
  const auto room = writer.data_of(context()).of_sends;
  if (!writer.write_receive_with(cqn(), queue, completion, data, room)) failed = true;
}

void Dct::handle_signature_error(const rdma::SignatureError& error, bool, rdma::XrcSrqn) {
  if (!parts_.completion_writer.write_signature_error(cqn(), dctn_, error)) failed = true;
}

/// Notifies drivers only of wrong keys. Other events of a connection are logged.
void Dct::handle_event(rdma::QpEvent event, rdma::Reason reason) {
  if (event != rdma::QpEvent::kDcKeyViolation) {
    const auto& info = rdma::describe(reason);
    return parts_.notes.info("DCT {:#x}: a connection ends: {} ({}, reason {})", dctn_.value(),
                             info.text, info.section, static_cast<unsigned>(reason));
  }
  if (!std::exchange(armed, false)) return;
  parts_.event_queues.post(spec::connectx::event_type::DCT_ACCESS_KEY_VIOLATION, 0,
                           EventQueues::dct_data(dctn_));
}

rdma::FaultAnswer Dct::open_fault(const rdma::PageFault& fault) {
  if (fault_open) return rdma::FaultAnswer::kBusy;
  const auto answer = parts_.page_faults.open(fault, {.number = dctn_, .srqn = srqn()});
  fault_open = answer == rdma::FaultAnswer::kOpened;
  return answer;
}
void Dct::close_fault() {
  fault_open = false;
  parts_.page_faults.close();
}

}  // namespace softhca::connectx
