// CQEs of one CQ that a fault rule holds back.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>

#include "hca/faults.h"
#include "jingzhao/numbers.h"
#include "jingzhao/owned_ring.h"

namespace softhca::jingzhao {

/// Guests choose how many CQs they have, so all together hold a limited number.
class HeldCqes {
 public:
  /// Most entries of all CQs of the process.
  static constexpr std::size_t kMax = 1 << 16;

  explicit HeldCqes(hca::FaultId rule) : rule_(rule) {}
  ~HeldCqes() { all -= entries_.size(); }
  HeldCqes(const HeldCqes&) = delete;
  HeldCqes& operator=(const HeldCqes&) = delete;

  hca::FaultId rule() const { return rule_; }
  const std::deque<OwnedRing::Entry>& entries() const { return entries_; }

  /// `most`: entries of the CQ. False if it has more, or all together have too many.
  bool add(const OwnedRing::Entry& entry, std::size_t most) {
    if (entries_.size() >= most || all >= kMax) return false;
    entries_.push_back(entry);
    ++all;
    return true;
  }
  /// Drops those of a QP.
  void drop(Qpn qpn) {
    all -= std::erase_if(entries_, [qpn](const OwnedRing::Entry& entry) {
      using spec::jingzhao::cqe;
      return util::View<cqe>(entry).get(cqe::my_qpn) == qpn.value();
    });
  }

 private:
  static inline std::atomic<std::size_t> all = 0;

  hca::FaultId rule_;
  std::deque<OwnedRing::Entry> entries_;
};

}  // namespace softhca::jingzhao
