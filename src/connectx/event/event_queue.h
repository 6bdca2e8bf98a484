// Event queues (PRM 7.13): EQEs in host memory, mapped event types, arming, and the MSI-X vector.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "connectx/base/limits.h"
#include "connectx/base/numbers.h"
#include "connectx/queue/mapped_queue.h"
#include "hca/object_table.h"
#include "hca/published_ring.h"
#include "pcie/msix.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/opcodes.h"
#include "util/clock.h"
#include "util/field.h"
#include "util/log.h"

namespace softhca::connectx {

inline constexpr std::size_t kEqeSize = 64;
/// Bytes 0x20..0x3B of an EQE.
using EventData = std::array<std::byte, 28>;

class EventQueue {
 public:
  struct Attributes {
    unsigned log_size = 0;
    UarPage uar_page;
    std::uint16_t vector = 0;  ///< MSI-X
    bool overrun_ignore = false;
    std::uint32_t log_page_size = 0;  ///< as in its context
    std::bitset<256> events;          ///< event types mapped to this EQ
    MappedQueue queue;
  };

  EventQueue(Eqn eqn, Attributes attributes, pcie::Msix& msix);

  Eqn eqn() const { return eqn_; }
  const Attributes& attributes() const { return attributes_; }
  const hca::PublishedRing& ring() const { return ring_; }
  bool armed() const { return armed_; }

  /// Writes an EQE and raises the interrupt if the EQ is armed. False if the queue is full or its
  /// memory is gone: the event is lost, as on overrun (PRM 7.13.11.1).
  bool post(std::uint8_t event_type, std::uint8_t sub_type, const EventData& data);

  /// The EQ doorbell: software has consumed up to `consumer` (24 bits), and wants an interrupt for
  /// what follows if `arm` (PRM 7.13.2).
  void handle_doorbell(std::uint32_t consumer, bool arm);

 private:
  void raise();

  Eqn eqn_;
  Attributes attributes_;
  hca::PublishedRing ring_;
  pcie::Msix& msix_;
  bool armed_ = false;
};

/// All EQs of a device, and which of them gets which asynchronous event.
class EventQueues {
 public:
  /// `clock` times how often warn() may write.
  EventQueues(pcie::Msix& msix, const Limits& limits,
              std::function<util::Time()> clock = util::monotonic_now)
      : msix_(msix), clock_(std::move(clock)), table_(0, Limits::count(limits.log_max_eq)) {}

  EventQueue* create(EventQueue::Attributes attributes);
  EventQueue* find(Eqn eqn) { return table_.find(eqn); }
  void destroy(Eqn eqn);
  template <class Visit>
  void for_each(Visit&& visit) {
    table_.for_each(visit);
  }

  /// The EQ that gets events of this type, if there is one.
  std::optional<Eqn> mapped(spec::connectx::event_type type) const {
    return owner_[static_cast<std::uint8_t>(type)];
  }

  /// An asynchronous event goes to the EQ that its type is mapped to; it is dropped if there is
  /// none.
  void post(spec::connectx::event_type type, std::uint8_t sub_type, const EventData& data);
  /// A completion event of `cqn` goes to the CQ's own EQ.
  void post_completion(Eqn eqn, Cqn cqn);
  /// Data of an event about a queue (PRM 7.13.5). An SRQ's says that it is a QP, as drivers expect.
  static EventData queue_data(Qpn qpn);
  static EventData queue_data(Srqn srqn);
  static EventData queue_data(Sqn sqn);
  static EventData queue_data(Rqn rqn);

  /// The data part of an EQE from one of the document's event_data structures.
  template <class Layout>
  static EventData event_data(const util::Struct<Layout>& structure) {
    static_assert(Layout::kSize == std::tuple_size_v<EventData>);
    EventData data;
    const auto bytes = structure.bytes();
    std::copy(bytes.begin(), bytes.end(), data.begin());
    return data;
  }

  /// A warning that a guest can provoke: limited in number.
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    if (std::uint64_t held_back; log_limit_.allow(clock_(), &held_back)) {
      util::log(util::LogLevel::kWarning, format, std::forward<Args>(args)...);
    }
  }

 private:
  pcie::Msix& msix_;
  std::function<util::Time()> clock_;
  util::RateLimiter log_limit_{20, std::chrono::seconds(1)};
  hca::ObjectTable<EventQueue, Eqn> table_;
  std::array<std::optional<Eqn>, 256> owner_;  ///< by event type
};

}  // namespace softhca::connectx
