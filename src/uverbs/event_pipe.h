// The descriptor from which a program reads events, one record each: a pipe, so that read, poll and
// fcntl are the kernel's own (host-door contract 6).
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "util/known_files.h"
#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::uverbs {

class EventPipe {
 public:
  /// Whether a read that has room for several records gets one of them, or as many as fit. The pipe
  /// holds 16 in the first case.
  enum class Reads : std::uint8_t { kOne, kMany };
  /// What several pipes share: whether one of them has records for which there was no room.
  using Waits = std::shared_ptr<bool>;
  /// Records of `size` bytes, whose first 8 say which object they are of. `waits` becomes true when
  /// one waits for flush().
  static util::Result<EventPipe> create(std::size_t size, Reads reads = Reads::kMany,
                                        Waits waits = std::make_shared<bool>());

  /// The pipes that live, by their file; the number is the size of their records.
  static util::KnownFiles& known();

  /// What the program reads from; to be given out once.
  vfio_user::UniqueFd take_reader() { return std::move(reader_); }
  /// Never waits: what the pipe has no room for follows with flush().
  void write(std::span<const std::byte> record);
  void flush();
  /// Records that nobody has read.
  std::size_t unread() const;
  /// The program has closed its end, and all copies of it.
  bool closed() const;
  /// Takes away the records of an object, which nobody has read. Returns how many there were.
  std::size_t take_back(std::uint64_t element);

 private:
  /// An entry of known().
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
  vfio_user::UniqueFd reader_;
  vfio_user::UniqueFd own_;  ///< both ends, with status flags of its own
  std::unique_ptr<Entry> entry_;
  std::deque<std::vector<std::byte>> waiting_;
};

}  // namespace softhca::uverbs
