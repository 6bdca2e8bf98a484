// Completion queues (JingZhao 3.2.5, 3.3): their contexts in the ICM, CQEs, completion events.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "jingzhao/command.h"
#include "jingzhao/event_queues.h"
#include "jingzhao/held_cqes.h"
#include "jingzhao/icm_cache.h"
#include "jingzhao/numbers.h"
#include "jingzhao/owned_ring.h"
#include "spec/jingzhao/context.h"
#include "util/notes.h"

namespace softhca::jingzhao {

class CompletionQueues final : private IcmCache::Owner {
  enum Attention : std::uint8_t {
    kArmed = 1,
    kFailed = 2,
    kFaulty = 4,  ///< there are fault rules
  };
  struct Queue {
    OwnedRing ring;
    Eqn eqn;
    /// Bits of Attention; 0: a CQE needs only to be written.
    std::uint8_t attention = 0;
    spec::jingzhao::cq_status status = spec::jingzhao::cq_status::OK;
    std::uint32_t slot = 0;
    std::uint64_t brought = IcmCache::kNever;  ///< load of the context that this was decoded from
    std::unique_ptr<HeldCqes> held;            ///< null: no rule stalls it

    bool armed() const { return (attention & kArmed) != 0; }
    bool failed() const { return (attention & kFailed) != 0; }
    bool faulty() const { return (attention & kFaulty) != 0; }
    void set(Attention bit, bool on) {
      attention = static_cast<std::uint8_t>(on ? attention | bit : attention & ~bit);
    }
  };

 public:
  using Context = spec::jingzhao::cq_context;

  struct Parts {
    Icm& icm;
    rdma::KeyTable& keys;
    EventQueues& event_queues;
    const hca::FaultHook& faults;
    util::Notes& notes;
    std::uint64_t base;
    unsigned log_count;
    std::uint32_t cache;
  };

  explicit CompletionQueues(const Parts& parts);

  /// A pointer to the table entry of a CQN: faster than a look-up by number.
  class Place {
   public:
    Place() = default;
    /// Fast path of write(): the context and the ring are cached, and the CQ is not armed. False,
    /// with no effect, in any other case: then call write().
    template <class Fill>
    bool write_fast(Fill&& fill) const;

   private:
    friend CompletionQueues;
    Place(CompletionQueues& all, const std::unique_ptr<Queue>& queue)
        : all_(&all), queue_(&queue) {}
    CompletionQueues* all_ = nullptr;
    const std::unique_ptr<Queue>* queue_ = nullptr;
  };
  /// An empty Place if the number is beyond the table.
  Place place(Cqn cqn) {
    return cqn.value() < queues_.size() ? Place(*this, queues_[cqn.value()]) : Place();
  }

  // Commands.
  CommandResult install(Cqn cqn, util::View<Context> context);
  CommandResult remove(Cqn cqn);
  CommandResult resize(Cqn cqn, unsigned log_count, rdma::MKey lkey);

  bool contains(Cqn cqn) const { return cqn.value() < queues_.size() && queues_[cqn.value()]; }
  /// True if the CQ exists, has not failed, and its context is mapped.
  bool works(Cqn cqn) const {
    return contains(cqn) && !queues_[cqn.value()]->failed() && contexts_.mapped(cqn.value());
  }
  /// Writes a CQE that `fill` fills in. False if the CQ does not exist or has failed; then the
  /// completing QP must fail.
  template <class Fill>
  bool write(Cqn cqn, Fill&& fill) {
    if (cqn.value() >= queues_.size()) return false;
    auto* queue = queues_[cqn.value()].get();
    if (queue == nullptr || queue->failed() || !refresh(cqn, *queue)) return false;
    if (queue->faulty() && is_stalled(cqn, *queue)) [[unlikely]] {
      OwnedRing::Entry entry{};
      fill(OwnedRing::View(entry));
      return hold_back(cqn, *queue, entry);
    }
    const auto written = queue->ring.write(fill);
    if (written != OwnedRing::Written::kYes) return fail(cqn, *queue, written);
    if (queue->armed()) post_event(cqn, *queue);
    return true;
  }
  /// Software has polled the CQ and waits for the next CQE.
  void arm(Cqn cqn);
  /// Returns and clears the list of newly failed CQs.
  std::vector<Cqn> take_failed() { return std::exchange(failed_, {}); }
  bool has_failed() const { return !failed_.empty(); }
  /// Called after a change of the fault rules. Writes the CQEs that no rule holds back any more.
  void follow_fault_rules();
  /// Drops the CQEs of a QP that a fault rule holds back: software that resets the QP expects none
  /// later.
  void drop_held(Cqn cqn, Qpn qpn);

  /// Removes the highest number from the table, and destroys its CQ if there is one: then returns
  /// true. Call only end() and the destructor after that. @pre end() != 0
  bool drop_last() {
    const auto last = std::move(queues_.back());
    queues_.pop_back();
    return last != nullptr;
  }

  // Inspection.
  struct Shown {
    Cqn cqn;
    unsigned log_count;
    std::uint32_t producer;
    Eqn eqn;
    bool armed;
    bool failed;
  };
  std::uint32_t end() const { return static_cast<std::uint32_t>(queues_.size()); }
  std::uint32_t count() const { return count_; }
  std::optional<Shown> show(Cqn cqn) const;
  const IcmCache& contexts() const { return contexts_; }
  IcmCache& contexts() { return contexts_; }

 private:
  /// Reloads what was decoded from the context if that has changed. False if the context cannot be
  /// read.
  bool refresh(Cqn cqn, Queue& queue) {
    const auto brought = contexts_.touch(cqn.value(), queue.slot);
    if (brought == queue.brought) [[likely]]
      return true;
    if (brought != 0) decode(queue, contexts_.get(cqn.value(), queue.slot));
    return brought != 0;
  }
  Queue* find(Cqn cqn) {
    auto& queue = *queues_[cqn.value()];
    return refresh(cqn, queue) ? &queue : nullptr;
  }
  void decode(Queue& queue, const IcmCache::Entry& entry);
  void update(std::uint32_t index, std::span<std::byte> entry) override;
  void post_event(Cqn cqn, Queue& queue);
  bool fail(Cqn cqn, Queue& queue, OwnedRing::Written written);
  bool is_stalled(Cqn cqn, Queue& queue);
  bool hold_back(Cqn cqn, Queue& queue, const OwnedRing::Entry& entry);
  void release(Cqn cqn, Queue& queue);

  Parts parts_;
  IcmCache contexts_;
  std::vector<std::unique_ptr<Queue>> queues_;  ///< by CQN
  std::uint32_t count_ = 0;
  std::vector<Cqn> failed_;
};

template <class Fill>
bool CompletionQueues::Place::write_fast(Fill&& fill) const {
  if (queue_ == nullptr) return false;
  auto* const queue = queue_->get();
  return queue != nullptr && queue->attention == 0 &&
         all_->contexts_.touch_fast(queue->slot, queue->brought) && queue->ring.write_fast(fill);
}

}  // namespace softhca::jingzhao
