// Replaces libibumad's calls into the kernel, for an unmodified opensm that preloads it. opensm
// finds one port. A channel carries its MADs to and from the process that started it.
#include <endian.h>
#include <errno.h>
#include <infiniband/umad.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../channel.h"

namespace {

using softhca::opensm::Packet;

constexpr char kName[] = "softhca0";
constexpr std::size_t kMadSize = sizeof(Packet::mad);
constexpr std::size_t kClass = 1;  ///< offset in a MAD (IBTA 13.4.3)
constexpr std::uint16_t kDefaultPkey = 0xFFFF;

std::uint16_t pkeys[] = {kDefaultPkey};
/// Agent number by class.
std::array<std::atomic<int>, 256> agents;
std::atomic<int> agent_count;

int channel() {
  static const int fd = std::atoi(std::getenv(softhca::opensm::kChannelVariable));
  return fd;
}

void describe(umad_port_t* port) {
  *port = {};
  std::snprintf(port->ca_name, sizeof(port->ca_name), "%s", kName);
  port->portnum = 1;
  port->state = 2;  // INIT
  port->phys_state = 5;
  port->rate = 40;
  port->gid_prefix = htobe64(0xFE80'0000'0000'0000);
  port->port_guid = htobe64(softhca::opensm::kPortGuid);
  port->pkeys_size = std::size(pkeys);
  port->pkeys = pkeys;
  std::snprintf(port->link_layer, sizeof(port->link_layer), "InfiniBand");
}

}  // namespace

extern "C" {

int umad_init() { return 0; }
int umad_done() { return 0; }

int umad_get_cas_names(char names[][UMAD_CA_NAME_LEN], int) {
  std::snprintf(names[0], UMAD_CA_NAME_LEN, "%s", kName);
  return 1;
}

/// By port number; an HCA has no port 0.
int umad_get_ca_portguids(const char*, __be64* guids, int max) {
  if (max < 2) return -ENOMEM;
  guids[0] = 0;
  guids[1] = htobe64(softhca::opensm::kPortGuid);
  return 2;
}

int umad_get_port(const char*, int, umad_port_t* port) {
  describe(port);
  return 0;
}
int umad_release_port(umad_port_t*) { return 0; }

int umad_get_ca(const char*, umad_ca_t* ca) {
  static umad_port_t port;
  describe(&port);
  *ca = {};
  std::snprintf(ca->ca_name, sizeof(ca->ca_name), "%s", kName);
  ca->node_type = 1;
  ca->numports = 1;
  ca->node_guid = ca->system_guid = htobe64(softhca::opensm::kNodeGuid);
  ca->ports[1] = &port;
  return 0;
}
int umad_release_ca(umad_ca_t*) { return 0; }

/// Opening it makes the port the manager's. Here it already is.
int umad_get_issm_path(const char*, int, char path[], int max) {
  std::snprintf(path, static_cast<std::size_t>(max), "/dev/null");
  return 0;
}

int umad_open_port(const char*, int) { return 0; }
int umad_close_port(int) { return 0; }

int umad_register(int, int mgmt_class, int, std::uint8_t, long[16 / sizeof(long)]) {
  return agents[static_cast<std::uint8_t>(mgmt_class)] = agent_count++;
}
int umad_unregister(int, int) { return 0; }

int umad_send(int, int, void* umad, int length, int timeout_ms, int) {
  const auto* const from = static_cast<const ib_user_mad*>(umad);
  Packet packet;
  packet.timeout_ms = static_cast<std::uint32_t>(std::max(timeout_ms, 0));
  packet.qpn = be32toh(from->addr.qpn);
  packet.lid = be16toh(from->addr.lid);
  std::memcpy(packet.mad.data(), umad_get_mad(umad),
              std::min(kMadSize, static_cast<std::size_t>(length)));
  const auto sent = ::send(channel(), &packet, sizeof(packet), MSG_NOSIGNAL);
  return sent == sizeof(packet) ? 0 : -EIO;
}

int umad_recv(int, void* umad, int* length, int timeout_ms) {
  pollfd waits{.fd = channel(), .events = POLLIN, .revents = 0};
  if (::poll(&waits, 1, timeout_ms) != 1) return -ETIMEDOUT;
  Packet packet;
  if (::recv(channel(), &packet, sizeof(packet), 0) != sizeof(packet)) {
    ::pause();  // the other end has gone, and will end this process
    return -EIO;
  }
  auto* const to = static_cast<ib_user_mad*>(umad);
  *to = {};
  to->status = packet.status;
  to->length = kMadSize;
  to->addr.qpn = htobe32(packet.qpn);
  to->addr.lid = htobe16(packet.lid);
  std::memcpy(umad_get_mad(umad), packet.mad.data(), kMadSize);
  *length = kMadSize;
  return agents[static_cast<std::uint8_t>(packet.mad[kClass])];
}

}  // extern "C"
