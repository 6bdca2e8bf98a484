// The plain numbers that other objects refer to: PDs, UARs, transport domains, XRC domains and Q
// counters (PRM 12.3), and the number spaces that several kinds of queues share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "rdma/counters.h"
#include "util/id_allocator.h"

namespace softhca::connectx {

/// Numbers without anything behind them, which know whether they are in use.
class NumberPool {
 public:
  /// Numbers from [first, first + count).
  NumberPool(std::uint32_t first, std::uint32_t count) : ids_(first, count) {}

  std::optional<std::uint32_t> allocate();
  bool contains(std::uint32_t number) const { return number < used_.size() && used_[number]; }
  /// False if the number is not in use.
  bool free(std::uint32_t number);
  std::size_t count() const { return count_; }

 private:
  util::IdAllocator ids_;
  std::vector<bool> used_;
  std::size_t count_ = 0;
};

/// How many page and key addresses the device remembers for its driver: those of memory keys and
/// queues. Hardware keeps them in ICM; here a guest that asks without end must not use up the host.
class TranslationBudget {
 public:
  /// Entries that are given back when this goes.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), entries_(other.entries_) {}
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(entries_, other.entries_);
      return *this;
    }
    ~Reservation() {
      if (budget_ != nullptr) budget_->left_ += entries_;
    }

   private:
    friend class TranslationBudget;
    Reservation(TranslationBudget& budget, std::uint64_t entries)
        : budget_(&budget), entries_(entries) {}
    TranslationBudget* budget_ = nullptr;
    std::uint64_t entries_ = 0;
  };

  explicit TranslationBudget(std::uint64_t entries) : left_(entries) {}
  TranslationBudget(const TranslationBudget&) = delete;
  TranslationBudget& operator=(const TranslationBudget&) = delete;

  /// Nothing if not so many are left. @pre the reservation goes before the budget
  std::optional<Reservation> reserve(std::uint64_t entries) {
    if (entries > left_) return std::nullopt;
    left_ -= entries;
    return Reservation(*this, entries);
  }
  std::uint64_t left() const { return left_; }

 private:
  std::uint64_t left_;
};

/// A set of Q counters: the transport's, and Ethernet RQs count out_of_buffer in it.
using QCounters = rdma::QpCounters;

class Resources {
 public:
  static constexpr unsigned kLogMaxPd = 16;
  static constexpr unsigned kLogMaxTransportDomain = 12;
  static constexpr unsigned kLogMaxXrcd = 12;
  static constexpr unsigned kLogMaxQueue = 17;  ///< QPs, SQs and RQs together
  static constexpr unsigned kLogMaxSrq = 16;    ///< SRQs, XRC SRQs and RMPs together
  /// QPNs 0 and 1 mean the special QPs on the wire; the numbers after them are left out because
  /// they are easily taken for something else in a log.
  static constexpr std::uint32_t kFirstQueue = 0x40;
  static constexpr std::uint32_t kMaxQCounters = 255;
  /// Enough for 64 GiB of memory registered in 4 KiB pages.
  static constexpr std::uint64_t kMaxTranslations = 16u << 20;

  Resources();

  NumberPool& pds() { return pds_; }
  NumberPool& uars() { return uars_; }
  NumberPool& transport_domains() { return transport_domains_; }
  NumberPool& xrcds() { return xrcds_; }

  TranslationBudget& translations() { return translations_; }

  /// QPNs, SQNs and RQNs are numbers of one space.
  util::IdAllocator& queue_numbers() { return queue_numbers_; }
  /// So are those of SRQs, XRC SRQs and RMPs: drivers keep them in one table.
  util::IdAllocator& srq_numbers() { return srq_numbers_; }

  /// A new set, all zero. Never 0, which means "none" to drivers. Nothing if all are in use.
  std::optional<std::uint8_t> allocate_q_counter();
  bool free_q_counter(std::uint8_t id);
  /// Null if there is none. The set stays where it is until the next reset, also after it was
  /// freed, so that queues which still count in it do no harm.
  QCounters* q_counter(std::uint32_t id);

 private:
  TranslationBudget translations_{kMaxTranslations};
  NumberPool pds_;
  NumberPool uars_;
  NumberPool transport_domains_;
  NumberPool xrcds_;
  NumberPool q_counter_ids_;
  util::IdAllocator queue_numbers_;
  util::IdAllocator srq_numbers_;
  std::array<QCounters, kMaxQCounters + 1> q_counters_{};
};

}  // namespace softhca::connectx
