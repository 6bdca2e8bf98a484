// Writes a capture to a file, or to a ring of files, in a thread of its own: who captures never
// waits for a disk, or for who reads a pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "util/result.h"

namespace softhca::fabric {

/// Files are for their owner alone (mode 0600), whatever the umask is. Of one that cannot be
/// written any more only whole blocks stay.
class CaptureWriter {
 public:
  /// That many bytes wait for the disk at most, but for what is put with put_always().
  static constexpr std::size_t kCapacity = std::size_t{32} << 20;

  /// The files' names as tcpdump -W has them: `path` itself if it is one, else with a number behind
  /// it, "wire.pcapng00" if there are more than ten.
  static std::string name_of(const std::string& path, unsigned files, unsigned index);

  /// Opens the first file. That waits for the reader if it is a pipe.
  static util::Result<std::unique_ptr<CaptureWriter>> create(std::string path, unsigned files);
  ~CaptureWriter();
  CaptureWriter(const CaptureWriter&) = delete;
  CaptureWriter& operator=(const CaptureWriter&) = delete;

  /// Whole blocks. False if there is no room: then nothing is taken. They are in the file within a
  /// fraction of a second.
  bool put(std::span<const std::byte> blocks);
  /// Bytes that put() has room for.
  std::size_t room() const;
  /// Bytes that have left for the files.
  std::uint64_t written() const;
  void put_always(std::span<const std::byte> blocks);
  /// What follows stands in the next file, which takes the place of the oldest.
  void next_file();

  /// Waits a few seconds for the rest to be written, and no longer; says what has failed.
  util::Result<void> finish();

  /// True when nothing is written any more, since a file could not be.
  bool failed() const;
  /// @pre failed()
  std::string reason() const;

 private:
  struct State;
  explicit CaptureWriter(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

}  // namespace softhca::fabric
