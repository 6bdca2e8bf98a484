#include "door/tree/tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "door/tree/counter_names.h"
#include "door/tree/groups.h"
#include "door/tree/paths.h"
#include "spec/pci/config.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::door {
namespace {

using Gid = std::array<std::uint8_t, 16>;
using Files = std::initializer_list<std::pair<std::string_view, std::string>>;

/// PCI vendor of the card and its subsystem.
constexpr unsigned kVendor = 0x15b3;
/// rdma_hw_stats::lifespan as a Debian kernel shows its 10 ms: three ticks of 4 ms.
constexpr std::string_view kLifespan = "12";
/// Makes the device world-accessible, in udev's syntax.
constexpr std::string_view kDeviceMode = "DEVMODE=0666";
/// Creates files, and remembers the first failure.
class Writer {
 public:
  explicit Writer(std::filesystem::path root) : root_(std::move(root)) {}

  void directory(const std::string& path) {
    // Consecutive files share a directory: skip repeats.
    if (path == made_) return;
    made_ = path;
    std::error_code error;
    std::filesystem::create_directories(root_ / path, error);
    if (error) refuse(path, error.value());
  }

  /// Writes `bytes` as they are: readable by all and writable by none, as in sysfs. Most of a
  /// device's hundreds of files have one of a few contents: only the first file of each content is
  /// created. The others are hard links to it, which cost less.
  void bytes(const std::string& path, std::string_view bytes) {
    const auto name = root_ / path;
    directory(std::filesystem::path(path).parent_path());
    const auto same = files_.find(bytes);
    if (same != files_.end() && ::link(same->second.c_str(), name.c_str()) == 0) return;
    // Without links, or at their limit, another file is made.
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0) return refuse(path, errno);
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written != static_cast<ssize_t>(bytes.size())) refuse(path, written < 0 ? errno : ENOSPC);
    ::close(fd);
    files_.insert_or_assign(std::string(bytes), name);
  }

  void text(const std::string& path, std::string_view text) {
    bytes(path, fmt::format("{}\n", text));
  }

  void texts(const std::string& path, const Files& files) {
    for (const auto& [name, content] : files) text(fmt::format("{}/{}", path, name), content);
  }

  void link(const std::string& path, const std::string& target) {
    directory(std::filesystem::path(path).parent_path());
    std::error_code error;
    std::filesystem::create_symlink(target, root_ / path, error);
    if (error) refuse(path, error.value());
  }

  util::Result<void> result() const { return result_; }

 private:
  void refuse(const std::string& path, int code) {
    if (!result_) return;
    result_ = util::fail(fmt::format("tree of the door: '{}': {}", (root_ / path).string(),
                                     std::generic_category().message(code)));
  }

  std::filesystem::path root_;
  std::string made_;
  std::map<std::string, std::filesystem::path, std::less<>> files_;  ///< by content
  util::Result<void> result_;
};

std::string guid_text(std::uint64_t guid) {
  std::array<std::byte, sizeof guid> bytes;
  util::store_be64(bytes.data(), guid);
  return in_groups(bytes);
}

/// All processors of the host, since none is nearer to the device: "0-3", as sysfs writes lists.
std::string processor_list() {
  std::string list;
  std::ifstream online("/sys/devices/system/cpu/online");
  if (!std::getline(online, list) || list.empty()) return "0";
  return list;
}

/// The MTU of the host's interface. Linux's of lo if there is no such interface.
std::string interface_mtu(const std::string& interface) {
  std::string mtu;
  std::ifstream file("/sys/class/net/" + interface + "/mtu");
  if (!std::getline(file, mtu) || mtu.empty()) return "65536";
  return mtu;
}

/// Converts `list` to a sysfs mask: 32-bit words in hexadecimal, the highest first. libmlx5 reads
/// it (kernel interface 2.6).
std::string processor_mask(std::string_view list) {
  std::vector<std::uint32_t> words(1);
  std::istringstream ranges{std::string(list)};
  for (std::string range; std::getline(ranges, range, ',');) {
    unsigned first = 0;
    unsigned last = 0;
    const int count = std::sscanf(range.c_str(), "%u-%u", &first, &last);
    if (count < 1) continue;
    for (auto at = first; at <= std::min(count == 1 ? first : last, 65535U); ++at) {
      if (at / 32 >= words.size()) words.resize(at / 32 + 1);
      words[at / 32] |= 1U << at % 32;
    }
  }
  return fmt::format("{:08x}", fmt::join(words.rbegin(), words.rend(), ","));
}

