#include "run/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace softhca::run {
namespace {

constexpr unsigned kFilesMax = 10'000;

std::uint64_t nanoseconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

util::Result<void> check_capture(const CaptureOptions& options) {
  if (options.pcap.empty() && (options.pcap_size != 0 || options.pcap_files != 0)) {
    return util::fail("--pcap-size and --pcap-files limit a capture: --pcap FILE is missing");
  }
  if (options.pcap_files != 0 && options.pcap_size == 0) {
    return util::fail("--pcap-files: how large each file may be is missing, e.g. --pcap-size 64M");
  }
  if (options.pcap_size != 0 && options.pcap_size < fabric::Capture::kFileSizeMin) {
    return util::fail(fmt::format("--pcap-size {}: want at least {}K", options.pcap_size,
                                  fabric::Capture::kFileSizeMin / 1024));
  }
  if (options.pcap_files != 0 && (options.pcap_files < 2 || options.pcap_files > kFilesMax)) {
    return util::fail(fmt::format("--pcap-files {}: want 2 to {}", options.pcap_files, kFilesMax));
  }
  return {};
}

}  // namespace

util::Result<std::unique_ptr<fabric::Capture>> make_capture(const CaptureOptions& options) {
  if (auto checked = check_capture(options); !checked) return tl::unexpected(checked.error());
  if (options.pcap.empty()) return nullptr;
  const fabric::Capture::Limits limits{.file_size = options.pcap_size,
                                       .files = std::max(1u, options.pcap_files)};
  return fabric::Capture::create(options.pcap, limits, nanoseconds_since_1970);
}

}  // namespace softhca::run
