// A queue of records from one process to another, through memory that both map: one producer, one
// consumer, neither of which trusts the other.
//
// The memory is a file whose size is sealed, so that neither side can truncate it. Its first page
// holds two increasing indices, in bytes: the producer's (written) and the consumer's (read). The
// rest is the ring of records. A record is 8 bytes of head (length, and a number for the users,
// four bytes each) and the data, padded to a multiple of 8. Each side keeps its own index privately
// and publishes it; it reads the other's index once and checks it. If the other side breaks the
// rules, the ring is broken for good, and transfers nothing any more.
//
// No side blocks. A full ring refuses a record. A consumer with nothing to do announces that it
// will sleep. The producer must then wake it, by a means that the two have agreed on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "util/result.h"

namespace softhca::os {

/// The memory, mapped into this process.
class SharedRing {
 public:
  /// Most data bytes of a record, without its head.
  static constexpr std::size_t kRecordMax = 65536 + 256;
  static constexpr std::size_t kCapacityMin = 131072;

  /// Makes a ring of `capacity` bytes, a power of two, at least kCapacityMin.
  static util::Result<SharedRing> create(std::size_t capacity);
  /// Maps the ring of `fd`, which another process made by create(). The caller keeps `fd`. Fails if
  /// the file's size could change.
  static util::Result<SharedRing> attach(int fd);
  SharedRing(SharedRing&& other) noexcept;
  SharedRing& operator=(SharedRing&&) = delete;
  ~SharedRing();

  /// The descriptor to pass to the other process; -1 after attach().
  int fd() const { return fd_; }
  std::size_t capacity() const { return capacity_; }

 private:
  friend class RingProducer;
  friend class RingConsumer;

  /// At the start of the file. Each side writes its own cache line.
  struct Header {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    std::atomic<std::uint32_t> sleeping;  ///< not 0: the consumer must be woken
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  SharedRing() = default;
  util::Result<void> map(int fd);
  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  /// Address of byte `index`; the ring is mapped twice, so that every record is contiguous.
  std::byte* at(std::uint64_t index) const;

  int fd_ = -1;
  std::size_t capacity_ = 0;
  std::byte* memory_ = nullptr;
};

class RingProducer {
 public:
  /// @pre nothing was written to `ring`, which outlives this
  explicit RingProducer(const SharedRing& ring) : ring_(ring) {}

  /// Reserves room for a record of `size` bytes, to be filled before publish(). Empty if the ring
  /// is full or broken. The consumer receives `note` with the record.
  /// @pre 0 < size <= SharedRing::kRecordMax, and the one before is published or abandoned
  std::span<std::byte> reserve(std::size_t size, std::uint32_t note = 0);
  /// Free bytes. Reads the consumer's index only if fewer than `wanted` were free before.
  std::size_t room(std::size_t wanted);
  /// Bytes that the consumer has read, as of the last look at its index.
  std::uint64_t taken() const { return read_; }
  /// Publishes the reserved record to the consumer.
  void publish();
  /// Gives the reserved record up: the consumer does not see it.
  void abandon() { reserved_ = written_; }
  /// Returns unused pages to the kernel; they read as zeros when written again. @pre no record is
  /// reserved
  void free_pages();
  /// True if the consumer sleeps and must be woken, once per sleep. To be called after publish().
  bool must_wake();

  /// The consumer has broken the rules.
  bool broken() const { return broken_; }

 private:
  const SharedRing& ring_;
  std::uint64_t written_ = 0;   ///< records before this are the consumer's
  std::uint64_t reserved_ = 0;  ///< end of the record being written
  std::uint64_t read_ = 0;      ///< the consumer's index, as last read
  bool broken_ = false;
};

class RingConsumer {
 public:
  /// @pre nothing was read from `ring`, which outlives this
  explicit RingConsumer(const SharedRing& ring) : ring_(ring) {}

  /// Returns the next record; empty if there is none, or the ring is broken. It stays in place
  /// until release(). A producer that breaks the rules may change its bytes at any time, so copy
  /// bytes before making decisions on them.
  std::span<const std::byte> next();
  /// Makes next() return the last record again, once; its bytes may have changed.
  void put_back() { taken_ = before_; }
  /// The number that the producer gave to the last record; untrusted.
  std::uint32_t note() const { return note_; }
  /// End of the last record returned by next().
  std::uint64_t position() const { return taken_; }
  /// Frees all records before `position`, which position() returned.
  void release(std::uint64_t position);
  /// Announces to the producer that this side must be woken. False if there is a record already.
  bool prepare_to_sleep();

  /// The producer has broken the rules.
  bool broken() const { return broken_; }

 private:
  bool look();

  const SharedRing& ring_;
  std::uint64_t released_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t before_ = 0;   ///< taken_ before the last record
  std::uint64_t written_ = 0;  ///< the producer's index, as last read
  std::uint32_t note_ = 0;
  bool broken_ = false;
};

}  // namespace softhca::os
