// Writes a capture to a file, or to a ring of files, in its own thread: capturing never waits for a
// disk or for the reader of a pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "util/result.h"

namespace softhca::fabric {

/// Only their owner can access the files (mode 0600), whatever the umask is. If a file becomes
/// unwritable, only whole blocks remain in it.
class CaptureWriter {
 public:
  /// Most bytes that wait for the disk, not counting those of put_always().
  static constexpr std::size_t kCapacity = std::size_t{32} << 20;

  /// File names as of tcpdump -W: `path` itself for one file, else `path` with a number, as in
  /// "wire.pcapng00" if there are more than ten.
  static std::string name_of(const std::string& path, unsigned files, unsigned index);

  /// Opens the first file. If it is a pipe, waits for the reader.
  static util::Result<std::unique_ptr<CaptureWriter>> create(std::string path, unsigned files);
  ~CaptureWriter();
  CaptureWriter(const CaptureWriter&) = delete;
  CaptureWriter& operator=(const CaptureWriter&) = delete;

  /// Queues whole blocks. If there is no room, returns false and queues nothing. They are written
  /// within a fraction of a second.
  bool put(std::span<const std::byte> blocks);
  /// Bytes that put() has room for.
  std::size_t room() const;
  /// Bytes written to the files.
  std::uint64_t written() const;
  void put_always(std::span<const std::byte> blocks);
  /// Later blocks go to the next file, which replaces the oldest.
  void next_file();

  /// Waits for the rest to be written, for a few seconds; returns what has failed.
  util::Result<void> finish();

  /// True if writing has ended because a file could not be written.
  bool failed() const;
  /// @pre failed()
  std::string reason() const;

 private:
  struct State;
  explicit CaptureWriter(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

}  // namespace softhca::fabric
