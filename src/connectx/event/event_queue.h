// Event queues (PRM 7.13): EQEs in host memory, mapped event types, arming, and the MSI-X vector.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "connectx/base/health.h"
#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/queue/mapped_queue.h"
#include "hca/faults.h"
#include "hca/object_table.h"
#include "hca/published_ring.h"
#include "hca/use.h"
#include "pcie/msix.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"
#include "util/notes.h"
#include "util/trace.h"

namespace softhca::connectx {

class EventQueues;

inline constexpr std::size_t kEqeSize = 64;
/// Bytes 0x20..0x3B of an EQE.
using EventData = std::array<std::byte, 28>;

class EventQueue : public hca::Used {
 public:
  struct Attributes {
    unsigned log_size = 0;
    UarPage uar_page;
    std::uint16_t vector = 0;  ///< MSI-X
    bool overrun_ignore = false;
    std::uint32_t log_page_size = 0;  ///< as in the context
    std::bitset<256> events;          ///< event types mapped to this EQ
    MappedQueue queue;
    hca::Use uar_use;
  };

  EventQueue(Eqn eqn, Attributes attributes, pcie::Msix& msix, const EventQueues& all);

  Eqn eqn() const { return eqn_; }
  const Attributes& attributes() const { return attributes_; }
  const hca::PublishedRing& ring() const { return ring_; }
  bool armed() const { return armed_; }
  spec::connectx::eq_status status() const;

  /// Writes an EQE and raises the interrupt if the EQ is armed. If this returns false, the event is
  /// lost: the queue is full, or its memory is not mapped and the EQ has failed permanently.
  bool post(std::uint8_t event_type, std::uint8_t sub_type, const EventData& data);

  /// Handles the EQ doorbell: software has consumed up to `consumer` (24 bits). `arm`: it requests
  /// an interrupt for the next event (PRM 7.13.2).
  void handle_doorbell(std::uint32_t consumer, bool arm);

 private:
  void raise(std::optional<std::uint32_t> cqn = std::nullopt);

  Eqn eqn_;
  Attributes attributes_;
  hca::PublishedRing ring_;
  pcie::Msix& msix_;
  const EventQueues& all_;
  bool armed_ = false;
  bool failed_ = false;
};

/// All EQs of a device, and the mapping of asynchronous event types to EQs.
class EventQueues {
 public:
  EventQueues(pcie::Msix& msix, const Limits& limits, Health& health, util::Notes& notes)
      : msix_(msix), health_(health), notes_(notes), table_(0, Limits::count(limits.log_max_eq)) {}

  EventQueue* create(EventQueue::Attributes attributes);
  EventQueue* find(Eqn eqn) { return table_.find(eqn); }
  void destroy(Eqn eqn);
  const hca::ObjectTable<EventQueue, Eqn>& all() const { return table_; }

  /// The EQ that events of this type are mapped to. Unset if there is none.
  std::optional<Eqn> mapped(spec::connectx::event_type type) const {
    return owner_[static_cast<std::uint8_t>(type)];
  }

  /// Posts an asynchronous event to the EQ that its type is mapped to. If there is none, drops the
  /// event.
  void post(spec::connectx::event_type type, std::uint8_t sub_type, const EventData& data);
  /// Posts a completion event of `cqn` to the CQ's own EQ. @pre find(eqn) != nullptr
  void post_completion(Eqn eqn, Cqn cqn);
  /// Data of an event about a queue (PRM 7.13.5). The queue type of an SRQ is QP, as drivers
  /// expect.
  static EventData queue_data(Qpn qpn);
  static EventData queue_data(Srqn srqn);
  static EventData queue_data(Sqn sqn);
  static EventData queue_data(Rqn rqn);
  static EventData dct_data(Qpn dctn);

  /// Converts one of the document's event_data structures to the data part of an EQE.
  template <class Layout>
  static EventData event_data(const util::Struct<Layout>& structure) {
    static_assert(Layout::kSize == std::tuple_size_v<EventData>);
    EventData data;
    const auto bytes = structure.bytes();
    std::copy(bytes.begin(), bytes.end(), data.begin());
    return data;
  }

  /// The fault rules. `hook` must outlive this.
  void set_faults(const hca::FaultHook& hook) { faults_ = &hook; }
  const hca::FaultHook& faults() const { return *faults_; }
  /// True if a fault rule drops the interrupt of an EQ. `cqn`: the CQ whose event it reports.
  bool loses_interrupt(std::optional<std::uint32_t> cqn) const;

  util::Notes& notes() { return notes_; }
  /// Trace of completions and events. Null: no trace.
  util::Trace* trace() const { return trace_; }
  void set_trace(util::Trace* trace) { trace_ = trace; }

 private:
  void note(Eqn eqn, std::string_view type, std::uint32_t cqn);
  void lost(const EventQueue& eq, std::string_view type);

  static constexpr hca::FaultHook kNoFaults{};
  const hca::FaultHook* faults_ = &kNoFaults;
  pcie::Msix& msix_;
  Health& health_;
  util::Notes& notes_;
  hca::ObjectTable<EventQueue, Eqn> table_;
  std::array<std::optional<Eqn>, 256> owner_;  ///< by event type
  util::Trace* trace_ = nullptr;
};

}  // namespace softhca::connectx
