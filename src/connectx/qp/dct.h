// A target of dynamic connections as its driver made it (mlx5 driver interface 7.10): the DCT
// context. Its receives are those of an SRQ; connections and answers are the transport's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/qp/cqe.h"
#include "hca/use.h"
#include "rdma/dc_target.h"
#include "rdma/work_queues.h"
#include "spec/connectx/dct.h"
#include "util/field.h"

namespace softhca::connectx {

class Rdma;

class Dct final : private rdma::WorkQueues {
 public:
  using Context = spec::connectx::dctc;
  using State = spec::connectx::dct_state;

  /// What the context refers to.
  struct Uses {
    hca::Use pd;
    hca::Use cq;
    hca::Use srq;
  };

  Dct(Qpn dctn, util::View<Context> context, Uses uses, Rdma& rdma);

  Qpn dctn() const { return dctn_; }
  util::View<Context> context() const { return context_; }
  Cqn cqn() const { return Cqn(context().get(Context::cqn)); }
  Srqn srqn() const { return Srqn(context().get(Context::srqn_xrqn)); }
  /// What CQEs carry as user index. In version 0, whose drivers find their SRQ by its number, it
  /// is that.
  std::uint32_t cqe_user_index() const {
    const auto index = context().get(Context::user_index);
    return index == kNoUserIndex ? srqn().value() : index;
  }
  /// What the context means to the transport.
  rdma::QpAttributes attributes() const;
  /// The transport's side.
  rdma::WorkQueues& queues() { return *this; }

  State state = State::ACTIVE;
  bool armed = false;   ///< an event is asked for when a request has another key
  bool failed = false;  ///< its CQ cannot be written
  /// One of its connections waits for a page. The event's token is the DCT, so the others wait for
  /// their turn.
  bool fault_open = false;

 private:
  friend class Rdma;

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
  Rdma& rdma_;
};

}  // namespace softhca::connectx
