// Event queues (JingZhao 3.2.4): their contexts in the ICM, the mapping of event types to EQs,
// interrupts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "hca/faults.h"
#include "jingzhao/command.h"
#include "jingzhao/icm_cache.h"
#include "jingzhao/numbers.h"
#include "jingzhao/owned_ring.h"
#include "pcie/interrupts.h"
#include "spec/jingzhao/context.h"
#include "util/notes.h"

namespace softhca::jingzhao {

using EventType = spec::jingzhao::event_type;

class EventQueues final : private IcmCache::Owner {
 public:
  using Context = spec::jingzhao::eq_context;
  using Eqe = spec::jingzhao::eqe;

  struct Parts {
    Icm& icm;
    rdma::KeyTable& keys;
    pcie::Interrupts& interrupts;
    const hca::FaultHook& faults;
    util::Notes& notes;
    std::uint64_t base;
    unsigned log_count;
    std::uint32_t cache;
  };
  struct Counters {
    std::uint64_t posted = 0;
    std::uint64_t unmapped = 0;  ///< events of a type without an EQ
    std::uint64_t dropped = 0;   ///< events to an EQ that was full, or whose memory was gone
  };

  explicit EventQueues(const Parts& parts);

  // Commands.
  CommandResult install(Eqn eqn, util::View<Context> context);
  CommandResult remove(Eqn eqn);
  /// MAP_EQ: maps the event types of `mask` to the EQ, or unmaps them.
  CommandResult map(Eqn eqn, bool unmap, std::uint64_t mask);

  bool contains(Eqn eqn) const { return eqn.value() < queues_.size() && queues_[eqn.value()]; }
  /// Posts to the EQ of the event type.
  void post(EventType type, util::MutableView<Eqe> event);
  /// Posts an event about the CQ or QP of this number.
  void post(EventType type, std::uint32_t number);
  /// Posts to a given EQ: completion events.
  void post_to(Eqn eqn, EventType type, util::MutableView<Eqe> event);
  /// Software has polled the EQ and waits for the next event.
  void arm(Eqn eqn);

  // Inspection.
  struct Shown {
    Eqn eqn;
    unsigned log_count;
    std::uint32_t producer;
    bool armed;
    std::uint8_t vector;
  };
  std::uint32_t end() const { return static_cast<std::uint32_t>(queues_.size()); }
  std::optional<Shown> show(Eqn eqn) const;
  const IcmCache& contexts() const { return contexts_; }
  IcmCache& contexts() { return contexts_; }
  const Counters& counters() const { return counters_; }

 private:
  struct Queue {
    OwnedRing ring;
    bool armed = false;
    std::uint8_t vector = 0;
    std::uint32_t slot = 0;
    std::uint64_t brought = 0;
  };

  /// The EQ as its context in the ICM describes it now. Null if the context cannot be read.
  Queue* find(Eqn eqn);
  void decode(Queue& queue, util::View<Context> context);
  /// `cqn`: the CQ whose event the EQ reports.
  void raise(const Queue& queue, std::optional<std::uint32_t> cqn = std::nullopt);
  void update(std::uint32_t index, std::span<std::byte> entry) override;

  static constexpr std::size_t kTypes = 64;

  Parts parts_;
  IcmCache contexts_;
  std::vector<std::optional<Queue>> queues_;       ///< by EQN
  std::array<std::optional<Eqn>, kTypes> target_;  ///< by type
  Counters counters_;
};

}  // namespace softhca::jingzhao
