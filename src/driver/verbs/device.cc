#include "driver/verbs/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "driver/host.h"
#include "driver/verbs/queue_pair.h"

namespace softhca::driver::verbs {

namespace {

/// The equivalent of EBUSY in the kernel's verbs.
tl::unexpected<util::Error> in_use(std::string_view what) {
  return util::fail(fmt::format("{}: something that was made with it is still there", what));
}

template <class Node>
util::Result<void> destroy_node(std::shared_ptr<Node>& node, std::string_view what) {
  if (node == nullptr) return {};
  if (node.use_count() > 1) return in_use(what);
  auto done = node->backend->destroy();
  if (done) node = nullptr;
  return done;
}

}  // namespace

Device::Device(std::unique_ptr<DeviceBackend> backend)
    : node_(std::make_shared<detail::DeviceNode>()) {
  node_->backend = std::move(backend);
}

util::Result<void> Device::set_gid(std::uint8_t index, const Gid& gid) {
  auto done = node_->backend->set_gid(index, gid);
  if (!done) return done;
  if (node_->gids.size() <= index) node_->gids.resize(index + std::size_t{1});
  node_->gids[index] = gid;
  return done;
}

Gid Device::gid(std::uint8_t index) const {
  return index < node_->gids.size() ? node_->gids[index] : Gid();
}

util::Result<ProtectionDomain> Device::allocate_pd() {
  auto pd = node_->backend->allocate_pd();
  if (!pd) return tl::unexpected(pd.error());
  return ProtectionDomain(std::make_shared<detail::PdNode>(detail::PdNode{node_, std::move(*pd)}));
}

util::Result<CompletionQueue> Device::create_cq(unsigned entries) {
  auto cq = node_->backend->create_cq({.entries = entries});
  if (!cq) return tl::unexpected(cq.error());
  return CompletionQueue(std::make_shared<detail::CqNode>(detail::CqNode{node_, std::move(*cq)}));
}

util::Result<void> Device::close() {
  if (node_ == nullptr) return {};
  if (node_.use_count() > 1) return in_use(attributes().model);
  auto done = node_->backend->close();
  node_ = nullptr;
  return done;
}

util::Result<Completion> CompletionQueue::wait(util::Duration patience) {
  auto& host = node_->device->backend->host();
  const auto until = host.now() + patience;
  Completion done;
  while (poll({&done, 1}) == 0) {
    if (host.lost()) return util::fail(Host::kLost);
    if (host.now() >= until) {
      return util::fail(fmt::format("CQ {:#x}: nothing completes within {} ms", number(),
                                    patience / std::chrono::milliseconds(1)));
    }
  }
  return done;
}

util::Result<void> CompletionQueue::destroy() { return destroy_node(node_, "completion queue"); }
util::Result<void> MemoryRegion::destroy() { return destroy_node(node_, "memory region"); }
util::Result<void> SharedReceiveQueue::destroy() {
  return destroy_node(node_, "shared receive queue");
}
util::Result<void> ProtectionDomain::destroy() { return destroy_node(node_, "protection domain"); }
util::Result<void> QueuePair::destroy() { return destroy_node(node_, "queue pair"); }

util::Result<void> SharedReceiveQueue::arm_limit(unsigned limit) {
  const auto& device = node_->pd->device->backend->attributes();
  if (auto has = require(device, Feature::kReceiveLimit); !has) return has;
  return node_->backend->arm_limit(limit);
}

util::Result<MemoryRegion> ProtectionDomain::register_memory(std::span<std::byte> memory,
                                                             MemoryAccess access) {
  if (memory.empty()) return util::fail("a memory region of 0 bytes");
  // IBTA 10.6.3.1: memory that the peer may write must be writable by the owner too.
  if ((access.remote_write || access.remote_atomic) && !access.local_write) {
    return util::fail("remote write and atomic access need local write access (IBTA 11.2.8.2)");
  }
  auto region = node_->device->backend->register_memory(*node_->backend, memory, access);
  if (!region) return tl::unexpected(region.error());
  return MemoryRegion(
      std::make_shared<detail::MrNode>(detail::MrNode{node_, memory, std::move(*region)}));
}

util::Result<SharedReceiveQueue> ProtectionDomain::create_srq(unsigned requests, unsigned pieces) {
  const auto& device = node_->device->backend->attributes();
  if (auto has = require(device, Feature::kSharedReceiveQueues); !has) {
    return tl::unexpected(has.error());
  }
  auto srq =
      node_->device->backend->create_srq(*node_->backend, {.requests = requests, .pieces = pieces});
  if (!srq) return tl::unexpected(srq.error());
  return SharedReceiveQueue(
      std::make_shared<detail::SrqNode>(detail::SrqNode{node_, std::move(*srq)}));
}

namespace {

util::Result<void> check(const DeviceAttributes& device, const QpOptions& options) {
  const auto& capacity = options.capacity;
  if (std::max(capacity.send_requests, capacity.receive_requests) > device.max_requests ||
      std::max(capacity.send_pieces, capacity.receive_pieces) > device.max_pieces) {
    return util::fail(fmt::format("{}: a queue has at most {} requests of {} pieces", device.model,
                                  device.max_requests, device.max_pieces));
  }
  if (options.type == QpType::kUc) return require(device, Feature::kUc);
  if (options.type != QpType::kRc && options.type != QpType::kUd) {
    return util::fail(
        fmt::format("queue pairs of {} cannot be made here (yet)", to_string(options.type)));
  }
  return {};
}

}  // namespace

util::Result<QueuePair> ProtectionDomain::create_qp(const QpOptions& options) {
  const auto& device = node_->device;
  const auto& srq = options.srq == nullptr ? nullptr : options.srq->node_;
  if (options.send_cq.node_->device != device || options.receive_cq.node_->device != device ||
      (srq != nullptr && srq->pd->device != device)) {
    return util::fail("a queue pair and its queues are of one device");
  }
  if (auto good = check(device->backend->attributes(), options); !good) {
    return tl::unexpected(good.error());
  }
  auto qp = device->backend->create_qp(*node_->backend,
                                       {.type = options.type,
                                        .send_cq = *options.send_cq.node_->backend,
                                        .receive_cq = *options.receive_cq.node_->backend,
                                        .srq = srq == nullptr ? nullptr : srq->backend.get(),
                                        .capacity = options.capacity});
  if (!qp) return tl::unexpected(qp.error());
  return QueuePair(
      std::make_shared<detail::QpNode>(detail::QpNode{.pd = node_,
                                                      .send_cq = options.send_cq.node_,
                                                      .receive_cq = options.receive_cq.node_,
                                                      .srq = srq,
                                                      .type = options.type,
                                                      .state = QpState::kReset,
                                                      .backend = std::move(*qp)}));
}

util::Result<AddressForm> ProtectionDomain::make_address(const Path& path) {
  return node_->device->backend->make_address(*node_->backend, path);
}

}  // namespace softhca::driver::verbs
