// A descriptor from which a program reads event records: a pipe, so that read, poll and fcntl are
// the kernel's own (kernel interface 6).
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "os/known_files.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::uverbs {

class EventPipe {
 public:
  /// Whether a read returns one record, or as many as fit. A pipe of kOne holds 16 records.
  enum class Reads : std::uint8_t { kOne, kMany };
  /// Shared by several pipes: true if any of them has records that await room.
  using Waits = std::shared_ptr<bool>;
  /// Creates a pipe of records of `size` bytes, whose first 8 identify an object. `waits` becomes
  /// true when a record awaits flush().
  static util::Result<EventPipe> create(std::size_t size, Reads reads = Reads::kMany,
                                        Waits waits = std::make_shared<bool>());

  /// All existing pipes by their file. The number of each is its record size.
  static os::KnownFiles& known();

  /// The end that the program reads; can be taken once.
  os::UniqueFd take_reader() { return std::move(reader_); }
  /// Never blocks. If the pipe is full, flush() writes the record later.
  void write(std::span<const std::byte> record);
  void flush();
  /// Number of records that the program has not read.
  std::size_t unread() const;
  /// Whether the program has closed its end and all copies of it.
  bool closed() const;
  /// Withdraws the unread records of an object. Returns how many there were.
  std::size_t take_back(std::uint64_t element);

 private:
  /// This pipe's entry in known().
  class Entry {
   public:
    Entry(int fd, std::size_t size);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    struct stat status_{};
  };

  EventPipe(std::size_t size, Waits waits) : size_(size), waits_(std::move(waits)) {}
  bool try_write(std::span<const std::byte> record);

  std::size_t size_;
  Waits waits_;
  os::UniqueFd reader_;
  os::UniqueFd own_;  ///< both directions; status flags are not the program's
  std::unique_ptr<Entry> entry_;
  std::deque<std::vector<std::byte>> waiting_;
};

}  // namespace softhca::uverbs
