// A limit on what somebody may make us keep: so many entries, so many bytes.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <utility>

namespace softhca::util {

/// What is left of a limit. Who needs some of it reserves it, and gives it back by letting the
/// reservation go. A guest that asks without end is refused, instead of using up the host.
class Budget {
 public:
  /// A part of the budget, given back when this goes.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), amount_(other.amount_) {}
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(amount_, other.amount_);
      return *this;
    }
    ~Reservation() {
      if (budget_ != nullptr) budget_->left_ += amount_;
    }

    /// Whether it is of a budget.
    bool holds() const { return budget_ != nullptr; }

   private:
    friend class Budget;
    Reservation(Budget& budget, std::uint64_t amount) : budget_(&budget), amount_(amount) {}
    Budget* budget_ = nullptr;
    std::uint64_t amount_ = 0;
  };

  explicit Budget(std::uint64_t amount) : total_(amount), left_(amount) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  ~Budget() { assert(left_ == total_ && "a reservation outlives its budget"); }

  /// Nothing if not so much is left.
  std::optional<Reservation> reserve(std::uint64_t amount) {
    if (amount > left_) return std::nullopt;
    left_ -= amount;
    return Reservation(*this, amount);
  }
  std::uint64_t total() const { return total_; }
  std::uint64_t left() const { return left_; }

 private:
  std::uint64_t total_;
  std::uint64_t left_;
};

}  // namespace softhca::util
