// A responder's answers to atomics, kept for duplicates (IBTA 9.7.5.1.3): a duplicate atomic is not
// executed again, its first answer is repeated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/serial24.h"

namespace softhca::rdma {

class AtomicResults {
 public:
  void clear() {
    results_.clear();
    next_ = size_ = 0;
  }
  /// Keeps the last `count` results from now on, including those it has. @pre count != 0
  void grow(std::size_t count) {
    if (count <= results_.size()) return;
    // Put the results in order of age, so that the oldest is overwritten next.
    if (size_ == results_.size()) {
      std::rotate(results_.begin(), results_.begin() + static_cast<std::ptrdiff_t>(next_),
                  results_.end());
      next_ = size_;
    }
    results_.resize(count);
  }
  /// @pre grow() was called
  void remember(wire::Psn psn, std::uint64_t original) {
    results_[next_] = {psn, original};
    next_ = (next_ + 1) % results_.size();
    if (size_ != results_.size()) ++size_;
  }
  /// The newest result with this PSN; null if it is no longer kept. PSNs wrap around: on a QP with
  /// few atomics, a result from 2^24 packets ago may have the same PSN.
  const std::uint64_t* find(wire::Psn psn) const {
    for (std::size_t age = 1; age <= size_; ++age) {
      const auto& result = results_[(next_ + results_.size() - age) % results_.size()];
      if (result.psn == psn) return &result.original;
    }
    return nullptr;
  }

 private:
  struct Result {
    wire::Psn psn;
    std::uint64_t original = 0;  ///< memory contents before the atomic
  };
  std::vector<Result> results_;  ///< a ring
  std::size_t next_ = 0;
  std::size_t size_ = 0;
};

}  // namespace softhca::rdma
