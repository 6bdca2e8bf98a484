// Records of bytes from one process to another, through memory that both map: one producer, one
// consumer, and neither trusts the other.
//
// The memory is a file whose size is sealed, so that nobody can take it away. Its first page holds
// two indices that only grow, in bytes: what was written, by the producer; what was read, by the
// consumer. The rest is the ring: records of 8 bytes of head (the length, and a number of the
// users' own, four bytes each) and the bytes, filled up to a multiple of 8. Each side keeps its own
// index to itself and only tells it; what it reads of the other's is read once and checked. A ring
// whose other side breaks the rules is broken for good: it gives and takes nothing any more.
//
// Nobody waits. A full ring refuses; a consumer with nothing to do says that it goes to sleep, and
// the producer is told that it should wake it (by whatever the two have for that).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "util/result.h"

namespace softhca::util {

/// The memory, mapped here.
class SharedRing {
 public:
  /// Of a record, without its head.
  static constexpr std::size_t kRecordMax = 65536 + 256;
  static constexpr std::size_t kCapacityMin = 131072;

  /// A new one of `capacity` bytes, a power of two from kCapacityMin.
  static Result<SharedRing> create(std::size_t capacity);
  /// That of `fd`, as another process has it from create(). `fd` stays the caller's. Fails if its
  /// size could change.
  static Result<SharedRing> attach(int fd);
  SharedRing(SharedRing&& other) noexcept;
  SharedRing& operator=(SharedRing&&) = delete;
  ~SharedRing();

  /// To be handed to the other process; -1 after attach().
  int fd() const { return fd_; }
  std::size_t capacity() const { return capacity_; }

 private:
  friend class RingProducer;
  friend class RingConsumer;

  /// At the start of the file. Each side writes a cache line of its own.
  struct Header {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    std::atomic<std::uint32_t> sleeping;  ///< not 0: the consumer waits to be woken
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  SharedRing() = default;
  Result<void> map(int fd);
  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  /// Place of byte `index`; the ring is mapped twice, so that every record is in one piece.
  std::byte* at(std::uint64_t index) const;

  int fd_ = -1;
  std::size_t capacity_ = 0;
  std::byte* memory_ = nullptr;
};

class RingProducer {
 public:
  /// @pre nothing was written to `ring`, which outlives this
  explicit RingProducer(const SharedRing& ring) : ring_(ring) {}

  /// Room for a record of `size` bytes, to be filled before publish(). Empty if the ring is full
  /// or broken. `note`: the consumer finds it with the record.
  /// @pre 0 < size <= SharedRing::kRecordMax, and the one before is published
  std::span<std::byte> reserve(std::size_t size, std::uint32_t note = 0);
  /// Bytes that are free. Asks the consumer only where they were fewer than `wanted` before.
  std::size_t room(std::size_t wanted);
  /// Bytes that the consumer has taken, as far as that was looked at.
  std::uint64_t taken() const { return read_; }
  /// Shows the reserved record to the consumer.
  void publish();
  /// Gives the kernel the pages back that hold nothing. They come again, as zeros, when they are
  /// written. @pre no record is reserved
  void free_pages();
  /// True if the consumer sleeps and is to be woken, once for each sleep. Asked after publish().
  bool must_wake();

  /// The consumer has broken the rules.
  bool broken() const { return broken_; }

 private:
  const SharedRing& ring_;
  std::uint64_t written_ = 0;   ///< records before are the consumer's
  std::uint64_t reserved_ = 0;  ///< end of the record that is being written
  std::uint64_t read_ = 0;      ///< what the consumer said last
  bool broken_ = false;
};

class RingConsumer {
 public:
  /// @pre nothing was read from `ring`, which outlives this
  explicit RingConsumer(const SharedRing& ring) : ring_(ring) {}

  /// The next record; empty if there is none, or the ring is broken. It stays in place until
  /// release(), but a producer that breaks the rules may change its bytes at any time: who decides
  /// by some of them copies these first.
  std::span<const std::byte> next();
  /// What next() gave last is what it gives next, once: it may be other bytes then.
  void put_back() { taken_ = before_; }
  /// The number that the producer gave the record that next() gave last: any.
  std::uint32_t note() const { return note_; }
  /// The end of what next() has given so far.
  std::uint64_t position() const { return taken_; }
  /// Gives back all records before `position`, which was one.
  void release(std::uint64_t position);
  /// Tells the producer that it has to wake us. False if there is a record already.
  bool prepare_to_sleep();

  /// The producer has broken the rules.
  bool broken() const { return broken_; }

 private:
  bool look();

  const SharedRing& ring_;
  std::uint64_t released_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t before_ = 0;   ///< taken_, without the last record
  std::uint64_t written_ = 0;  ///< what the producer said last
  std::uint32_t note_ = 0;
  bool broken_ = false;
};

}  // namespace softhca::util
