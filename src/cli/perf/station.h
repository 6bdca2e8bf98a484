// Two devices and what perf needs on each: memory, queues, a connection.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cli/perf/options.h"
#include "driver/verbs/verbs.h"
#include "lab/lab.h"

namespace softhca::cli::perf {

namespace verbs = driver::verbs;

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
  std::vector<std::byte> memory;  ///< what is sent; from its half on, what comes
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
  /// Refuses in words what the devices cannot do.
  static util::Result<std::unique_ptr<Station>> create(const Options& options,
                                                       std::uint64_t largest);

  Side& a() { return *a_; }
  Side& b() { return *b_; }
  const Options& options() const { return options_; }
  /// Both queue pairs anew: nothing is posted.
  util::Result<void> reconnect();

 private:
  explicit Station(const Options& options) : options_(options) {}
  util::Result<void> connect();

  Options options_;
  std::unique_ptr<lab::Lab> lab_;
  std::unique_ptr<Side> a_;
  std::unique_ptr<Side> b_;
};

}  // namespace softhca::cli::perf
