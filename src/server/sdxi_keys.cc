#include "server/sdxi_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <utility>

#include "pcie/msi.h"
#include "pcie/msix.h"
#include "sdxi/device.h"
#include "sdxi/workers.h"
#include "util/nearest.h"
#include "util/rule_words.h"

namespace softhca::server {
namespace {

using sdxi::AtomicSet;
using sdxi::DeviceOptions;
using spec::sdxi::cs_cap;

template <class T>
std::optional<T> number(std::string_view text, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class T>
bool set_number(T& out, std::string_view text, T least, T most) {
  const auto value = number<T>(text);
  if (!value || *value < least || *value > most) return false;
  out = *value;
  return true;
}

/// Formats 2^n: 4K, 1M.
std::string power_text(unsigned n) {
  constexpr std::array<std::string_view, 5> kUnits{"", "K", "M", "G", "T"};
  return fmt::format("{}{}", 1u << n % 10, kUnits[n / 10]);
}

/// Parses a register's power: `text` is 2^(n + `least`), and n is at most `most`.
bool set_power(std::uint8_t& out, std::string_view text, unsigned least, unsigned most) {
  constexpr std::string_view kUnits = "KMG";
  unsigned shift = 0;
  if (const auto unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
      unit != kUnits.npos) {
    shift = 10 * (static_cast<unsigned>(unit) + 1);
    text.remove_suffix(1);
  }
  const auto value = number<std::uint64_t>(text);
  if (!value || !std::has_single_bit(*value)) return false;
  const auto power = shift + static_cast<unsigned>(std::countr_zero(*value));
  if (power < least || power > least + most) return false;
  out = static_cast<std::uint8_t>(power - least);
  return true;
}

template <class T>
using Name = std::pair<std::string_view, T>;
template <class T>
using Names = std::span<const Name<T>>;

template <class T>
bool set_name(T& out, std::string_view text, Names<T> names) {
  const auto found = std::ranges::find(names, text, [](const auto& one) { return one.first; });
  if (found == names.end()) return false;
  out = found->second;
  return true;
}

template <class T>
std::string name_of(T value, Names<T> names) {
  const auto found = std::ranges::find(names, value, [](const auto& one) { return one.second; });
  return std::string(found->first);
}

constexpr Name<AtomicSet> kAtomics[] = {
    {"full", AtomicSet::kFull}, {"minimal", AtomicSet::kMinimal}, {"none", AtomicSet::kNone}};
constexpr Name<cs_cap> kCsCaps[] = {{"atomic", cs_cap::CS_ATOMIC},
                                    {"both", cs_cap::CS_BOTH},
                                    {"non-atomic", cs_cap::CS_NON_ATOMIC}};
constexpr Name<bool> kSwitch[] = {{"on", true}, {"off", false}};

bool set_ids(DeviceOptions& options, std::string_view text) {
  if (text.size() != 9 || text[4] != ':') return false;
  const auto vendor = number<std::uint16_t>(text.substr(0, 4), 16);
  const auto device = number<std::uint16_t>(text.substr(5), 16);
  if (!vendor || !device || *vendor == 0xffff) return false;
  options.vendor_id = *vendor;
  options.device_id = *device;
  return true;
}

/// AMD's hardware, as published in the driver's patches and its test script.
void set_amd(DeviceOptions& options) {
  options.vendor_id = 0x1022;
  options.device_id = 0x14dc;
  options.capabilities.max_cxt = 63;
  options.capabilities.max_ds_ring_sz = 22;
  options.capabilities.max_errlog_sz = 0;
  options.capabilities.atomics = AtomicSet::kFull;
  options.capabilities.interrupt_group = true;
}

bool set_profile(DeviceOptions& options, std::string_view text) {
  if (text == "amd") set_amd(options);
  return text == "amd" || text == "document";
}

using Options = DeviceOptions;
using Text = std::string_view;

constexpr SdxiKey kKeys[] = {
    {"profile", "document or amd",
     "all that the document offers, or what AMD has published about its hardware; put it before "
     "other keys",
     [](const Options&) { return std::string("document"); }, set_profile},
    {"contexts", "1 to 65536", "number of contexts: MMIO_CAP1.max_cxt + 1",
     [](const Options& o) { return fmt::format("{}", o.capabilities.max_cxt + 1); },
     [](Options& o, Text value) {
       std::uint32_t contexts = 0;
       if (!set_number(contexts, value, 1u, 65536u)) return false;
       o.capabilities.max_cxt = static_cast<std::uint16_t>(contexts - 1);
       return true;
     }},
    {"ring", "a power of two, 1K to 4G",
     "descriptors of the largest ring, MMIO_CAP0.max_ds_ring_sz",
     [](const Options& o) { return power_text(o.capabilities.max_ds_ring_sz + 10u); },
     [](Options& o, Text value) {
       return set_power(o.capabilities.max_ds_ring_sz, value, 10, 22);
     }},
    {"buffer", "a power of two, 2M to 4G", "bytes of the largest buffer, MMIO_CAP1.max_buffer",
     [](const Options& o) { return power_text(o.capabilities.max_buffer + 21u); },
     [](Options& o, Text value) { return set_power(o.capabilities.max_buffer, value, 21, 11); }},
    {"akeys", "a power of two, 256 to 64K", "AKeys of a context, MMIO_CAP1.max_akey_sz",
     [](const Options& o) { return power_text(o.capabilities.max_akey_sz + 8u); },
     [](Options& o, Text value) { return set_power(o.capabilities.max_akey_sz, value, 8, 8); }},
    {"rkeys", "a power of two, 256 to 64K", "RKeys, MMIO_CAP0.max_rkey_sz",
     [](const Options& o) { return power_text(o.capabilities.max_rkey_sz + 8u); },
     [](Options& o, Text value) { return set_power(o.capabilities.max_rkey_sz, value, 8, 8); }},
    {"errlog", "a power of two, 8M to 4G",
     "bytes of the largest error log (64 for a record), MMIO_CAP1.max_errlog_sz",
     [](const Options& o) { return power_text(o.capabilities.max_errlog_sz + 23u); },
     [](Options& o, Text value) { return set_power(o.capabilities.max_errlog_sz, value, 23, 9); }},
    {"stride", "a power of two, 4K to 512K", "bytes between doorbells, MMIO_CAP0.db_stride",
     [](const Options& o) { return power_text(o.capabilities.db_stride + 12u); },
     [](Options& o, Text value) { return set_power(o.capabilities.db_stride, value, 12, 7); }},
    {"cs_cap", "atomic, both or non-atomic", "how completions are signaled, MMIO_CAP0.cs_cap",
     [](const Options& o) { return name_of<cs_cap>(o.capabilities.cs_cap, kCsCaps); },
     [](Options& o, Text value) {
       return set_name<cs_cap>(o.capabilities.cs_cap, value, kCsCaps);
     }},
    {"rkey_cap", "on or off", "access to other functions of the group, MMIO_CAP1.rkey_cap",
     [](const Options& o) { return name_of<bool>(o.capabilities.rkey_cap, kSwitch); },
     [](Options& o, Text value) {
       return set_name<bool>(o.capabilities.rkey_cap, value, kSwitch);
     }},
    {"atomics", "full, minimal or none", "atomic operations, MMIO_CAP1.opb_000_cap",
     [](const Options& o) { return name_of<AtomicSet>(o.capabilities.atomics, kAtomics); },
     [](Options& o, Text value) {
       return set_name<AtomicSet>(o.capabilities.atomics, value, kAtomics);
     }},
    {"interrupts", "on or off", "the interrupt operation, MMIO_CAP1.opb_000_cap",
     [](const Options& o) { return name_of<bool>(o.capabilities.interrupt_group, kSwitch); },
     [](Options& o, Text value) {
       return set_name<bool>(o.capabilities.interrupt_group, value, kSwitch);
     }},
    {"pasid", "on or off", "structures may name a PASID. All PASIDs reach the same memory",
     [](const Options& o) { return name_of<bool>(o.any_pasid, kSwitch); },
     [](Options& o, Text value) { return set_name<bool>(o.any_pasid, value, kSwitch); }},
    {"vectors", "1 to 2048", "MSI-X vectors; number 0 is for errors and mailboxes",
     [](const Options& o) { return fmt::format("{}", o.msix_vectors); },
     [](Options& o, Text value) {
       constexpr std::uint16_t kLeast = 1;
       return set_number(o.msix_vectors, value, kLeast, pcie::Msix::kMaxVectors);
     }},
    {"msi", "0, 1, 2, 4, 8, 16 or 32", "MSI vectors; 0: no MSI",
     [](const Options& o) { return fmt::format("{}", o.msi_vectors); },
     [](Options& o, Text value) {
       std::uint16_t vectors = 0;
       if (!set_number(vectors, value, vectors, pcie::Msi::kMaxVectors)) return false;
       if (vectors != 0 && !std::has_single_bit(vectors)) return false;
       o.msi_vectors = vectors;
       return true;
     }},
    {"soft_stop", "a time, e.g. 200ms",
     "how long a soft stop waits for descriptors before it aborts them",
     [](const Options& o) { return util::time_text(o.soft_stop_timeout); },
     [](Options& o, Text value) {
       const auto time = util::parse_time(value);
       if (time) o.soft_stop_timeout = *time;
       return time.has_value();
     }},
    {"id", "VVVV:DDDD, hex digits", "PCI vendor and device id",
     [](const Options& o) { return fmt::format("{:04x}:{:04x}", o.vendor_id, o.device_id); },
     set_ids},
    {"workers", "0 to 64", "threads that execute descriptors, for all functions together",
     [](const Options& o) { return fmt::format("{}", o.workers); },
     [](Options& o, Text value) {
       return set_number(o.workers, value, 0u, unsigned{sdxi::Workers::kMax});
     }},
    {"vfs", "0 to 4096", "virtual functions that may join it",
     [](const Options& o) { return fmt::format("{}", o.vfs); },
     [](Options& o, Text value) {
       constexpr std::uint16_t kLeast = 0;
       return set_number(o.vfs, value, kLeast, sdxi::Device::kVfsMax);
     },
     false},
    {"group", "a name", "its function group; functions of others are not reached",
     [](const Options&) { return std::string("one for all without this key"); },
     [](Options& o, Text value) {
       o.group = value;
       return !value.empty();
     },
     false},
    {"name", "a name", "what logs, faults and softhca inspect call it",
     [](const Options&) { return std::string("sdxi and its place among the devices"); },
     [](Options& o, Text value) {
       o.name = value;
       return !value.empty();
     }},
};

}  // namespace

std::span<const SdxiKey> sdxi_keys() { return kKeys; }

util::Result<void> apply_sdxi_key(DeviceOptions& options, bool vf, std::string_view key,
                                  std::string_view value) {
  const auto* found = std::ranges::find(kKeys, key, &SdxiKey::name);
  if (found == std::end(kKeys) || (vf && !found->of_vfs)) {
    std::vector<std::string> known;
    if (vf) known.emplace_back("pf");
    for (const auto& one : kKeys) {
      if (!vf || one.of_vfs) known.emplace_back(one.name);
    }
    known.emplace_back("guest");
    return util::fail(fmt::format("unknown key '{}'{}; an {} has {}", key,
                                  util::nearest(key, known), vf ? "sdxi-vf" : "sdxi",
                                  fmt::join(known, ", ")));
  }
  if (found->apply(options, value)) return {};
  if (value.empty()) return util::fail(fmt::format("{}= is empty", key));
  return util::fail(fmt::format("{}={}: want {}", key, value, found->values));
}

std::string sdxi_keys_help() {
  std::string text;
  const DeviceOptions usual;
  for (const auto& key : kKeys) {
    text += fmt::format("  {:<11}{} ({}) [{}]{}\n", key.name, key.what, key.values,
                        key.default_value(usual), key.of_vfs ? "" : "; not of sdxi-vf");
  }
  return text;
}

std::string sdxi_keys_page() {
  DeviceOptions usual, amd;
  set_amd(amd);
  std::string text =
      "| key | what | values | without it | `profile=amd` |\n|---|---|---|---|---|\n";
  for (const auto& key : kKeys) {
    const auto is = key.default_value(usual), there = key.default_value(amd);
    text +=
        fmt::format("| `{}` | {}{} | {} | {} | {} |\n", key.name, key.what,
                    key.of_vfs ? "" : "; not of sdxi-vf", key.values, is, is == there ? "" : there);
  }
  return text;
}

}  // namespace softhca::server
