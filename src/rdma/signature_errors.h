// Blocks with wrong protection that the device has not been notified of.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "rdma/block_signature.h"

namespace softhca::rdma {

class SignatureErrors {
 public:
  /// Reserves room. Call before the first key with a signature exists.
  void reserve() { errors_.reserve(kMax); }
  /// False if there is no room for the error.
  bool add(const SignatureError& error) {
    if (errors_.size() == errors_.capacity()) return false;
    errors_.push_back(error);
    return true;
  }
  /// Removes the last error: its access had no effect. @pre add() has returned true
  void remove_last() { errors_.pop_back(); }
  std::span<const SignatureError> pending() const { return errors_; }
  void clear() { errors_.clear(); }

 private:
  /// One for each key of a scatter list.
  static constexpr std::size_t kMax = 64;

  std::vector<SignatureError> errors_;
};

}  // namespace softhca::rdma
