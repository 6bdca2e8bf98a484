// Files of the tree whose content differs between processes: each open() gets the present content.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>

#include "door/card/run_counters.h"
#include "door/engine/engine.h"
#include "door/kernel.h"
#include "door/process/without_exceptions.h"
#include "door/tree/groups.h"
#include "door/tree/live_path.h"
#include "door/tree/tree.h"
#include "hub/join.h"

namespace softhca::door {
namespace {

/// A readable descriptor with `text` as content; or -errno.
int file_of(std::string_view text) {
  const os::UniqueFd memory(::memfd_create("softhca-sysfs", MFD_CLOEXEC));
  if (!memory) return -errno;
  const auto written = ::write(memory.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) return -ENOSPC;
  // Reopened read-only.
  const int fd = ::open(fmt::format("/proc/self/fd/{}", memory.get()).c_str(), O_RDONLY);
  return fd < 0 ? -errno : fd;
}

/// The number n of "mlx5_<n>". Nothing: the run has no such device, but perhaps the host has.
std::optional<unsigned> number_of(std::string_view device) {
  constexpr std::string_view kBeginning = "mlx5_";
  if (!device.starts_with(kBeginning)) return std::nullopt;
  device.remove_prefix(kBeginning.size());
  unsigned number = 0;
  const auto* const last = device.data() + device.size();
  const auto [end, error] = std::from_chars(device.data(), last, number);
  if (error != std::errc() || end != last) return std::nullopt;
  const char* const shown = std::getenv(kDevicesVariable);
  const auto ours = shown == nullptr ? DeviceNumbers{} : parse_device_numbers(shown);
  const bool is_ours = ours && number >= ours->first && number - ours->first < ours->count;
  return is_ours ? std::optional(number) : std::nullopt;
}

/// A descriptor on which every read fails with EINVAL.
int file_that_cannot_be_read() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

/// Link-local and IPv4, each for both RoCE versions (gids_of()).
constexpr unsigned kGidsOfProcess = 4;

/// Whether a process without a device must create one to answer: for the addresses themselves, and
/// if the entries follow a host interface.
bool needs_device(const LivePath& file, unsigned index) {
  if (engine_if_made() != nullptr) return true;
  const char* const addresses = std::getenv("SOFTHCA_ADDRESS");
  if (addresses != nullptr && std::strstr(addresses, "if:") != nullptr) return true;
  return file.kind == LivePath::Kind::kGid && index < kGidsOfProcess;
}

/// As in sysfs: an entry without an address reads as zeros, and its attributes cannot be read.
int open_gid(const LivePath& file, bool& known) {
  const auto index = file.index();
  if (index && !needs_device(file, *index)) {
    known = file.kind != LivePath::Kind::kGid && *index >= kGidsOfProcess;
    return known ? file_that_cannot_be_read() : -ENOENT;
  }
  auto* const engine = engine_of_process();
  const auto number = number_of(file.device);
  std::optional<uverbs::GidEntry> entry;
  std::string interface;
  known =
      engine != nullptr && index && number && engine->find_gid(*number, *index, entry, interface);
  if (!known) return -ENOENT;
  if (file.kind == LivePath::Kind::kGid) {
    const auto gid = entry ? entry->gid : driver::Gid{};
    return file_of(in_groups(gid.bytes) + "\n");
  }
  if (!entry) return file_that_cannot_be_read();
  if (file.kind == LivePath::Kind::kGidInterface) return file_of(interface + "\n");
  return file_of(entry->roce_v2 ? "RoCE v2\n" : "IB/RoCE v1\n");
}

int open_counter(const LivePath& file, bool& known) {
  const char* const directory = std::getenv("SOFTHCA_DOOR");
  known = directory != nullptr && number_of(file.device).has_value();
  if (!known) return -ENOENT;
  if (auto* const engine = engine_if_made(); engine != nullptr) engine->publish_counters();
  const auto all = RunCounters(directory, file.device).read();
  const auto value = file.kind == LivePath::Kind::kCounter
                         ? uverbs::port_counter(all, file.name)
                         : uverbs::hardware_counter(all, file.name);
  known = value.has_value();
  return known ? file_of(fmt::format("{}\n", *value)) : -ENOENT;
}

/// Once the hub has gone, the port is down, also for programs without an open device. Until then
/// the tree's file is right. A device that has lost its link never gets another.
int open_state(const LivePath& file, bool& known) {
  const char* const directory = std::getenv("SOFTHCA_DOOR");
  auto* const engine = engine_if_made();
  const auto number = number_of(file.device);
  known = directory != nullptr && number &&
          ((engine != nullptr && engine->has_lost_link(*number)) ||
           hub::has_gone(std::string(directory) + "/hub"));
  if (!known) return -ENOENT;
  return file_of(file.kind == LivePath::Kind::kState ? "1: DOWN\n" : "3: Disabled\n");
}

}  // namespace

bool open_live_file(std::string_view path, int& result) {
  const auto file = find_live(path);
  if (!file) return false;
  const ForkPause pause;
  bool known = true;
  result = without_exceptions([&] {
    using Kind = LivePath::Kind;
    switch (file->kind) {
      case Kind::kState:
      case Kind::kPhysicalState:
        return open_state(*file, known);
      case Kind::kCounter:
      case Kind::kHardwareCounter:
        return open_counter(*file, known);
      case Kind::kGid:
      case Kind::kGidType:
      case Kind::kGidInterface:
        break;
    }
    return open_gid(*file, known);
  });
  return known;
}

}  // namespace softhca::door
