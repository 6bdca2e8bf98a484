// The verbs: one interface to every HCA with a softhca driver.
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
// These are movable handles. Each keeps the objects that it depends on alive, so that they may be
// destroyed in any order. Functions that can fail return a reason in text (util::Result). Posting
// and polling allocate nothing, throw nothing and make no system call.
//
// Single-threaded: one thread uses a device and everything made on it.
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
  std::vector<Gid> gids;  ///< as set_gid() set them
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
  /// Sets entry `index` of the port's GID table: the network address of its queue pairs.
  util::Result<void> set_gid(std::uint8_t index, const Gid& gid);
  /// All zero if the entry was not set.
  Gid gid(std::uint8_t index = 0) const;
  /// Succeeds if the device has `feature`; else fails with the reason, and the section of the
  /// device's document.
  util::Result<void> require(Feature feature) const {
    return verbs::require(attributes(), feature);
  }

  util::Result<ProtectionDomain> allocate_pd();
  /// With room for at least `entries` completions.
  util::Result<CompletionQueue> create_cq(unsigned entries = 256);

  /// The next event other than a completion.
  util::Result<std::optional<AsyncEvent>> poll_event() { return node_->backend->poll_event(); }
  /// The number of the next CQ that raised an event after arm().
  std::optional<std::uint32_t> poll_completion_event() {
    return node_->backend->poll_completion_event();
  }
  /// Sleeps until a completion event may be pending, or until `until`.
  void wait_completion_event(util::Time until) { node_->backend->wait_completion_event(until); }
  Host& host() { return node_->backend->host(); }

  /// Stops the device. The last handle does it too, but cannot report an error.
  util::Result<void> close();

 private:
  std::shared_ptr<detail::DeviceNode> node_;
};

class CompletionQueue {
 public:
  std::uint32_t number() const { return node_->backend->number(); }
  unsigned entries() const { return node_->backend->entries(); }

  /// Polls: fills `out` with completions in order, and returns how many there were. If there is
  /// none, lets the device work once and polls again.
  std::size_t poll(std::span<Completion> out) { return node_->backend->poll(out); }
  /// Polls until a request completes; fails after `patience`, or if the device is gone.
  util::Result<Completion> wait(util::Duration patience = std::chrono::seconds(10));
  /// Requests one event (Device::poll_completion_event), for the next completion or for one that
  /// was not polled yet. Poll after arming, before sleeping.
  void arm(bool solicited_only = false) { node_->backend->arm(solicited_only); }
  /// Fails while a queue uses it. The last handle's destructor does it too.
  util::Result<void> destroy();

 private:
  friend class Device;
  friend class ProtectionDomain;
  explicit CompletionQueue(std::shared_ptr<detail::CqNode> node) : node_(std::move(node)) {}
  std::shared_ptr<detail::CqNode> node_;
};

/// Registered memory. Work requests, here and at the peer, name its bytes by their addresses in
/// this program. It must not move while it is registered.
class MemoryRegion {
 public:
  std::uint32_t lkey() const { return node_->backend->lkey(); }
  std::uint32_t rkey() const { return node_->backend->rkey(); }
  std::span<std::byte> bytes() const { return node_->memory; }
  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(node_->memory.data()) + offset;
  }
  /// `length` bytes from `offset` on, for a work request.
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
  /// Requests one AsyncEventType::kSrqLimitReached when fewer than `limit` requests are left; 0:
  /// none.
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
  /// Makes an address handle: the destination of datagrams.
  util::Result<AddressForm> make_address(const Path& path);
  /// Fails while an object of this PD exists. The last handle's destructor does it too.
  util::Result<void> destroy();

 private:
  friend class Device;
  explicit ProtectionDomain(std::shared_ptr<detail::PdNode> node) : node_(std::move(node)) {}
  std::shared_ptr<detail::PdNode> node_;
};

}  // namespace softhca::driver::verbs
