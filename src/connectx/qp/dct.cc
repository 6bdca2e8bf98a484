#include "connectx/qp/dct.h"

#include <algorithm>

#include "connectx/qp/atomic_mode.h"
#include "connectx/qp/path_mtu.h"
#include "connectx/qp/rdma.h"

namespace softhca::connectx {

Dct::Dct(Qpn dctn, util::View<Context> context, Uses uses, Rdma& rdma)
    : dctn_(dctn), uses_(std::move(uses)), rdma_(rdma) {
  std::ranges::copy(context.bytes(), context_.bytes().begin());
}

rdma::QpAttributes Dct::attributes() const {
  const auto context = this->context();
  rdma::QpAttributes a;
  a.pd = rdma::Pd(context.get(Context::pd));
  a.pkey_index = static_cast<std::uint16_t>(context.get(Context::pkey_index));
  a.path_mtu = path_mtu_of(context.get(Context::mtu));
  a.message_max = rdma_.message_max();
  a.min_rnr_timer = static_cast<std::uint8_t>(context.get(Context::min_rnr_nak));
  a.max_dest_rd_atomic = 1u << kLogDctReads;
  a.remote_read = context.get(Context::rre) != 0;
  a.remote_write = context.get(Context::rwe) != 0;
  using AtomicMode = spec::connectx::qp_atomic_mode;
  a.remote_atomic = context.get(Context::rae) != 0 &&
                    AtomicMode(context.get(Context::atomic_mode)) != AtomicMode::NOT_SUPPORTED;
  a.masked_atomic_sizes = masked_atomic_sizes_of(context.get(Context::atomic_mode));
  a.reserved_lkey = context.get(Context::rlky) != 0;
  // Only these fields of the path: the requests give the destination of answers.
  a.path.hop_limit = static_cast<std::uint8_t>(context.get(Context::hop_limit));
  a.path.traffic_class = static_cast<std::uint8_t>(context.get(Context::tclass));
  a.path.flow_label = context.get(Context::flow_label);
  a.path.vlan_priority = static_cast<std::uint8_t>(context.get(Context::eth_prio));
  return a;
}

rdma::Fetch Dct::fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn) {
  return rdma_.fetch_receive(*this, request);
}
void Dct::complete_receive(const rdma::ReceiveCompletion& completion) {
  rdma_.complete_receive(*this, completion);
}
void Dct::complete_receive_with(const rdma::ReceiveCompletion& completion,
                                std::span<const std::byte> data) {
  rdma_.complete_receive_with(*this, completion, data);
}
void Dct::handle_signature_error(const rdma::SignatureError& error, bool, rdma::XrcSrqn) {
  rdma_.handle_signature_error(*this, error);
}
void Dct::handle_event(rdma::QpEvent event, rdma::Reason reason) {
  rdma_.handle_event(*this, event, reason);
}
rdma::FaultAnswer Dct::open_fault(const rdma::PageFault& fault) {
  if (fault_open) return rdma::FaultAnswer::kBusy;
  const auto answer = rdma_.page_faults().open(fault, {.number = dctn_, .srqn = srqn()});
  fault_open = answer == rdma::FaultAnswer::kOpened;
  return answer;
}
void Dct::close_fault() {
  fault_open = false;
  rdma_.page_faults().close();
}

}  // namespace softhca::connectx
