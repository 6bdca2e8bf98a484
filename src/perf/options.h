// The options of `softhca perf`, named as in perftest where possible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/verbs/types.h"

namespace softhca::perf {

enum class Verb : std::uint8_t { kSend, kWrite, kRead, kAtomic };

/// The two HCAs, and the link between them.
struct Ends {
  std::vector<std::string> devices;  ///< the measuring device, and its peer
  bool infiniband = false;           ///< the link between them; else Ethernet
  /// Existing HCAs: PCI addresses or sockets. Empty: create them in this process.
  std::vector<std::string> functions;
  bool listens = false;  ///< wait for another process, which measures
  std::string peer;      ///< host where another process listens; that is the peer
  std::uint16_t tcp_port = 18515;

  bool has_remote_peer() const { return listens || !peer.empty(); }
};

/// QPs and their CQs.
struct Queues {
  driver::verbs::QpType service = driver::verbs::QpType::kRc;
  unsigned mtu = 4096;                  ///< bytes
  unsigned timeout = 14;                ///< 4.096 us * 2^n
  unsigned tx_depth = 128;              ///< outstanding requests
  unsigned rx_depth = 512;              ///< posted receives
  unsigned cq_mod = 100;                ///< one signaled request in this many
  unsigned reads = 16;                  ///< outstanding READs and atomics
  std::optional<unsigned> inline_size;  ///< maximum bytes of inline data
};

/// Sizes of messages, and how many of each.
struct Messages {
  std::optional<std::uint64_t> size;        ///< bytes
  bool all_sizes = false;                   ///< 2 to 2^23
  std::optional<std::uint64_t> iterations;  ///< per size
  double duration = 0;                      ///< seconds per size; 0: iterations count
};

/// Tables and files of results.
struct Output {
  bool no_peak = false;  ///< bandwidth: average only
  bool gbits = false;    ///< bandwidth in gigabits per second
  std::string json;      ///< file
  std::string plot;      ///< file
};

struct Options {
  Verb verb = Verb::kWrite;
  bool bandwidth = true;
  bool latency = true;
  bool compare_and_swap = false;  ///< atomics: instead of fetch and add
  bool bidirectional = false;
  Ends ends;
  Queues queues;
  Messages messages;
  Output output;

  bool is_send() const { return verb == Verb::kSend; }
};

/// "RDMA_Write".
std::string_view to_string(Verb verb);
/// The sizes to measure, ascending.
std::vector<std::uint64_t> sizes_of(const Options& options, bool of_bandwidth);

}  // namespace softhca::perf
