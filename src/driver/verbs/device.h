// The verbs: one interface to every HCA that a driver of ours drives.
//
//   verbs::Device device = ...;                      from a driver: connectx/verbs_device.h
//   auto pd = device.allocate_pd().value();
//   auto memory = pd.register_memory(bytes, MemoryAccess::all()).value();
//   auto cq = device.create_cq().value();
//   auto qp = pd.create_qp({.send_cq = cq, .receive_cq = cq}).value();
//   connect(qp, other_qp);                           connection.h
//   qp.post_send({.pieces = memory.pieces()});
//   auto done = cq.wait();
//
// These are handles: they can be moved, and what they stand for goes with them. Each keeps what it
// is made of alive, so the order in which they go does not matter. Whatever can fail says why in
// words (util::Result); posting and polling allocate nothing, throw nothing and make no system
// call.
//
// Single-threaded: a device and all that is made on it belong to one thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "driver/verbs/backend.h"

namespace softhca::driver::verbs {

class ProtectionDomain;
class CompletionQueue;

namespace detail {
struct DeviceNode {
  std::vector<Gid> gids;  ///< as they were set
  std::unique_ptr<DeviceBackend> backend;
};
struct PdNode {
  std::shared_ptr<DeviceNode> device;
  std::unique_ptr<PdBackend> backend;
};
struct MrNode {
  std::shared_ptr<PdNode> pd;
  std::span<std::byte> memory;
  std::unique_ptr<MrBackend> backend;
};
struct CqNode {
  std::shared_ptr<DeviceNode> device;
  std::unique_ptr<CqBackend> backend;
};
struct SrqNode {
  std::shared_ptr<PdNode> pd;
  std::unique_ptr<SrqBackend> backend;
};
}  // namespace detail

class Device {
 public:
  explicit Device(std::unique_ptr<DeviceBackend> backend);

  const DeviceAttributes& attributes() const { return node_->backend->attributes(); }
  util::Result<bool> link_is_up() { return node_->backend->link_is_up(); }
  /// Entry `index` of the port's GID table: who its queue pairs are on the network.
  util::Result<void> set_gid(std::uint8_t index, const Gid& gid);
  /// All zero if it was not set.
  Gid gid(std::uint8_t index = 0) const;
  /// Nothing if the device has `feature`; else why not, and where its document says so.
  util::Result<void> require(Feature feature) const {
    return verbs::require(attributes(), feature);
  }

  util::Result<ProtectionDomain> allocate_pd();
  /// With room for at least so many completions.
  util::Result<CompletionQueue> create_cq(unsigned entries = 256);

  /// The next event that is no completion.
  util::Result<std::optional<AsyncEvent>> poll_event() { return node_->backend->poll_event(); }
  /// The number of the next CQ that had something to tell after arm().
  std::optional<std::uint32_t> poll_completion_event() {
    return node_->backend->poll_completion_event();
  }
  /// Sleeps until there may be one, or `until`.
  void wait_completion_event(util::Time until) { node_->backend->wait_completion_event(until); }
  Host& host() { return node_->backend->host(); }

  /// Stops the device. The last handle does it too, but cannot tell of an error.
  util::Result<void> close();

 private:
  std::shared_ptr<detail::DeviceNode> node_;
};

class CompletionQueue {
 public:
  std::uint32_t number() const { return node_->backend->number(); }
  unsigned entries() const { return node_->backend->entries(); }

  /// Fills `out` with what has completed, in order, and returns how many there were. If there is
  /// nothing yet, lets the device work once and looks again.
  std::size_t poll(std::span<Completion> out) { return node_->backend->poll(out); }
  /// Polls until something completes; fails when `patience` ends, or if the device is gone.
  util::Result<Completion> wait(util::Duration patience = std::chrono::seconds(10));
  /// The next completion, or one that was not polled yet, makes an event
  /// (Device::poll_completion_event), once. Poll after arming, before sleeping.
  void arm(bool solicited_only = false) { node_->backend->arm(solicited_only); }
  /// Refused while a queue uses it. The handle's end does it too, once nobody does.
  util::Result<void> destroy();

 private:
  friend class Device;
  friend class ProtectionDomain;
  explicit CompletionQueue(std::shared_ptr<detail::CqNode> node) : node_(std::move(node)) {}
  std::shared_ptr<detail::CqNode> node_;
};

/// Registered memory. Work requests, here and at the peer, name its bytes by their addresses in
/// this program; it must stay where it is.
class MemoryRegion {
 public:
  std::uint32_t lkey() const { return node_->backend->lkey(); }
  std::uint32_t rkey() const { return node_->backend->rkey(); }
  std::span<std::byte> bytes() const { return node_->memory; }
  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(node_->memory.data()) + offset;
  }
  /// For a work request.
  Sge piece(std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), lkey()};
  }
  util::Result<void> destroy();

 private:
  friend class ProtectionDomain;
  explicit MemoryRegion(std::shared_ptr<detail::MrNode> node) : node_(std::move(node)) {}
  std::shared_ptr<detail::MrNode> node_;
};

class SharedReceiveQueue {
 public:
  std::uint32_t number() const { return node_->backend->number(); }
  PostStatus post(const ReceiveRequest& request) {
    auto status = PostStatus::kOk;
    (void)node_->backend->post({&request, 1}, status);
    return status;
  }
  /// AsyncEventType::kSrqLimitReached when fewer than `limit` requests are left, once; 0: never.
  util::Result<void> arm_limit(unsigned limit);
  util::Result<void> destroy();

 private:
  friend class ProtectionDomain;
  explicit SharedReceiveQueue(std::shared_ptr<detail::SrqNode> node) : node_(std::move(node)) {}
  std::shared_ptr<detail::SrqNode> node_;
};

class QueuePair;

struct QpOptions {
  QpType type = QpType::kRc;
  CompletionQueue& send_cq;
  CompletionQueue& receive_cq;
  SharedReceiveQueue* srq = nullptr;
  Capacity capacity = {};
};

class ProtectionDomain {
 public:
  util::Result<MemoryRegion> register_memory(std::span<std::byte> memory, MemoryAccess access = {});
  util::Result<SharedReceiveQueue> create_srq(unsigned requests = 64, unsigned pieces = 4);
  util::Result<QueuePair> create_qp(const QpOptions& options);
  /// An address handle: where datagrams go.
  util::Result<AddressForm> make_address(const Path& path);
  /// Refused while something is made on it. The handle's end does it too, once nothing is.
  util::Result<void> destroy();

 private:
  friend class Device;
  explicit ProtectionDomain(std::shared_ptr<detail::PdNode> node) : node_(std::move(node)) {}
  std::shared_ptr<detail::PdNode> node_;
};

}  // namespace softhca::driver::verbs
