#include "door/tree/live_path.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "door/tree/tree.h"

namespace softhca::door {
namespace {

struct LivePlace {
  std::string_view directory;
  LivePath::Kind kind;
};
constexpr std::array kLivePlaces = {
    LivePlace{"gids", LivePath::Kind::kGid},
    LivePlace{"gid_attrs/types", LivePath::Kind::kGidType},
    LivePlace{"gid_attrs/ndevs", LivePath::Kind::kGidInterface},
    LivePlace{"counters", LivePath::Kind::kCounter},
    LivePlace{"hw_counters", LivePath::Kind::kHardwareCounter},
};
/// Files of the port itself.
constexpr std::array kStates = {
    std::pair{std::string_view("state"), LivePath::Kind::kState},
    std::pair{std::string_view("phys_state"), LivePath::Kind::kPhysicalState}};
/// Below the device's directory; a device has one port.
constexpr std::string_view kPort = "/ports/1/";

bool is_of_gids(LivePath::Kind kind) {
  return kind != LivePath::Kind::kCounter && kind != LivePath::Kind::kHardwareCounter;
}

}  // namespace

std::optional<unsigned> LivePath::index() const {
  unsigned number = 0;
  const auto* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data(), last, number);
  const bool canonical = name.size() == 1 || !name.starts_with('0');
  if (error != std::errc() || end != last || !canonical) return std::nullopt;
  // hwloc reads GIDs until a file is missing.
  return number < kGids ? std::optional(number) : std::nullopt;
}

std::optional<LivePath> find_live(std::string_view path) {
  const auto at = path.rfind(kPort);
  if (at == std::string_view::npos || !path.starts_with("/sys/")) return std::nullopt;
  const auto device = path.substr(path.rfind('/', at - 1) + 1, at - path.rfind('/', at - 1) - 1);
  const auto file = path.substr(at + kPort.size());
  for (const auto& [name, kind] : kStates) {
    if (file == name && !device.empty()) {
      return LivePath{.kind = kind, .device = device, .name = name};
    }
  }
  const auto slash = file.rfind('/');
  if (device.empty() || slash == std::string_view::npos || slash + 1 == file.size()) {
    return std::nullopt;
  }
  const auto* const place =
      std::ranges::find(kLivePlaces, file.substr(0, slash), &LivePlace::directory);
  if (place == kLivePlaces.end()) return std::nullopt;
  const LivePath live{.kind = place->kind, .device = device, .name = file.substr(slash + 1)};
  if (is_of_gids(live.kind) && !live.index()) return std::nullopt;
  return live;
}

}  // namespace softhca::door
