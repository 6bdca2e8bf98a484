// A capture of all frames of a switch, in one pcapng file with one interface for each port.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fabric/tap.h"
#include "util/result.h"
#include "wire/pcapng.h"

namespace softhca::fabric {

/// A frame stands in the file once, as outbound on the interface of the port that sent it.
/// Written out at least every kFlushInterval while frames flow, when flush() is called (a loop
/// does so before it sleeps), and at destruction. Its owner alone may read it.
class Capture final : public Tap {
 public:
  /// Nanoseconds since 1970-01-01 UTC.
  using Clock = std::function<std::uint64_t()>;
  static constexpr std::uint64_t kFlushIntervalNs = 100'000'000;

  static util::Result<std::unique_ptr<Capture>> create(const std::string& path, Clock clock);

  void handle_port(std::uint32_t port, std::string_view name) override;
  void handle_frame(std::uint32_t ingress_port, const wire::Frame& frame) override;
  void handle_idle() override { flush_if_due(clock_()); }
  /// No system call if nothing was written since.
  void flush();

  std::uint64_t frames() const { return frames_; }

 private:
  Capture(std::string path, Clock clock);
  void flush_if_due(std::uint64_t now);

  const std::string path_;
  const Clock clock_;
  std::vector<char> buffer_;  ///< must outlive file_
  std::ofstream file_;
  std::unique_ptr<wire::PcapngWriter> writer_;
  std::vector<std::uint32_t> interfaces_;  ///< by port
  std::uint64_t frames_ = 0;
  std::uint64_t flushed_at_ = 0;
  bool unflushed_ = false;
  bool failed_ = false;
};

}  // namespace softhca::fabric
