// Doorbells that wait: each names the first WQE of a chain (JingZhao 3.1.2). All QPs share what
// there is for them, so that a guest that only rings makes the device keep no more than that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jingzhao/send_wqe.h"

namespace softhca::jingzhao {

class Doorbells {
 public:
  static constexpr std::size_t kMax = std::size_t{1} << 17;

  /// Those of one QP, in the order in which they came.
  struct Queue {
    std::uint32_t first = kNone;
    std::uint32_t last = kNone;
    bool empty() const { return first == kNone; }
  };

  /// False: there is no room.
  bool push(Queue& queue, SendWqe wqe) {
    const auto at = take();
    if (at == kNone) return false;
    entries_[at] = {.wqe = wqe, .next = kNone};
    (queue.empty() ? queue.first : entries_[queue.last].next) = at;
    queue.last = at;
    ++count_;
    return true;
  }
  /// @pre not queue.empty()
  SendWqe pop(Queue& queue) {
    const auto at = queue.first;
    queue.first = entries_[at].next;
    entries_[at].next = free_;
    free_ = at;
    --count_;
    return entries_[at].wqe;
  }
  void clear(Queue& queue) {
    while (!queue.empty()) pop(queue);
  }
  template <class Visit>
  void for_each(const Queue& queue, Visit&& visit) {
    for (auto at = queue.first; at != kNone; at = entries_[at].next) visit(entries_[at].wqe);
  }
  std::size_t count() const { return count_; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Entry {
    SendWqe wqe;
    std::uint32_t next;
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
  std::size_t count_ = 0;
};

}  // namespace softhca::jingzhao
