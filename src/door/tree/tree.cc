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
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "door/tree/paths.h"

namespace softhca::door {
namespace {

using Gid = std::array<std::uint8_t, 16>;
using Files = std::initializer_list<std::pair<std::string_view, std::string>>;

constexpr std::size_t kGids = 256;
/// No format: the parts of a modalias, as /sys/bus/pci shows them.
constexpr std::string_view kModalias = "pci:v000015B3d00001013sv000015B3sd00000013bc02sc00i00";

/// What the kernel's ib_core and mlx5_ib count of a port with RoCE.
constexpr std::string_view kPortCounters =
    "port_rcv_data port_rcv_packets port_xmit_data port_xmit_packets port_rcv_errors "
    "port_rcv_constraint_errors port_rcv_remote_physical_errors "
    "port_rcv_switch_relay_errors port_xmit_constraint_errors port_xmit_discards "
    "port_xmit_wait symbol_error link_error_recovery link_downed "
    "local_link_integrity_errors excessive_buffer_overrun_errors VL15_dropped "
    "unicast_rcv_packets unicast_xmit_packets multicast_rcv_packets "
    "multicast_xmit_packets";
constexpr std::string_view kHardwareCounters =
    "duplicate_request implied_nak_seq_err local_ack_timeout_err out_of_buffer "
    "out_of_sequence packet_seq_err req_cqe_error req_cqe_flush_error "
    "req_remote_access_errors req_remote_invalid_request resp_cqe_error "
    "resp_cqe_flush_error resp_local_length_error resp_remote_access_errors "
    "rnr_nak_retry_err rx_atomic_requests rx_read_requests rx_write_requests";

/// Makes files and remembers the first that could not be made.
class Writer {
 public:
  explicit Writer(std::filesystem::path root) : root_(std::move(root)) {}

  void directory(const std::string& path) {
    // Files come by the directory.
    if (path == made_) return;
    made_ = path;
    std::error_code error;
    std::filesystem::create_directories(root_ / path, error);
    if (error) refuse(path, error.value());
  }

