#include "fabric/fault_values.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "fabric/held_frames.h"
#include "util/rule_words.h"
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

std::optional<wire::MacAddress> parse_mac(std::string_view text) {
  wire::MacAddress mac;
  if (text.size() != 17) return std::nullopt;
  for (std::size_t i = 0; i != wire::MacAddress::kSize; ++i) {
    const auto digits = text.substr(3 * i, 2);
    std::uint8_t byte = 0;
    const auto [end, bad] = std::from_chars(digits.data(), digits.data() + 2, byte, 16);
    if (bad != std::errc() || end != digits.data() + 2) return std::nullopt;
    if (i != 5 && text[3 * i + 2] != ':') return std::nullopt;
    mac.bytes[i] = std::byte{byte};
  }
  return mac;
}

std::optional<wire::Gid> parse_ip(const std::string& text) {
  wire::Gid gid;
  in_addr ipv4{};
  if (::inet_pton(AF_INET, text.c_str(), &ipv4) == 1) {
    return wire::Gid::from_ipv4(ntohl(ipv4.s_addr));
  }
  if (::inet_pton(AF_INET6, text.c_str(), gid.bytes.data()) != 1) return std::nullopt;
  return gid;
}

std::string text_of(const wire::MacAddress& mac) {
  std::string text;
  for (const auto byte : mac.bytes) {
    text += fmt::format("{}{:02x}", text.empty() ? "" : ":", std::to_integer<unsigned>(byte));
  }
  return text;
}

std::string text_of(const wire::Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ipv4 = gid.is_ipv4();
  ::inet_ntop(ipv4 ? AF_INET : AF_INET6, gid.bytes.data() + (ipv4 ? 12 : 0), text.data(),
              text.size());
  return text.data();
}

std::string text_of(wire::Lid lid) { return fmt::format("{}", lid.value()); }

}  // namespace

std::optional<FrameAddress> parse_address(std::string_view text) {
  if (const auto mac = parse_mac(text)) return *mac;
  // A longer one than INET6_ADDRSTRLEN is none; a zero byte would end it early.
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  if (const auto gid = parse_ip(std::string(text))) return *gid;
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
