// The send requests of a QP that are not complete, oldest first. Their memory is a ring of the
// engine's pool (spare_rings.h): a QP has it while it works. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma/send_entry.h"
#include "rdma/spare_rings.h"

namespace softhca::rdma {

class Engine;

class SendRing {
 public:
  /// Most requests begun per QP.
  static constexpr std::uint64_t kEntriesMax = 256;
  /// A ring first grows to this size, and then doubles.
  static constexpr std::uint64_t kEntriesFirst = 8;

  explicit SendRing(Engine& engine) : engine_(engine) {}
  ~SendRing() { drop(); }
  SendRing(const SendRing&) = delete;
  SendRing& operator=(const SendRing&) = delete;

  // Requests have consecutive numbers, in posting order.
  std::uint64_t head() const { return head_; }  ///< oldest request that is not complete
  std::uint64_t tail() const { return tail_; }  ///< request to fetch next
  bool empty() const { return head_ == tail_; }
  SendEntry& entry(std::uint64_t index) { return entries_[index & mask_]; }
  const SendEntry& entry(std::uint64_t index) const { return entries_[index & mask_]; }
  SendEntry& oldest() { return entry(head_); }
  const SendEntry& oldest() const { return entry(head_); }

  /// False if there is no room for one more request: this QP, or all QPs together, have reached
  /// their limit. An empty ring always gets room for one, so that every QP makes progress.
  bool reserve() { return tail_ - head_ != size_ || grow(); }
  /// The entry of the next request, cleared. @pre reserve()
  SendEntry& blank() {
    auto& e = entry(tail_);
    e.clear();
    return e;
  }
  /// Appends the entry that blank() gave.
  void push() { ++tail_; }
  /// Removes the oldest entry, which has ended.
  void pop() { ++head_; }
  /// Returns the memory if the ring is empty. Called when other QPs may need it.
  void give_back();

 protected:
  /// Counts `count` requests that ended without an entry. @pre empty()
  void skip(unsigned count) { head_ = tail_ += count; }
  /// Removes all requests, returns the memory, and counts from 0 again.
  void clear();

 private:
  using Ring = SpareRings<SendEntry>::Ring;

  bool grow();
  bool grow_to(std::size_t size);
  Ring* make(std::size_t size);
  void reserve_share(Ring& ring);
  void give();
  void drop();

  Engine& engine_;
  Ring* lent_ = nullptr;          ///< grows up to kEntriesMax; null: nothing is in flight
  SendEntry* entries_ = nullptr;  ///< entries of lent_
  std::uint64_t size_ = 0;
  std::uint64_t mask_ = 0;  ///< size_ - 1: avoids a division by the size of an entry
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t begin_ = 0;             ///< tail_ when the ring was acquired
  std::uint16_t wish_ = kEntriesFirst;  ///< size of the ring to ask for first
};

}  // namespace softhca::rdma