/// Configuration space: a type 0 header and the PCI Express capability, from which hwloc reads the
/// link (PCIe 4.0 7.5.1, 7.5.3). Little-endian.
std::string configuration(const DeviceIdentity& device) {
  using Header = spec::pci::config_header;
  using Capability = spec::pci::capability_header;
  using Express = spec::pci::express_capability;
  constexpr std::size_t kExpressAt = 0x60;
  constexpr std::uint32_t kEthernetController = 0x020000, kSpeed8GT = 3, kWidth16 = 16;
  std::string bytes(256, '\0');
  const auto space = std::as_writable_bytes(std::span(bytes));
  const util::MutableView<Header> header(space);
  header.set(Header::vendor_id, kVendor);
  header.set(Header::device_id, device.device_id);
  header.set(Header::memory_space_enable, 1);
  header.set(Header::bus_master_enable, 1);
  header.set(Header::interrupt_disable, 1);
  header.set(Header::capabilities_list, 1);
  header.set(Header::class_code, kEthernetController);
  header.set(Header::subsystem_vendor_id, kVendor);
  header.set(Header::subsystem_id, device.subsystem_id);
  header.set(Header::capabilities_pointer, kExpressAt);
  util::MutableView<Capability>(space.subspan(kExpressAt))
      .set(Capability::id, static_cast<std::uint32_t>(spec::pci::capability_id::EXPRESS));
  const util::MutableView<Express> express(space.subspan(kExpressAt));
  express.set(Express::version, 2);
  express.set(Express::max_link_speed, kSpeed8GT);
  express.set(Express::max_link_width, kWidth16);
  express.set(Express::link_speed, kSpeed8GT);
  express.set(Express::link_width, kWidth16);
  return bytes;
}

/// Writes the PCI function with all its links.
void write_function(Writer& writer, const DeviceIdentity& device, const std::string& pci) {
  const auto address = pci_address(device);
  const auto processors = processor_list();
  const bool nodes = std::filesystem::exists("/sys/devices/system/node/node1");
  // The form that /sys/bus/pci uses.
  const auto modalias = fmt::format("pci:v{0:08X}d{1:08X}sv{0:08X}sd{2:08X}bc02sc00i00", kVendor,
                                    device.device_id, device.subsystem_id);
  writer.texts(
      pci,
      {{"vendor", fmt::format("0x{:04x}", kVendor)},
       {"device", fmt::format("0x{:04x}", device.device_id)},
       {"subsystem_vendor", fmt::format("0x{:04x}", kVendor)},
       {"subsystem_device", fmt::format("0x{:04x}", device.subsystem_id)},
       {"class", "0x020000"},
       {"revision", "0x00"},
       {"enable", "1"},
       {"irq", "0"},
       {"modalias", modalias},
       {"numa_node", nodes ? "-1" : "0"},
       {"local_cpus", processor_mask(processors)},
       {"local_cpulist", processors},
       {"current_link_speed", "8.0 GT/s PCIe"},
       {"current_link_width", "16"},
       {"max_link_speed", "8.0 GT/s PCIe"},
       {"max_link_width", "16"},
       {"uevent", fmt::format("DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID={0:04X}:{1:04X}\n"
                              "PCI_SUBSYS_ID={0:04X}:{2:04X}\nPCI_SLOT_NAME={3}\nMODALIAS={4}",
                              kVendor, device.device_id, device.subsystem_id, address, modalias)}});
  std::string resources;
  for (int at = 0; at < 13; ++at) resources += fmt::format("0x{0:016x} 0x{0:016x} 0x{0:016x}\n", 0);
  writer.bytes(pci + "/resource", resources);
  writer.bytes(pci + "/config", configuration(device));
  writer.link(pci + "/driver", "../../../bus/pci/drivers/mlx5_core");
  writer.link(pci + "/subsystem", "../../../bus/pci");
  const auto target = fmt::format("../../../devices/pci{}00/{}", kPciDomain, address);
  writer.link("sys/bus/pci/devices/" + address, target);
  writer.link("sys/bus/pci/drivers/mlx5_core/" + address, "../" + target);
  if (device.interface.empty()) return;
  const auto& mac = device.mac;
  writer.texts(fmt::format("{}/net/{}", pci, device.interface),
               {{"address", fmt::format("{:02x}", fmt::join(mac, ":"))},
                {"dev_port", "0"},
                {"mtu", interface_mtu(device.interface)}});
}

