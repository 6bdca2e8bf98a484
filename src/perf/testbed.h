// Two devices with the resources that perf needs: memory, queues, a connection.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "driver/dma_memory.h"
#include "driver/verbs/verbs.h"
#include "lab/lab.h"
#include "perf/function.h"
#include "perf/options.h"
#include "perf/peer.h"

namespace softhca::perf {

namespace verbs = driver::verbs;

/// Depth of the queues for latency, where one request is outstanding at a time.
inline constexpr unsigned kLatencyDepth = 32;

/// One end of the connection.
struct Side {
  Side(verbs::Device& on, const Options& options, std::size_t memory_size);

  /// Posts a request of `size` bytes to the peer, with inline data if they fit.
  driver::PostStatus post(const Options& options, std::size_t size, std::uint64_t id,
                          bool signaled);
  /// Posts a receive for a message of `size` bytes.
  driver::PostStatus receive(std::size_t size);
  /// The buffer for the peer's messages.
  std::byte* target() { return memory.data() + memory.size() / 2; }

  verbs::Device& device;
  driver::DmaBuffer buffer;     ///< the host's: a server reaches it without messages
  std::span<std::byte> memory;  ///< of `buffer`: the first half is sent, the second half receives
  verbs::ProtectionDomain pd;
  verbs::MemoryRegion region;
  verbs::CompletionQueue send_cq;
  verbs::CompletionQueue receive_cq;
  verbs::QueuePair qp;
  unsigned inline_size;
  verbs::Endpoint peer;              ///< valid once connected
  driver::AddressForm peer_address;  ///< for UD
};

class Testbed {
 public:
  /// Fails with a message if the devices lack a feature. `peer`: null if both ends are in this
  /// process; it must outlive the testbed.
  static util::Result<std::unique_ptr<Testbed>> create(const Options& options,
                                                       std::uint64_t largest, Peer* peer);

  Side& a() { return *a_; }
  /// @pre both ends are in this process
  Side& b() { return *b_; }
  /// Null: both ends are in this process.
  Peer* peer() { return peer_; }
  /// Whether a device in this process does not respond any more.
  bool lost() { return a_->device.host().lost() || (b_ != nullptr && b_->device.host().lost()); }
  /// The options, with the models of both ends filled in.
  const Options& options() const { return options_; }
  /// Reconnects both QPs, with nothing posted.
  util::Result<void> reconnect();

 private:
  Testbed(const Options& options, Peer* peer) : options_(options), peer_(peer) {}
  void make_lab();
  util::Result<void> open_functions();
  verbs::Device& device(std::size_t index) {
    return lab_ ? lab_->device(index) : *functions_[index].device;
  }
  verbs::Endpoint describe(Side& side);
  util::Result<void> join(Side& side, const verbs::Endpoint& end);
  util::Result<void> connect();

  Options options_;
  Peer* peer_;
  std::unique_ptr<lab::Lab> lab_;
  std::vector<Function> functions_;
  std::unique_ptr<Side> a_;
  std::unique_ptr<Side> b_;
};

}  // namespace softhca::perf
