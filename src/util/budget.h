// A limit on how much a guest can make the host store, in entries or bytes.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <utility>

namespace softhca::util {

/// The unused part of a limit. A user reserves an amount, and returns it by destroying the
/// reservation. So a guest that requests without end is refused before it exhausts the host.
class Budget {
 public:
  /// An amount of the budget, returned when this is destroyed.
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

    /// True if it holds an amount of a budget.
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

  /// Nothing if less than `amount` is left.
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
