// Pending doorbells: each names the first WQE of a chain (JingZhao 3.1.2). All QPs share one pool
// of entries, which bounds the memory of a guest that only rings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "jingzhao/send_wqe.h"
#include "spec/jingzhao/registers.h"
#include "util/bits.h"

namespace softhca::jingzhao {

/// Both dwords of an SQ doorbell, the first one in the low half.
class SendDoorbell {
 public:
  SendDoorbell() = default;
  explicit SendDoorbell(std::uint64_t dwords) : dwords_(dwords) {}

  Qpn qpn() const { return Qpn(field<Page::qpn>()); }
  /// The doorbell's description of the WQE.
  SendWqe wqe() const {
    return {.place = field<Page::sq_head>(),
            .opcode = static_cast<std::uint8_t>(field<Page::opcode>()),
            .units = static_cast<std::uint8_t>(field<Page::size0>()),
            .fence = field<Page::f>() != 0};
  }

 private:
  using Page = spec::jingzhao::uar_page;
  template <const auto& Which>
  std::uint32_t field() const {
    constexpr unsigned kHalf = Which.kOffset == 0 ? 0 : 32;
    return util::part_of(static_cast<std::uint32_t>(dwords_ >> kHalf), Which);
  }

  std::uint64_t dwords_ = 0;
};

/// QPs with new doorbells, each once. A QP has a `qpn()` and a member `rung`, a bool.
class RungList {
 public:
  bool empty() const { return rung_.empty(); }
  template <class Queue>
  [[gnu::noinline]] void add(Queue& queue) {
    queue.rung = true;
    rung_.push_back(queue.qpn());
  }
  /// Removes all QPs, and calls `handle(queue)` for each. `find(qpn)` returns a pointer, null if
  /// the QP is gone.
  template <class Find, class Handle>
  void take(Find&& find, Handle&& handle) {
    std::swap(rung_, taken_);
    for (const auto qpn : taken_) {
      auto* queue = find(qpn);
      if (queue == nullptr) continue;
      queue->rung = false;
      handle(*queue);
    }
    taken_.clear();
  }

 private:
  std::vector<Qpn> rung_;
  std::vector<Qpn> taken_;  ///< empty except in take(); swapped with rung_ to reuse its memory
};

class Doorbells {
 public:
  static constexpr std::size_t kMax = std::size_t{1} << 17;

  /// The doorbells of one QP, in order of arrival.
  struct Queue {
    std::uint32_t first = kNone;
    std::uint32_t last = kNone;
    bool empty() const { return first == kNone; }
  };

  /// False if the pool is full.
  bool push(Queue& queue, SendDoorbell doorbell) {
    const auto at = take();
    if (at == kNone) return false;
    entries_[at] = {.doorbell = doorbell, .next = kNone, .stale = false};
    (queue.empty() ? queue.first : entries_[queue.last].next) = at;
    queue.last = at;
    return true;
  }
  /// @pre not queue.empty()
  SendWqe pop(Queue& queue) {
    const auto at = queue.first;
    queue.first = entries_[at].next;
    entries_[at].next = free_;
    free_ = at;
    auto wqe = entries_[at].doorbell.wqe();
    wqe.stale = entries_[at].stale;
    return wqe;
  }
  void clear(Queue& queue) {
    while (!queue.empty()) pop(queue);
  }
  /// Marks the doorbells that arrived in SQE.
  void mark_stale(const Queue& queue) {
    for (auto at = queue.first; at != kNone; at = entries_[at].next) entries_[at].stale = true;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Entry {
    SendDoorbell doorbell;
    std::uint32_t next;
    bool stale;
  };

  std::uint32_t take() {
    if (free_ == kNone) [[unlikely]]
      return make();
    const auto at = free_;
    free_ = entries_[at].next;
    return at;
  }
  [[gnu::noinline]] std::uint32_t make() {
    if (entries_.size() == kMax) return kNone;
    entries_.emplace_back();
    return static_cast<std::uint32_t>(entries_.size() - 1);
  }

  std::vector<Entry> entries_;
  std::uint32_t free_ = kNone;
};

}  // namespace softhca::jingzhao
