// The registered memory of a host by places, and its queues for all peers.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>

#include "driver/expect.h"
#include "fleet.h"

namespace softhca::bad_network {

using Random = std::mt19937_64;
/// Uniform enough, and the same on every platform.
inline unsigned below(Random& random, unsigned n) { return static_cast<unsigned>(random() % n); }

/// The soak ends with the first promise that does not hold.
template <class... Args>
void promise(bool holds, fmt::format_string<Args...> format, const Args&... args) {
  if (holds) return;
  throw std::runtime_error(fmt::vformat(format, fmt::make_format_args(args...)));
}

inline constexpr unsigned kHosts = 8;
/// Most requests of a flow that are under way.
inline constexpr unsigned kWindow = 8;
/// Receives that a connection keeps posted.
inline constexpr unsigned kReceives = 16;
inline constexpr unsigned kMessageMax = 4096;
inline constexpr unsigned kDatagramMax = 1024;
/// Bytes in front of a received datagram.
inline constexpr unsigned kGrh = 40;

/// Offsets in the memory of a host.
struct Places {
  static constexpr std::size_t kPattern = 0;                       ///< what requests send and read
  static constexpr std::size_t kPatternSize = 65536;               ///< never changes
  static constexpr std::size_t kShared = kPattern + kPatternSize;  ///< counter of all peers
  static constexpr std::size_t kPeers = kShared + 4096;
  static constexpr std::size_t kPeerSize = 36 * std::size_t{kMessageMax};
  static constexpr std::size_t kDatagrams = kPeers + kHosts * kPeerSize;
  static constexpr std::size_t kDatagramSize = 2048;
  static constexpr std::size_t kSize = kDatagrams + kReceives * kDatagramSize;

  // Used by peer `p`.
  static constexpr std::size_t counter(unsigned p) { return kPeers + p * kPeerSize; }
  static constexpr std::size_t word(unsigned p) { return counter(p) + 8; }
  // Used by this host for peer `p`.
  static constexpr std::size_t result(unsigned p, unsigned slot) {
    return counter(p) + 64 + 8 * std::size_t{slot};
  }
  // The targets of WRITEs of `p`, of READs from `p`, and of SENDs of `p`.
  static constexpr std::size_t written(unsigned p, unsigned slot) {
    return counter(p) + (1 + std::size_t{slot}) * kMessageMax;
  }
  static constexpr std::size_t read(unsigned p, unsigned slot) {
    return counter(p) + (1 + kWindow + std::size_t{slot}) * kMessageMax;
  }
  static constexpr std::size_t received(unsigned p, unsigned slot) {
    return counter(p) + (1 + 2 * kWindow + std::size_t{slot}) * kMessageMax;
  }
  static constexpr std::size_t datagram(unsigned slot) { return kDatagrams + slot * kDatagramSize; }
};
static_assert(1 + 2 * kWindow + kReceives <= 36);

/// Memory at addresses that are the same in every run, because packets carry them.
class HostMemory {
 public:
  explicit HostMemory(std::size_t size);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  std::span<std::byte> bytes() { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

struct Site {
  Site(Fleet& fleet, unsigned host, std::span<std::byte> memory);

  std::byte* at(std::size_t offset) { return memory.data() + offset; }
  std::uint64_t load(std::size_t offset) const;
  driver::Sge piece(std::size_t offset, std::size_t length) const {
    return region.piece(offset, length);
  }

  unsigned host;
  std::span<std::byte> memory;
  driver::verbs::ProtectionDomain pd;
  driver::verbs::MemoryRegion region;
  driver::verbs::CompletionQueue sends;
  driver::verbs::CompletionQueue receives;
};

}  // namespace softhca::bad_network
