#include "rdma/engine.h"

#include "rdma/responder.h"

namespace softhca::rdma {

Engine::Engine(fabric::Port& the_port, KeyTable& the_keys, util::Notes& the_notes,
               const PortOptions& options)
    : port(the_port),
      keys(the_keys),
      notes(the_notes),
      addresses(options),
      rings(options.requests),
      dc_targets(*this, options.dc_connections),
      ack_timeout_min(options.ack_timeout_min) {}

void Engine::wait_for_release(QueuePair& qp, std::uint64_t number) {
  qp.awaited_frame_ = number;
  unreleased.push_back(qp);
}

// Addresses --------------------------------------------------------------------------------------

const wire::IbHeader* Engine::make_path_header(QueuePair& qp) {
  wire::IbAddress address;
  const auto missing = addresses.make_address(qp.attributes_.path, address);
  if (missing != Reason::kNone) {
    note(qp, "packet not sent", missing);
    return nullptr;
  }
  qp.path_header_.header = wire::IbHeader(address);
  qp.path_header_.generation = addresses.generation();
  return &qp.path_header_.header;
}

// Inspection -------------------------------------------------------------------------------------

void Engine::event(QueuePair& qp, QpEvent what, Reason reason) {
  qp.queues_.handle_event(what, reason);
}

void Engine::drop(const QueuePair* qp, Drop counter, Reason why, std::string_view detail,
                  unsigned packets) {
  counters.dropped[static_cast<std::size_t>(counter)] += packets;
  if (!util::log_enabled(util::LogLevel::kDebug)) return;
  const auto& info = describe(why);
  notes.debug("packet for QP {:#x} dropped: {}{}{} ({}, reason {})",
              qp != nullptr ? qp->qpn().value() : 0, info.text, detail.empty() ? "" : ": ", detail,
              info.section, static_cast<unsigned>(why));
}

void Engine::note(const QueuePair& qp, std::string_view what, Reason why) {
  // The device has already logged the fault in its own words.
  if (is_of_device(why)) return;
  const auto& info = describe(why);
  notes.info("QP {:#x}: {}: {} ({}, reason {})", qp.qpn().value(), what, info.text, info.section,
             static_cast<unsigned>(why));
}

/// False if the fault is not a signature mismatch.
bool Engine::report_signature_errors(QueuePair& qp, Reason fault, bool sends) {
  for (const auto& error : keys.signature_errors().pending()) {
    qp.queues_.handle_signature_error(error, sends, sends ? XrcSrqn{} : qp.responder_->srqn());
  }
  keys.signature_errors().clear();
  return fault == Reason::kSignatureMismatch;
}

}  // namespace softhca::rdma