/// The door fills files whose content depends on the process or the time (live_path.h). The content
/// written here is for programs that bypass the door. As in Linux, each name has a file.
void write_live_files(Writer& writer, const DeviceIdentity& device, const std::string& port) {
  const auto gid_of = [&](std::size_t at) {
    return at < device.gids.size() ? device.gids[at] : Gid{};
  };
  for (std::size_t at = 0; at < kGids; ++at) {
    const auto gid = gid_of(at);
    writer.text(fmt::format("{}/gids/{}", port, at), in_groups(std::as_bytes(std::span(gid))));
  }
  for (std::size_t at = 0; at < kGids; ++at) {
    const bool used = at < device.gids.size();
    const auto* const type = !used ? "" : at % 2 == 0 ? "IB/RoCE v1\n" : "RoCE v2\n";
    writer.bytes(fmt::format("{}/gid_attrs/types/{}", port, at), type);
  }
  const auto interface = device.interface.empty() ? std::string() : device.interface + "\n";
  for (std::size_t at = 0; at < kGids; ++at) {
    const bool used = at < device.gids.size();
    writer.bytes(fmt::format("{}/gid_attrs/ndevs/{}", port, at), used ? interface : std::string());
  }
  for (const auto name : kPortCounters) writer.text(fmt::format("{}/counters/{}", port, name), "0");
  for (const auto name : kHardwareCounters) {
    writer.text(fmt::format("{}/hw_counters/{}", port, name), "0");
  }
  writer.text(port + "/hw_counters/lifespan", kLifespan);
}

/// Writes port 1: its state, tables and counters.
void write_port(Writer& writer, const DeviceIdentity& device, const std::string& port) {
  writer.texts(port, {{"state", "4: ACTIVE"},
                      {"phys_state", "5: LinkUp"},
                      {"rate", "100 Gb/sec (4X EDR)"},
                      {"lid", "0x0"},
                      {"lid_mask_count", "0"},
                      {"sm_lid", "0x0"},
                      {"sm_sl", "0"},
                      {"cap_mask", "0x00010000"},
                      {"link_layer", "Ethernet"},
                      {"pkeys/0", "0xffff"}});
  write_live_files(writer, device, port);
}

void write_device(Writer& writer, const DeviceIdentity& device) {
  const auto address = pci_address(device);
  const auto bus = fmt::format("devices/pci{}00/{}", kPciDomain, address);
  const auto pci = "sys/" + bus;
  write_function(writer, device, pci);

  const auto ib = fmt::format("{}/infiniband/{}", pci, device.name);
  writer.texts(ib, {{"node_type", "1: CA"},
                    {"node_guid", guid_text(device.node_guid)},
                    {"sys_image_guid", guid_text(device.node_guid)},
                    {"fw_ver", device.firmware},
                    {"board_id", device.board_id},
                    {"hca_type", fmt::format("MT{}", device.device_id)},
                    {"hw_rev", "0"},
                    {"node_desc", "softhca " + device.name},
                    {"uevent", "NAME=" + device.name}});
  writer.link(ib + "/device", "../../../" + address);
  writer.link(ib + "/subsystem", "../../../../../class/infiniband");
  writer.link("sys/class/infiniband/" + device.name,
              fmt::format("../../{}/infiniband/{}", bus, device.name));
  write_port(writer, device, ib + "/ports/1");

  const auto uverbs = fmt::format("uverbs{}", device.number);
  const auto number = fmt::format("{}:{}", kUverbsMajor, kUverbsMinor + device.number);
  const auto verbs = fmt::format("{}/infiniband_verbs/{}", pci, uverbs);
  writer.texts(
      verbs, {{"abi_version", "1"},
              {"dev", number},
              {"ibdev", device.name},
              {"uevent", fmt::format("MAJOR={}\nMINOR={}\nDEVNAME=infiniband/{}\n{}", kUverbsMajor,
                                     kUverbsMinor + device.number, uverbs, kDeviceMode)}});
  writer.link(verbs + "/device", "../../../" + address);
  writer.link(verbs + "/subsystem", "../../../../../class/infiniband_verbs");
  const auto target = fmt::format("../../{}/infiniband_verbs/{}", bus, uverbs);
  writer.link("sys/class/infiniband_verbs/" + uverbs, target);
  writer.link("sys/dev/char/" + number, target);

  // Stands for a world-accessible character device; it is never opened (kernel interface 2.5).
  writer.link("dev/infiniband/" + uverbs, "/dev/null");
  writer.link("dev/char/" + number, "../infiniband/" + uverbs);
}

