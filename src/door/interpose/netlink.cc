#include "door/interpose/netlink.h"

#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>
#include <utility>

#include "door/nldev/nldev.h"
#include "door/process/without_exceptions.h"
#include "door/tree/tree.h"
#include "os/kept_descriptors.h"
#include "os/unique_fd.h"
#include "uverbs/device_flags.h"

namespace softhca::door {
namespace {

/// Recently given descriptors, each plus 1. Most programs have one, for a short time.
std::array<std::atomic<int>, 8> given_fds{};
std::atomic<unsigned> given_count = 0;

/// The program has closed or replaced the descriptor.
void forget(int fd) {
  for (auto& one : given_fds) {
    int ours = fd + 1;
    one.compare_exchange_strong(ours, 0, std::memory_order_relaxed);
  }
}

/// The first line of a file of the tree; empty if there is none.
std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Parses a GUID of colon-separated groups of hexadecimal digits.
std::uint64_t guid_of(std::string text) {
  std::erase(text, ':');
  std::uint64_t guid = 0;
  std::from_chars(text.data(), text.data() + text.size(), guid, 16);
  return guid;
}

/// The leading number of a line such as "4: ACTIVE".
template <class Number>
Number number_of(const std::string& text) {
  Number number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

nldev::System system_of(const PathMap& paths) {
  nldev::System system;
  const auto classes = std::string(paths.root()) + "/sys/class/";
  system.rdma_cm = {.name = "rdma_cm",
                    .abi = RDMA_USER_CM_ABI_VERSION,
                    .number = ::makedev(kRdmaCmMajor, kRdmaCmMinor)};
  for (unsigned number = 0; number != kUverbsCount; ++number) {
    const auto file = "uverbs" + std::to_string(number);
    const auto verbs = classes + "infiniband_verbs/" + file;
    const auto name = line_of(verbs + "/ibdev");
    if (name.empty()) break;
    const auto device = classes + "infiniband/" + name;
    const auto interface = line_of(device + "/ports/1/gid_attrs/ndevs/0");
    system.devices.push_back(
        {.index = number,
         .name = name,
         .firmware = line_of(device + "/fw_ver"),
         .node_guid = guid_of(line_of(device + "/node_guid")),
         .system_image_guid = guid_of(line_of(device + "/sys_image_guid")),
         .capabilities = uverbs::kDeviceFlags,
         .port_state = number_of<std::uint8_t>(line_of(device + "/ports/1/state")),
         .physical_state = number_of<std::uint8_t>(line_of(device + "/ports/1/phys_state")),
         .interface = interface,
         .interface_index = ::if_nametoindex(interface.c_str()),
         .uverbs = {.name = file,
                    .abi = number_of<std::uint64_t>(line_of(verbs + "/abi_version")),
                    .number = ::makedev(kUverbsMajor, kUverbsMinor + number)}});
  }
  return system;
}

bool has_option(int fd, int option, int wanted) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value == wanted;
}

/// The socket's port number. An unbound socket is bound first, as a send would do. 0: this failed.
std::uint32_t port_of(int fd) {
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  for (const bool bound : {true, false}) {
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    if (!bound && ::bind(fd, address, sizeof own) != 0) return 0;
    socklen_t size = sizeof own;
    if (::getsockname(fd, address, &size) != 0 || own.nl_pid != 0) break;
  }
  return own.nl_pid;
}

bool is_stand_in(int fd) {
  return has_option(fd, SO_PROTOCOL, NETLINK_USERSOCK) && has_option(fd, SO_DOMAIN, AF_NETLINK);
}

/// The socket that sends all answers of this process. It is kept, so that no other process can get
/// its port number. -1: none can be opened.
int answering_socket() {
  static std::atomic<int> shared = -1;
  int fd = shared.load();
  if (fd >= 0 && os::is_kept(fd) && is_stand_in(fd)) return fd;  // not in a forked child
  const os::UniqueFd opened(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK));
  const int mine = opened ? os::keep_copy(opened.get()) : -1;
  if (mine < 0 || shared.compare_exchange_strong(fd, mine)) return mine;
  ::close(mine);  // another thread was faster
  return fd;
}

/// Whether the sockets are in different network namespaces, where neither reaches the other. False
/// also if the kernel does not know (before Linux 5.14).
bool are_apart(int one, int other) {
  std::uint64_t cookies[2] = {};
  for (const auto& [fd, cookie] : {std::pair(one, &cookies[0]), std::pair(other, &cookies[1])}) {
    socklen_t size = sizeof *cookie;
    if (::getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, cookie, &size) != 0) return false;
  }
  return cookies[0] != cookies[1];
}

/// Connects `fd` to the socket that answers. A NETLINK_USERSOCK socket takes messages of any
/// process until it is connected; what came before is dropped. False: this failed.
bool take_answers_only_from(std::uint32_t port, int fd) {
  sockaddr_nl peer{};
  auto* const address = reinterpret_cast<sockaddr*>(&peer);
  socklen_t size = sizeof peer;
  if (::getpeername(fd, address, &size) == 0 && peer.nl_pid == port) return true;
  peer = {};
  peer.nl_family = AF_NETLINK;
  peer.nl_pid = port;
  if (::connect(fd, address, sizeof peer) != 0) return false;
  char byte;
  while (::recv(fd, &byte, sizeof byte, MSG_DONTWAIT) >= 0) {
  }
  return true;
}

}  // namespace

int open_rdma_netlink(int type) {
  const int fd = ::socket(AF_NETLINK, type, NETLINK_USERSOCK);
  if (fd < 0) return -EPROTONOSUPPORT;
  given_fds[given_count.fetch_add(1) % given_fds.size()].store(fd + 1, std::memory_order_relaxed);
  return fd;
}

bool may_be_rdma_netlink(int fd) {
  return std::ranges::any_of(given_fds, [fd](const std::atomic<int>& one) {
    return one.load(std::memory_order_relaxed) == fd + 1;
  });
}

int serve_rdma_netlink(int fd, const void* bytes, std::size_t size, const sockaddr* to,
                       socklen_t to_size, const PathMap& paths) {
  if (!is_stand_in(fd)) {
    forget(fd);
    return 0;
  }
  if (to != nullptr) {
    // Port number 0 is the kernel.
    const auto* const address = reinterpret_cast<const sockaddr_nl*>(to);
    if (to_size < sizeof *address || address->nl_pid != 0) return 0;
  }
  const auto port = port_of(fd);
  const int from = answering_socket();
  // The program has changed its namespace. libibverbs then looks for devices in sysfs.
  if (from >= 0 && are_apart(fd, from)) return -ECONNREFUSED;
  const auto own_port = from < 0 ? 0 : port_of(from);
  if (port == 0 || own_port == 0 || !take_answers_only_from(own_port, fd)) return 0;
  sockaddr_nl asker{};
  asker.nl_family = AF_NETLINK;
  asker.nl_pid = port;
  const nldev::Bytes request(static_cast<const std::byte*>(bytes), size);
  return without_exceptions([&] {
    for (const auto& one : nldev::answer(request, port, system_of(paths))) {
      // If the reader is too slow, answers are lost, as with the kernel.
      (void)::sendto(from, one.data(), one.size(), MSG_DONTWAIT,
                     reinterpret_cast<const sockaddr*>(&asker), sizeof asker);
    }
    return 1;
  });
}

}  // namespace softhca::door
