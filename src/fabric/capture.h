// Captures all frames of some switches, in pcapng files with one interface per port.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/capture_writer.h"
#include "fabric/tap.h"
#include "util/log.h"
#include "util/result.h"
#include "wire/pcapng.h"

namespace softhca::fabric {

/// Each frame is in the file once, as outbound on the interface of the port that sent it, within a
/// fraction of a second. Frames that the disk does not take in time are lost; the port's next frame
/// says how many. If a file cannot be written, the capture ends, with a reason in the log.
class Capture final {
 public:
  /// Returns nanoseconds since 1970-01-01 UTC.
  using Clock = std::function<std::uint64_t()>;
  struct Limits {
    std::uint64_t file_size = 0;  ///< bytes; 0: no limit
    /// One: the capture ends when the file is full. More: a ring of files, in which the next file
    /// replaces the oldest.
    unsigned files = 1;
  };
  /// The least bytes that a file must be able to hold: a few interfaces and the longest frame.
  static constexpr std::uint64_t kFileSizeMin = 64 * 1024;

  /// @pre if there are several files, they have a limit; a limit is at least kFileSizeMin
  static util::Result<std::unique_ptr<Capture>> create(const std::string& path, Limits limits,
                                                       Clock clock);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Makes a tap for one more switch. The capture owns it.
  Tap& add_tap();

  /// Number of frames captured, including lost ones, and number of those lost.
  std::uint64_t frames() const { return frames_; }
  std::uint64_t lost() const { return lost_; }

 private:
  class SwitchTap;
  struct Interface {
    std::string name;
    wire::Link link = wire::Link::kEthernet;
    std::uint32_t id = 0;       ///< in the current file
    std::uint64_t dropped = 0;  ///< since its last frame
  };

  Capture(std::string path, Limits limits, Clock clock, std::unique_ptr<CaptureWriter> writer);
  void add_interface(Interface& interface);
  bool ended();
  void handle_frame(Interface& interface, const wire::Frame& frame);
  void encode(const Interface& interface, std::uint64_t now, const wire::Frame& frame);
  bool fits() const;
  void begin_file();
  void lose(Interface& interface);
  void end(util::LogLevel level, std::string_view reason);

  const std::string path_;
  const Limits limits_;
  const Clock clock_;
  const std::unique_ptr<CaptureWriter> writer_;
  std::vector<std::unique_ptr<SwitchTap>> taps_;
  std::vector<std::byte> blocks_;  ///< blocks being built
  std::optional<wire::PcapngWriter> pcapng_;
  std::uint64_t file_size_ = 0;  ///< of the current file
  std::uint64_t head_size_ = 0;  ///< of the current file, without frames
  std::uint64_t frames_ = 0;
  std::uint64_t lost_ = 0;
  bool ended_ = false;
};

}  // namespace softhca::fabric