  /// `bytes` as they are, to be read by all and written by none, as in sysfs.
  void bytes(const std::string& path, std::string_view bytes) {
    const auto name = root_ / path;
    directory(std::filesystem::path(path).parent_path());
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0) return refuse(path, errno);
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written != static_cast<ssize_t>(bytes.size())) refuse(path, written < 0 ? errno : ENOSPC);
    ::close(fd);
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
  util::Result<void> result_;
};

/// Groups of 16 bits in hexadecimal: "0002:c903:0012:3450".
template <std::size_t kSize>
std::string in_groups(const std::array<std::uint8_t, kSize>& bytes) {
  std::string text;
  for (std::size_t at = 0; at < kSize; at += 2) {
    text += fmt::format("{}{:02x}{:02x}", at == 0 ? "" : ":", bytes[at], bytes[at + 1]);
  }
  return text;
}

std::string guid_text(std::uint64_t guid) {
  std::array<std::uint8_t, 8> bytes;
  for (std::size_t at = bytes.size(); at-- > 0; guid >>= 8) {
    bytes[at] = static_cast<std::uint8_t>(guid & 0xff);
  }
  return in_groups(bytes);
}

/// The host's processors, of which none is nearer: "0-3", as sysfs writes lists.
std::string processor_list() {
  std::string list;
  std::ifstream online("/sys/devices/system/cpu/online");
  if (!std::getline(online, list) || list.empty()) return "0";
  return list;
}

/// `list` as sysfs writes masks: words of 32 bits in hexadecimal, the highest first. libmlx5 reads
/// it (host-door 2.6).
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

/// Configuration space: a header of type 0 and the PCI Express capability, from which hwloc takes
/// the link (PCI Express 4.0, 7.5.1 and 7.5.3). Little-endian.
std::string configuration() {
  std::string bytes(256, '\0');
  const auto put = [&](std::size_t at, std::initializer_list<unsigned char> values) {
    for (const auto value : values) bytes[at++] = static_cast<char>(value);
  };
  put(0x00, {0xb3, 0x15, 0x13, 0x10, 0x06, 0x04, 0x10, 0x00});  // ids, enabled, has capabilities
  put(0x08, {0x00, 0x00, 0x00, 0x02});                          // Ethernet controller
  put(0x2c, {0xb3, 0x15, 0x13, 0x00});
  put(0x34, {0x60});
  put(0x60, {0x10, 0x00, 0x02, 0x00});  // PCI Express, endpoint
  put(0x6c, {0x03, 0x01});              // Link Capabilities: 8.0 GT/s, x16
  put(0x72, {0x03, 0x01});              // Link Status: the same
  return bytes;
}

/// The PCI function, with all its links.
void write_function(Writer& writer, const DeviceIdentity& device, const std::string& pci) {
  const auto address = pci_address(device);
  const auto processors = processor_list();
  const bool nodes = std::filesystem::exists("/sys/devices/system/node/node1");
  writer.texts(pci,
               {{"vendor", "0x15b3"},
                {"device", "0x1013"},
                {"subsystem_vendor", "0x15b3"},
                {"subsystem_device", "0x0013"},
                {"class", "0x020000"},
                {"revision", "0x00"},
                {"enable", "1"},
                {"irq", "0"},
                {"modalias", std::string(kModalias)},
                {"numa_node", nodes ? "-1" : "0"},
                {"local_cpus", processor_mask(processors)},
                {"local_cpulist", processors},
                {"current_link_speed", "8.0 GT/s PCIe"},
                {"current_link_width", "16"},
                {"max_link_speed", "8.0 GT/s PCIe"},
                {"max_link_width", "16"},
                {"uevent", fmt::format("DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:1013\n"
                                       "PCI_SUBSYS_ID=15B3:0013\nPCI_SLOT_NAME={}\nMODALIAS={}",
                                       address, kModalias)}});
  std::string resources;
  for (int at = 0; at < 13; ++at) resources += fmt::format("0x{0:016x} 0x{0:016x} 0x{0:016x}\n", 0);
  writer.bytes(pci + "/resource", resources);
  writer.bytes(pci + "/config", configuration());
  writer.link(pci + "/driver", "../../../bus/pci/drivers/mlx5_core");
  writer.link(pci + "/subsystem", "../../../bus/pci");
  const auto target = fmt::format("../../../devices/pci{}00/{}", kPciDomain, address);
  writer.link("sys/bus/pci/devices/" + address, target);
  writer.link("sys/bus/pci/drivers/mlx5_core/" + address, "../" + target);
  if (device.interface.empty()) return;
  const auto& mac = device.mac;
  writer.texts(fmt::format("{}/net/{}", pci, device.interface),
               {{"address", fmt::format("{:02x}", fmt::join(mac, ":"))}, {"dev_port", "0"}});
}

void write_counters(Writer& writer, const std::string& path, std::string_view names) {
  std::istringstream words{std::string(names)};
  for (std::string name; words >> name;) writer.text(fmt::format("{}/{}", path, name), "0");
}

/// Port 1: its state, tables and counters.
void write_port(Writer& writer, const DeviceIdentity& device, const std::string& port) {
  writer.texts(port, {{"state", "4: ACTIVE"},
                      {"phys_state", "5: LinkUp"},
                      {"rate", "100 Gb/sec (4X EDR)"},
                      {"lid", "0x0"},
                      {"lid_mask_count", "0"},
                      {"sm_lid", "0x0"},
                      {"sm_sl", "0"},
                      {"cap_mask", "0x04010000"},
                      {"link_layer", "Ethernet"},
                      {"pkeys/0", "0xffff"}});
  for (const auto* name : {"types", "ndevs"}) {
    writer.directory(fmt::format("{}/gid_attrs/{}", port, name));
  }
  // One directory after the other.
  std::vector<std::size_t> used;
  for (std::size_t at = 0; at < kGids; ++at) {
    const Gid gid = at < device.gids.size() ? device.gids[at] : Gid{};
    writer.text(fmt::format("{}/gids/{}", port, at), in_groups(gid));
    if (gid != Gid{}) used.push_back(at);
  }
  for (const auto at : used) {
    const auto* const type = at % 2 == 0 ? "IB/RoCE v1" : "RoCE v2";
    writer.text(fmt::format("{}/gid_attrs/types/{}", port, at), type);
  }
  if (device.interface.empty()) used.clear();
  for (const auto at : used) {
    writer.text(fmt::format("{}/gid_attrs/ndevs/{}", port, at), device.interface);
  }
  write_counters(writer, port + "/counters", kPortCounters);
  write_counters(writer, port + "/hw_counters", kHardwareCounters);
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
                    {"hca_type", "MT4115"},
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
  writer.texts(verbs,
               {{"abi_version", "1"},
                {"dev", number},
                {"ibdev", device.name},
                {"uevent", fmt::format("MAJOR={}\nMINOR={}\nDEVNAME=infiniband/{}", kUverbsMajor,
                                       kUverbsMinor + device.number, uverbs)}});
  writer.link(verbs + "/device", "../../../" + address);
  writer.link(verbs + "/subsystem", "../../../../../class/infiniband_verbs");
  const auto target = fmt::format("../../{}/infiniband_verbs/{}", bus, uverbs);
  writer.link("sys/class/infiniband_verbs/" + uverbs, target);
  writer.link("sys/dev/char/" + number, target);

  // A character device that everybody may use; it is never opened (host-door 2.5).
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
               {{"abi_version", "4"}, {"dev", fmt::format("{}:{}", kRdmaCmMajor, kRdmaCmMinor)}});
  writer.link("dev/infiniband/rdma_cm", "/dev/null");
  for (const auto& device : devices) write_device(writer, device);
  return writer.result();
}

}  // namespace softhca::door
