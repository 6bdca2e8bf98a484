#include "server/device_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "rsnic/options.h"
#include "server/sdxi_keys.h"
#include "util/nearest.h"
#include "wire/address_text.h"

namespace softhca::server {
namespace {

constexpr std::string_view kGuest = "guest";
/// Base of node GUIDs of devices without a MAC. Port GUIDs are one higher.
constexpr std::uint64_t kGuids = 0x025FCAFFFF000000;

template <class T>
std::optional<T> parse_number(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The EUI-64 of a MAC address.
std::uint64_t guid_of(const rdma::Mac& mac) {
  const auto address = mac.to_u64();
  // no format: two halves of an address
  return address >> 24 << 40 | std::uint64_t{0xFFFE} << 24 | (address & 0xFFFFFF);
}

using Keys = std::vector<std::string>;

const Keys kConnectxKeys{"mac", "guid", "vectors", "doorbells", "name"};
const Keys kRsnicKeys{"profile", "mac", "guid", "vectors", "name"};
const Keys kJingzhaoKeys{"link", "guid", "icm_cache", "profile", "name"};
const Keys kModels{"connectx", "rsnic", "jingzhao", "sdxi", "sdxi-vf"};

/// `keys`: those of `model`. All models also have guest=.
tl::unexpected<util::Error> unknown_key(std::string_view model, std::string_view key, Keys keys) {
  keys.emplace_back(kGuest);
  return util::fail(fmt::format("unknown key '{}'{}; the keys of {} are {}", key,
                                util::nearest(key, keys), model, fmt::join(keys, ", ")));
}

util::Result<void> apply(connectx::DeviceOptions& options, std::string_view key,
                         std::string_view value) {
  if (key == "mac") {
    const auto mac = wire::parse_mac(value);
    if (!mac) return util::fail(fmt::format("mac={}: want XX:XX:XX:XX:XX:XX", value));
    if (mac->is_multicast()) {
      return util::fail(fmt::format("mac={}: this is a multicast address", value));
    }
    options.mac = *mac;
  } else if (key == "guid") {
    const auto guid = parse_number<std::uint64_t>(value, 16);
    if (!guid || *guid == 0) {
      return util::fail(fmt::format("guid={}: want up to 16 hex digits, not all 0", value));
    }
    options.node_guid = *guid;
  } else if (key == "vectors") {
    const auto vectors = parse_number<std::uint16_t>(value, 10);
    if (!vectors || *vectors < 2 || *vectors > 64) {
      return util::fail(fmt::format("vectors={}: want 2 to 64", value));
    }
    options.msix_vectors = *vectors;
  } else if (key == "doorbells") {
    if (value != "mapped" && value != "trapped") {
      return util::fail(fmt::format("doorbells={}: want mapped or trapped", value));
    }
    options.share_doorbells = value == "mapped";
  } else if (key == "name") {
    if (value.empty()) return util::fail("name= is empty");
    options.name = value;
  } else {
    return unknown_key("connectx", key, kConnectxKeys);
  }
  return {};
}

util::Result<void> apply(sdxi::DeviceOptions& options, std::string_view key,
                         std::string_view value) {
  return apply_sdxi_key(options, false, key, value);
}

util::Result<void> apply(jingzhao::DeviceOptions& options, std::string_view key,
                         std::string_view value) {
  if (key == "icm_cache") {
    const auto entries = parse_number<std::uint32_t>(value, 10);
    if (!entries || *entries < 1 || *entries > jingzhao::kIcmCacheMax) {
      return util::fail(fmt::format("icm_cache={}: want 1 to {}", value, jingzhao::kIcmCacheMax));
    }
    options.icm_cache = *entries;
  } else if (key == "link") {
    if (value != "ethernet" && value != "infiniband") {
      return util::fail(fmt::format("link={}: want ethernet or infiniband", value));
    }
    options.link = value == "ethernet" ? wire::Link::kEthernet : wire::Link::kInfiniband;
  } else if (key == "guid") {
    const auto guid = parse_number<std::uint64_t>(value, 16);
    if (!guid || *guid == 0 || *guid == UINT64_MAX) {
      return util::fail(
          fmt::format("guid={}: want up to 16 hex digits, neither 0 nor all ones", value));
    }
    options.node_guid = *guid;
  } else if (key == "profile") {
    if (value != "document" && value != "driver") {
      return util::fail(fmt::format("profile={}: want document or driver", value));
    }
    options.profile = value == "driver" ? jingzhao::Profile::kDriver : jingzhao::Profile::kDocument;
  } else if (key == "name") {
    if (value.empty()) return util::fail("name= is empty");
    options.name = value;
  } else {
    return unknown_key("jingzhao", key, kJingzhaoKeys);
  }
  return {};
}

/// A ConnectX with one more key.
struct RsnicCard {
  connectx::DeviceOptions options;
  operator DeviceSpec() && { return std::move(options); }
};

util::Result<void> apply(RsnicCard& card, std::string_view key, std::string_view value) {
  // No doorbells=: an RSNIC checks every access.
  if (std::ranges::find(kRsnicKeys, key) == kRsnicKeys.end()) {
    return unknown_key("rsnic", key, kRsnicKeys);
  }
  if (key != "profile") return apply(card.options, key, value);
  if (value != "driver" && value != "document") {
    return util::fail(fmt::format("profile={}: want driver or document", value));
  }
  rsnic::set_profile(card.options,
                     value == "document" ? rsnic::Profile::kDocument : rsnic::Profile::kDriver);
  return {};
}

util::Result<void> apply(VirtualFunctionSpec& spec, std::string_view key, std::string_view value) {
  if (key != "pf") return apply_sdxi_key(spec.options, true, key, value);
  if (value.empty()) return util::fail("pf= is empty");
  spec.pf = value;
  return {};
}

template <class Options>
constexpr bool is_sdxi(const Options&) {
  return std::is_same_v<Options, sdxi::DeviceOptions> ||
         std::is_same_v<Options, VirtualFunctionSpec>;
}

/// Applies each ",key=value" of `rest`.
template <class Options>
util::Result<DeviceSpec> apply_all(Options options, std::string_view rest) {
  bool first = true;
  while (!rest.empty()) {
    rest.remove_prefix(1);  // the comma
    const auto item = rest.substr(0, rest.find(','));
    rest.remove_prefix(item.size());
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) {
      return util::fail(fmt::format("'{}': want key=value; a device is {}", item, kDeviceHelp));
    }
    const auto key = item.substr(0, equals), value = item.substr(equals + 1);
    if (key == kGuest) {  // where the device runs, not a property of it
      if (value.empty()) return util::fail("guest= is empty");
      continue;
    }
    // The profile of an SDXI function also sets values of other keys.
    if (key == "profile" && !first && is_sdxi(options)) {
      return util::fail("profile= comes before the keys that differ from it");
    }
    auto applied = apply(options, key, value);
    if (!applied) return tl::unexpected(applied.error());
    first = first && key == "pf";
  }
  return DeviceSpec(std::move(options));
}

}  // namespace

util::Result<DeviceSpec> parse_device(std::string_view text, unsigned index, bool infiniband) {
  const auto model = text.substr(0, text.find(','));
  const auto rest = text.substr(model.size());
  if (model == "sdxi") {
    sdxi::DeviceOptions options;
    options.name = fmt::format("sdxi{}", index);
    return apply_all(std::move(options), rest);
  }
  if (model == "sdxi-vf") {
    VirtualFunctionSpec vf;
    vf.options.name = fmt::format("sdxi{}", index);
    auto spec = apply_all(std::move(vf), rest);
    if (spec && std::get<VirtualFunctionSpec>(*spec).pf.empty()) {
      return util::fail("sdxi-vf: pf=NAME is missing, the name of its physical function");
    }
    return spec;
  }
  if (model == "jingzhao") {
    jingzhao::DeviceOptions options;
    options.name = fmt::format("jingzhao{}", index);
    // no format: room for the ports' GUIDs
    options.node_guid = kGuids + (std::uint64_t{index} << 8);
    if (infiniband) options.link = wire::Link::kInfiniband;
    return apply_all(std::move(options), rest);
  }
  const bool is_rsnic = model == "rsnic";
  if (!is_rsnic && model != "connectx") {
    return util::fail(fmt::format("unknown device '{}'{}; a device is {}", model,
                                  util::nearest(model, kModels), kDeviceHelp));
  }
  auto options = is_rsnic ? rsnic::device_options() : connectx::DeviceOptions();
  options.name = fmt::format("{}{}", model, index);
  options.mac = rdma::Mac::from_u64(0x025FCA000000 + index);
  options.node_guid = 0;
  auto spec = is_rsnic ? apply_all(RsnicCard{std::move(options)}, rest)
                       : apply_all(std::move(options), rest);
  if (!spec) return spec;
  auto& parsed = std::get<connectx::DeviceOptions>(*spec);
  if (parsed.node_guid == 0) parsed.node_guid = guid_of(parsed.mac);
  return spec;
}

std::string guest_of(std::string_view text) {
  std::string_view guest;
  while (!text.empty()) {
    const auto item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const auto equals = item.find('=');
    if (equals != item.npos && item.substr(0, equals) == kGuest) guest = item.substr(equals + 1);
  }
  return std::string(guest);
}

const std::string& name_of(const DeviceSpec& spec) {
  if (const auto* vf = std::get_if<VirtualFunctionSpec>(&spec)) return vf->options.name;
  if (const auto* nic = std::get_if<connectx::DeviceOptions>(&spec)) return nic->name;
  if (const auto* nic = std::get_if<jingzhao::DeviceOptions>(&spec)) return nic->name;
  return std::get<sdxi::DeviceOptions>(spec).name;
}

util::Result<void> check_together(const std::vector<DeviceSpec>& specs) {
  // Names that softhca inspect shows beside the devices.
  constexpr std::array<std::string_view, 3> kTaken = {"loop", "ports", "processes"};
  std::set<std::string_view> names;
  std::set<std::uint64_t> macs, guids;
  std::map<std::string_view, unsigned> rooms;  ///< remaining VFs, by the PF's name
  for (const auto& spec : specs) {
    const auto& name = name_of(spec);
    if (std::ranges::find(kTaken, name) != kTaken.end()) {
      return util::fail(fmt::format("name={}: that is what softhca inspect calls its own", name));
    }
    if (!names.insert(name).second) {
      return util::fail(fmt::format("two devices are called {}", name));
    }
    if (const auto* nic = std::get_if<connectx::DeviceOptions>(&spec)) {
      // If two NICs of one process had the same address, users would be puzzled.
      if (!macs.insert(nic->mac.to_u64()).second || !guids.insert(nic->node_guid).second) {
        return util::fail(fmt::format("{} has the mac or guid of another device", name));
      }
    } else if (const auto* hca = std::get_if<jingzhao::DeviceOptions>(&spec)) {
      if (!guids.insert(hca->node_guid).second || !guids.insert(hca->node_guid + 1).second) {
        return util::fail(
            fmt::format("{} has the guid of another device, or the one after it", name));
      }
    } else if (const auto* pf = std::get_if<sdxi::DeviceOptions>(&spec)) {
      rooms[pf->name] = pf->vfs;
    } else if (const auto* virtual_function = std::get_if<VirtualFunctionSpec>(&spec)) {
      const auto& vf = *virtual_function;
      const auto room = rooms.find(vf.pf);
      if (room == rooms.end()) {
        return util::fail(
            fmt::format("{}: pf={}: no --device sdxi of this name stands before it", name, vf.pf));
      }
      if (room->second == 0) {
        return util::fail(fmt::format("{}: pf={}: more VFs than its vfs=N", name, vf.pf));
      }
      --room->second;
    }
  }
  return {};
}

}  // namespace softhca::server
