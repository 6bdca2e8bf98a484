// A target of dynamic connections (mlx5 driver interface 7.10): the DCT context that its driver
// wrote. It takes receive WQEs from an SRQ; the transport handles connections and answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/event/event_queue.h"
#include "connectx/qp/completion_writer.h"
#include "connectx/qp/page_faults.h"
#include "connectx/qp/shared_receive_queues.h"
#include "hca/use.h"
#include "rdma/dc_target.h"
#include "rdma/work_queues.h"
#include "spec/connectx/dct.h"
#include "util/field.h"
#include "util/notes.h"

namespace softhca::connectx {

class Dct final : private rdma::WorkQueues {
 public:
  using Context = spec::connectx::dctc;
  using State = spec::connectx::dct_state;

  /// Keeps the objects that the context refers to.
  struct Uses {
    hca::Use pd;
    hca::Use cq;
    hca::Use srq;
  };

  /// The parts of the device that serve a DCT.
  struct Parts {
    const Limits& limits;
    EventQueues& event_queues;
    SharedReceiveQueues& shared_queues;
    PageFaults& page_faults;
    CompletionWriter& completion_writer;
    util::Notes& notes;
  };

  Dct(Qpn dctn, util::View<Context> context, Uses uses, const Parts& parts);

  Qpn dctn() const { return dctn_; }
  util::View<Context> context() const { return context_; }
  Cqn cqn() const { return Cqn(context().get(Context::cqn)); }
  Srqn srqn() const { return Srqn(context().get(Context::srqn_xrqn)); }
  /// The user index in CQEs. In CQE version 0 it is the SRQ number, by which drivers find the SRQ.
  std::uint32_t cqe_user_index() const {
    const auto index = context().get(Context::user_index);
    return index == kNoUserIndex ? srqn().value() : index;
  }
  /// The context, converted to the transport's attributes.
  rdma::QpAttributes attributes() const;
  /// The interface for the transport.
  rdma::WorkQueues& queues() { return *this; }

  State state = State::ACTIVE;
  bool armed = false;   ///< a request with a wrong key posts an event
  bool failed = false;  ///< its CQ cannot be written
  /// A connection waits for a page. The event's token names only the DCT, so page faults of other
  /// connections wait until this one is resolved.
  bool fault_open = false;

 private:
  rdma::Fetch fetch_send(rdma::SendRequest&) override { return rdma::Fetch::kNothing; }
  void restart_send() override {}
  void complete_send(const rdma::SendCompletion&) override {}
  rdma::Fetch fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) override;
  void complete_receive(const rdma::ReceiveCompletion& completion) override;
  void complete_receive_with(const rdma::ReceiveCompletion& completion,
                             std::span<const std::byte> data) override;
  void handle_event(rdma::QpEvent event, rdma::Reason reason) override;
  void handle_signature_error(const rdma::SignatureError& error, bool sends,
                              rdma::XrcSrqn srqn) override;
  rdma::FaultAnswer open_fault(const rdma::PageFault& fault) override;
  void close_fault() override;

  Qpn dctn_;
  util::Struct<Context> context_;
  Uses uses_;
  const Parts& parts_;
};

}  // namespace softhca::connectx
