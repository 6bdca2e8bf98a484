// Two devices and what perf needs on each: memory, queues, a connection.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cli/perf/function.h"
#include "cli/perf/options.h"
#include "cli/perf/peer.h"
#include "driver/dma_memory.h"
#include "driver/verbs/verbs.h"
#include "lab/lab.h"

namespace softhca::cli::perf {

namespace verbs = driver::verbs;

/// Requests, and receives, of a queue for a latency: one of them is under way at a time.
inline constexpr unsigned kLatencyDepth = 32;

/// One end.
struct Side {
  Side(verbs::Device& on, const Options& options, std::size_t memory_size);

  /// Posts a request of `size` bytes to the peer; of data in the request if they fit.
  driver::PostStatus post(const Options& options, std::size_t size, std::uint64_t id,
                          bool signaled);
  /// Posts a receive for a message of `size` bytes.
  driver::PostStatus receive(std::size_t size);
  /// Where the peer's messages are written, and where it finds the last byte of one.
  std::byte* target() { return memory.data() + memory.size() / 2; }

  verbs::Device& device;
  driver::DmaBuffer buffer;     ///< the host's: a server reaches it without messages
  std::span<std::byte> memory;  ///< of it: what is sent; from its half on, what comes
  verbs::ProtectionDomain pd;
  verbs::MemoryRegion region;
  verbs::CompletionQueue send_cq;
  verbs::CompletionQueue receive_cq;
  verbs::QueuePair qp;
  unsigned inline_size;
  verbs::Endpoint peer;              ///< once connected
  driver::AddressForm peer_address;  ///< UD
};

class Station {
 public:
  /// Refuses in words what the devices cannot do. `peer`: null if both ends are here; it outlives
  /// the station.
  static util::Result<std::unique_ptr<Station>> create(const Options& options,
                                                       std::uint64_t largest, Peer* peer);

  Side& a() { return *a_; }
  /// @pre both ends are here
  Side& b() { return *b_; }
  /// Null: both ends are here.
  Peer* peer() { return peer_; }
  /// A device that is here does not answer any more.
  bool lost() { return a_->device.host().lost() || (b_ != nullptr && b_->device.host().lost()); }
  /// The models of both ends are known now.
  const Options& options() const { return options_; }
  /// Both queue pairs anew: nothing is posted.
  util::Result<void> reconnect();

 private:
  Station(const Options& options, Peer* peer) : options_(options), peer_(peer) {}
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

}  // namespace softhca::cli::perf
