// A queue pair of any service. Its states are those of IBTA 10.3.1; connection.h makes the
// transitions for a program that only wants to send.
#pragma once

#include <memory>
#include <span>

#include "driver/verbs/device.h"

namespace softhca::driver::verbs {

namespace detail {
struct QpNode {
  std::shared_ptr<PdNode> pd;
  std::shared_ptr<CqNode> send_cq;
  std::shared_ptr<CqNode> receive_cq;
  std::shared_ptr<SrqNode> srq;
  QpType type = QpType::kRc;
  QpState state = QpState::kReset;
  std::unique_ptr<QpBackend> backend;
};
}  // namespace detail

class QueuePair {
 public:
  std::uint32_t number() const { return node_->backend->number(); }
  QpType type() const { return node_->type; }
  /// The device of the port that it sends from.
  const DeviceAttributes& device() const { return node_->pd->device->backend->attributes(); }
  Gid gid(std::uint8_t index = 0) const;

  // States -------------------------------------------------------------------------------------

  /// MODIFY QP. A transition that no device may make (IBTA 11.2.4.2) is refused with a reason
  /// before the device is asked.
  util::Result<void> modify(const QpAttributes& attributes);
  /// The state that the device reports: the queue pair may have entered ERR by itself.
  util::Result<QpState> query_state() { return node_->backend->query_state(); }
  /// From any state. Posted requests, and those posted later, complete with WorkStatus::kFlushed.
  util::Result<void> to_error() { return modify({.state = QpState::kError}); }
  /// From any state. Posted requests are dropped without a completion.
  util::Result<void> to_reset() { return modify({.state = QpState::kReset}); }

  // Work ---------------------------------------------------------------------------------------

  // IBTA 10.3.1: posting a send is an immediate error in RESET, INIT and RTR.

  PostStatus post_send(const SendRequest& request) {
    auto status = PostStatus::kOk;
    (void)post_send({&request, 1}, status);
    return status;
  }
  /// Posts in order. Returns how many were posted; `status` is that of the first request that was
  /// not.
  std::size_t post_send(std::span<const SendRequest> requests, PostStatus& status) {
    if (node_->state < QpState::kRts) [[unlikely]] {
      status = PostStatus::kWrongState;
      return 0;
    }
    return node_->backend->post_send(requests, status);
  }
  PostStatus post_receive(const ReceiveRequest& request) {
    auto status = PostStatus::kOk;
    (void)node_->backend->post_receive({&request, 1}, status);
    return status;
  }
  std::size_t post_receive(std::span<const ReceiveRequest> requests, PostStatus& status) {
    return node_->backend->post_receive(requests, status);
  }

  // Multicast ----------------------------------------------------------------------------------

  util::Result<void> attach(const Gid& group);
  util::Result<void> detach(const Gid& group);

  util::Result<void> destroy();

 private:
  friend class ProtectionDomain;
  explicit QueuePair(std::shared_ptr<detail::QpNode> node) : node_(std::move(node)) {}
  std::shared_ptr<detail::QpNode> node_;
};

}  // namespace softhca::driver::verbs
