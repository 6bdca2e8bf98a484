#include "rdma/requester.h"

#include "rdma/engine.h"

namespace softhca::rdma {

Requester::Requester(Engine& engine, QueuePair& qp)
    : engine_(engine), qp_(qp), queue_(engine, qp), memory_(engine.keys, qp) {
  const auto& service = qp.service();
  if (service.datagram) datagram_path_ = std::make_unique<DatagramPath>();
  if (service.connected && !service.fixed_peer) dc_ = std::make_unique<DcInitiator>(engine, qp);
}

void Requester::reset() {
  disconnect();
  stop();
  queue_.reset();
  retries_.forget_implied();
}

void Requester::start(std::uint32_t psn) {
  window().start(psn & wire::Psn::kMask);
  refresh_retries();
}

void Requester::handle_attributes() {
  memory_.forget();
  retries_.set_timeout(qp_.attributes(), engine_.ack_timeout_min);
}

void Requester::stop() {
  queue_.stop();
  engine_.timers.remove(qp_);
  close_fault();
  pause_.end();
}

void Requester::disconnect() {
  if (dc_ != nullptr && dc_->is_open()) dc_->close(engine_.path_header(qp_), window());
}

}  // namespace softhca::rdma
