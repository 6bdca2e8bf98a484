#include "fabric/fault_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "fabric/held_frames.h"
#include "util/rule_words.h"
#include "wire/address_text.h"
#include "wire/opcode.h"

namespace softhca::fabric {
namespace {

using wire::Operation;

struct OpcodeGroup {
  std::string_view name;
  bool (*has)(const wire::OpcodeInfo& info);
};

constexpr std::array<OpcodeGroup, 10> kGroups{{
    {"request", [](const auto& info) { return info.request; }},
    {"response", [](const auto& info) { return info.response(); }},
    {"send", [](const auto& info) { return info.operation == Operation::kSend; }},
    {"write", [](const auto& info) { return info.operation == Operation::kRdmaWrite; }},
    {"read-request",
     [](const auto& info) { return info.operation == Operation::kRdmaReadRequest; }},
    {"read-response",
     [](const auto& info) { return info.operation == Operation::kRdmaReadResponse; }},
    {"ack", [](const auto& info) { return info.operation == Operation::kAcknowledge; }},
    {"atomic",
     [](const auto& info) {
       using enum Operation;
       return info.operation == kCompareSwap || info.operation == kFetchAdd ||
              info.operation == kMaskedCompareSwap || info.operation == kMaskedFetchAdd;
     }},
    {"atomic-ack",
     [](const auto& info) { return info.operation == Operation::kAtomicAcknowledge; }},
    {"cnp", [](const auto& info) { return info.operation == Operation::kCongestionNotification; }},
}};

struct Unit {
  std::string_view name;
  std::uint64_t size;
};
constexpr std::array<Unit, 3> kRates{
    {{"kbit", 1000}, {"mbit", 1'000'000}, {"gbit", 1'000'000'000}}};
constexpr std::array<Unit, 3> kSizes{{{"", 1}, {"K", 1 << 10}, {"M", 1 << 20}}};
constexpr std::uint64_t kCountMax = UINT32_MAX;
/// A terabit per second.
constexpr std::uint64_t kRateMax = 1'000'000'000'000;
/// No queue is longer.
constexpr std::uint64_t kSizeMax = HeldFrames::kBytesMax;

std::optional<std::uint64_t> parse_units(std::string_view text, std::span<const Unit> units) {
  const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto unit = std::ranges::find(units, text.substr(digits), &Unit::name);
  if (digits == 0 || unit == units.end()) return std::nullopt;
  const auto count = util::parse_number<std::uint64_t>(text.substr(0, digits));
  if (!count || *count > kCountMax) return std::nullopt;
  return *count * unit->size;
}

std::string units_text(std::uint64_t number, std::span<const Unit> units) {
  auto best = units.front();
  for (const auto& unit : units) {
    if (number != 0 && number % unit.size == 0) best = unit;
  }
  return fmt::format("{}{}", number / best.size, best.name);
}

std::string text_of(wire::Lid lid) { return fmt::format("{}", lid.value()); }

}  // namespace

std::optional<FrameAddress> parse_address(std::string_view text) {
  if (const auto mac = wire::parse_mac(text)) return *mac;
  if (const auto gid = wire::parse_ip(text)) return *gid;
  const auto lid = util::parse_number<std::uint16_t>(text);
  if (!lid || *lid == 0) return std::nullopt;
  return wire::Lid(*lid);
}

std::string address_text(const FrameAddress& address) {
  return std::visit([](const auto& one) { return text_of(one); }, address);
}

std::optional<std::bitset<256>> find_opcodes(std::string_view name) {
  std::bitset<256> found;
  const auto* const group = std::ranges::find(kGroups, name, &OpcodeGroup::name);
  for (std::size_t i = 0; i != wire::kOpcodes.size(); ++i) {
    const auto& info = wire::kOpcodes[i];
    if (!info.defined) continue;
    // The reserved opcodes share one name, which has blanks.
    found[i] = group != kGroups.end() ? group->has(info) : info.name == name;
  }
  if (found.none()) return std::nullopt;
  return found;
}

const std::string& opcode_groups() {
  static const std::string kNames = [] {
    std::string names;
    for (const auto& group : kGroups)
      names += (names.empty() ? "" : ", ") + std::string(group.name);
    return names;
  }();
  return kNames;
}

std::optional<std::uint64_t> parse_rate(std::string_view text) {
  const auto rate = parse_units(text, kRates);
  return rate && *rate != 0 && *rate <= kRateMax ? rate : std::nullopt;
}

std::string rate_text(std::uint64_t rate) { return units_text(rate, kRates); }

std::optional<std::uint64_t> parse_size(std::string_view text) {
  const auto size = parse_units(text, kSizes);
  return size && *size <= kSizeMax ? size : std::nullopt;
}

std::string size_text(std::uint64_t bytes) { return units_text(bytes, kSizes); }

std::optional<double> parse_probability(std::string_view text) {
  double value = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (bad != std::errc() || end != text.data() + text.size()) return std::nullopt;
  // A nan is in no range.
  return value > 0 && value <= 1 ? std::optional(value) : std::nullopt;
}

}  // namespace softhca::fabric
