// Transport interfaces: TIS (PRM 7.6), TIR (PRM 7.5) and the RQ table (PRM 7.8).
//
// Each keeps the context that software wrote, for the QUERY commands, and the values that the data
// path needs.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "connectx/base/numbers.h"
#include "ethernet/packet_info.h"
#include "ethernet/rss.h"
#include "hca/use.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/raw_queues.h"
#include "util/budget.h"
#include "util/field.h"

namespace softhca::connectx {

/// A stored context.
template <class Layout>
class SavedContext {
 public:
  SavedContext() = default;
  explicit SavedContext(util::View<Layout> view) { *this = view; }
  SavedContext& operator=(util::View<Layout> view) {
    std::memcpy(bytes_.data(), view.bytes().data(), Layout::kSize);
    return *this;
  }
  util::MutableView<Layout> view() { return util::MutableView<Layout>(bytes_); }
  util::View<Layout> view() const { return util::View<Layout>(bytes_); }
  void copy_to(util::MutableView<Layout> out) const {
    std::memcpy(out.bytes().data(), bytes_.data(), Layout::kSize);
  }

 private:
  std::array<std::byte, Layout::kSize> bytes_{};
};

struct Tis : hca::Used {
  explicit Tis(Tisn tisn) : number(tisn) {}
  Tisn number;
  hca::Use domain_use;
  SavedContext<spec::connectx::tis_context> context;
  /// Progress of a MODIFY_TIS that looks for ready SQs: the next number, and the result so far.
  struct Look {
    std::uint32_t next = 0;
    bool found = false;
  } look;
  TransportDomain transport_domain() const {
    return TransportDomain(context.view().get(spec::connectx::tis_context::transport_domain));
  }
  /// Ethernet priority.
  unsigned priority() const { return context.view().get(spec::connectx::tis_context::prio); }
};

class ReceiveQueue;

/// Limit on the entries of all RQTs together, by their rqt_max_size. Drivers need less. Without it,
/// a hostile driver could exhaust the host with the tables that log_max_rqt allows.
inline constexpr std::uint64_t kRqtEntriesMax = 1u << 18;

struct Rqt : hca::Used {
  struct Entry {
    ReceiveQueue* queue = nullptr;
    hca::Use use;
  };

  explicit Rqt(Rqtn rqtn) : number(rqtn) {}
  Rqtn number;
  std::uint32_t max_size = 0;
  std::vector<Entry> entries;             ///< rqt_actual_size entries, a power of two
  util::Budget::Reservation reservation;  ///< for max_size entries, also after MODIFY_RQT

  ReceiveQueue& choose(std::uint32_t hash) const {
    return *entries[hash & (entries.size() - 1)].queue;
  }
};

struct Tir : hca::Used {
  /// The objects that the context refers to. One of `queue` and `table` is null.
  struct Destination {
    ReceiveQueue* queue = nullptr;
    Rqt* table = nullptr;
    hca::Use use;
    hca::Use domain_use;
  };

  /// The domain of TIRs without a transport domain, and of frames from consumers without one.
  static constexpr TransportDomain kNoDomain{0};

  explicit Tir(Tirn tirn) : number(tirn) {}

  Tirn number;

  const SavedContext<spec::connectx::tir_context>& context() const { return context_; }
  void set(const SavedContext<spec::connectx::tir_context>& context, Destination destination);

  /// The RQ of a direct TIR. Null for an indirect one.
  ReceiveQueue* queue() const { return destination_.queue; }
  /// The table of an indirect TIR. Null for a direct one.
  const Rqt* table() const { return destination_.table; }
  /// True if the TIR accepts a frame that its own function has sent from `domain` (PRM 3.4). Frames
  /// of other consumers are always accepted.
  bool accepts_loopback(TransportDomain domain, bool multicast) const;

  struct Hash {
    std::uint32_t value = 0;
    std::uint8_t type = 0;  ///< rx_hash_type of CQEs; 0: the packet has none of the selected fields
  };
  /// The RSS hash of a packet (PRM 3.3.3.1). @pre the TIR is indirect
  Hash hash(const ethernet::PacketInfo& packet, std::uint32_t rqt_max_size) const;

 private:
  SavedContext<spec::connectx::tir_context> context_;
  Destination destination_;
  std::uint32_t hash_fields_ = 0;
  bool symmetric_ = false;
  std::unique_ptr<ethernet::Toeplitz> toeplitz_;  ///< null: inverted XOR8
};

}  // namespace softhca::connectx
