#include "door/tree/host_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

namespace softhca::door {
namespace {

namespace fs = std::filesystem;

/// Directories of device names, and the prefixes of the names to show. Devices with dynamic
/// numbers, from the 33rd uverbs on, are mixed with all others in /dev/char.
struct Place {
  std::string_view directory;
  std::string_view beginning;
};
constexpr Place kPlaces[] = {
    {.directory = "sys/class/infiniband", .beginning = ""},
    {.directory = "sys/class/infiniband_verbs", .beginning = "uverbs"},
    {.directory = "sys/class/infiniband_mad", .beginning = ""},
    {.directory = "sys/dev/char", .beginning = "231:"},
    {.directory = "dev/infiniband", .beginning = "uverbs"},
    {.directory = "dev/infiniband", .beginning = "umad"},
    {.directory = "dev/infiniband", .beginning = "issm"},
    {.directory = "dev/char", .beginning = "231:"},
};

/// The n of "uverbs<n>" or "mlx5_<n>".
std::optional<unsigned> number_of(std::string_view name) {
  for (const std::string_view beginning : {"uverbs", "mlx5_"}) {
    if (!name.starts_with(beginning)) continue;
    const auto digits = name.substr(beginning.size());
    unsigned number = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
    if (error == std::errc() && end == digits.end()) return number;
  }
  return std::nullopt;
}

}  // namespace

HostDevices HostDevices::find(const fs::path& host) {
  HostDevices devices;
  for (const auto& [directory, beginning] : kPlaces) devices.add_names(host, directory, beginning);
  std::ranges::sort(devices.links_);
  return devices;
}

void HostDevices::add_names(const fs::path& host, std::string_view directory,
                            std::string_view beginning) {
  std::error_code error;
  // The host may lack the directory.
  for (const auto& entry : fs::directory_iterator(host / directory, error)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(beginning)) continue;
    if (const auto number = number_of(name)) first_free_ = std::max(first_free_, *number + 1);
    links_.emplace_back(fmt::format("{}/{}", directory, name), entry.path().string());
  }
}

/// 64-bit FNV-1a.
std::string HostDevices::mark() const {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto& [name, target] : links_) {
    for (const char c : name + "\n") {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
  }
  return fmt::format("{:016x}", hash);
}

util::Result<void> HostDevices::link_into(const fs::path& root) const {
  for (const auto& [name, target] : links_) {
    std::error_code error;
    const auto path = root / name;
    fs::create_directories(path.parent_path(), error);
    if (!error) fs::create_symlink(target, path, error);
    if (error) {
      return util::fail(
          fmt::format("devices of the host: '{}': {}", path.string(), error.message()));
    }
  }
  return {};
}

}  // namespace softhca::door