bool is_file_name(std::string_view name) {
  const std::string_view refused("/\n\0", 3);
  return !name.empty() && name.size() < 64 && name != "." && name != ".." &&
         name.find_first_of(refused) == std::string_view::npos;
}

}  // namespace

std::optional<DeviceNumbers> parse_device_numbers(std::string_view word) {
  DeviceNumbers numbers;
  const auto* const last = word.data() + word.size();
  auto [end, error] = std::from_chars(word.data(), last, numbers.count);
  if (error != std::errc()) return std::nullopt;
  if (end != last) {
    if (*end != '+') return std::nullopt;
    const auto first = std::from_chars(end + 1, last, numbers.first);
    if (first.ec != std::errc() || first.ptr == last || *first.ptr != '-') return std::nullopt;
    const std::string_view mark(first.ptr + 1, last);
    if (mark.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  }
  const bool fits = numbers.count != 0 && numbers.count <= kUverbsCount &&
                    numbers.first <= kUverbsCount - numbers.count;
  return fits ? std::optional(numbers) : std::nullopt;
}

std::string pci_address(const DeviceIdentity& device) {
  return fmt::format("{}00:{:02x}.0", kPciDomain, device.number);
}

util::Result<void> write_tree(const std::filesystem::path& root,
                              std::span<const DeviceIdentity> devices) {
  for (const auto& device : devices) {
    const bool interface = device.interface.empty() || is_file_name(device.interface);
    if (!is_file_name(device.name) || !interface) {
      return util::fail(fmt::format("tree of the door: '{}' of interface '{}': no file's name",
                                    device.name, device.interface));
    }
    if (device.number >= kUverbsCount || device.gids.size() > kGids) {
      return util::fail(fmt::format("tree of the door: '{}': number {} of {}, {} GIDs of {}",
                                    device.name, device.number, kUverbsCount, device.gids.size(),
                                    kGids));
    }
  }
  Writer writer(root);
  for (const auto* directory : {"sys/class/infiniband", "sys/class/infiniband_verbs",
                                "sys/bus/pci/devices", "dev/infiniband", "dev/char"}) {
    writer.directory(directory);
  }
  writer.text("sys/class/infiniband_verbs/abi_version", "6");
  writer.texts("sys/class/misc/rdma_cm",
               {{"abi_version", "4"},
                {"dev", fmt::format("{}:{}", kRdmaCmMajor, kRdmaCmMinor)},
                {"uevent", fmt::format("MAJOR={}\nMINOR={}\nDEVNAME=infiniband/rdma_cm\n{}",
                                       kRdmaCmMajor, kRdmaCmMinor, kDeviceMode)}});
  writer.link("sys/class/misc/rdma_cm/subsystem", "/sys/class/misc");
  writer.link("dev/infiniband/rdma_cm", "/dev/null");
  if (!writer.result()) return writer.result();
  for (const auto& device : devices) {
    // Devices share no file, so that programs may compare their inodes.
    Writer own(root);
    write_device(own, device);
    if (!own.result()) return own.result();
  }
  return {};
}

}  // namespace softhca::door
