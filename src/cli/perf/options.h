// What `softhca perf` is asked for: perftest's options, where it has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/verbs/types.h"

namespace softhca::cli::perf {

enum class Verb : std::uint8_t { kSend, kWrite, kRead, kAtomic };

struct Options {
  Verb verb = Verb::kWrite;
  bool bandwidth = true;
  bool latency = true;
  std::vector<std::string> devices;  ///< who measures, and its peer
  bool infiniband = false;           ///< the link between them; else Ethernet
  /// Where the HCAs are, if they are not made in this process: PCI addresses, or sockets.
  std::vector<std::string> functions;
  bool listens = false;  ///< the peer is another process, which measures
  std::string peer;      ///< the peer is another process, which listens at this host
  std::uint16_t tcp_port = 18515;
  driver::verbs::QpType service = driver::verbs::QpType::kRc;
  std::optional<std::uint64_t> size;        ///< bytes of a message
  bool all_sizes = false;                   ///< 2 to 2^23
  std::optional<std::uint64_t> iterations;  ///< per size
  double duration = 0;                      ///< seconds per size; 0: iterations count
  unsigned mtu = 4096;                      ///< bytes
  unsigned timeout = 14;                    ///< of a queue pair: 4.096 us * 2^n
  unsigned tx_depth = 128;                  ///< requests under way
  unsigned rx_depth = 512;                  ///< receives that are posted
  unsigned cq_mod = 100;                    ///< one completion for so many requests
  unsigned reads = 16;                      ///< READs and atomics under way
  std::optional<unsigned> inline_size;      ///< bytes that go in the request
  bool compare_and_swap = false;            ///< atomics: otherwise fetch and add
  bool bidirectional = false;
  bool no_peak = false;  ///< bandwidth: the average alone
  bool gbits = false;    ///< bandwidth in gigabits a second
  std::string json;      ///< file
  std::string plot;      ///< file

  bool is_send() const { return verb == Verb::kSend; }
  bool has_remote_peer() const { return listens || !peer.empty(); }
};

/// "RDMA_Write".
std::string_view to_string(Verb verb);
/// The sizes to be measured, ascending.
std::vector<std::uint64_t> sizes_of(const Options& options, bool of_bandwidth);

}  // namespace softhca::cli::perf
