// What Linux answers about RDMA devices at a socket of NETLINK_RDMA (RDMA_NL_NLDEV of
// include/uapi/rdma/rdma_netlink.h): to libibverbs, which looks for devices there first, and to
// iproute2's `rdma`.
//
// Devices, ports and device files are told. Objects and statistics are those of processes that have
// a device each, and not of who asks: EOPNOTSUPP, as for all that would change something.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "door/nldev/message.h"

namespace softhca::door::nldev {

struct CharacterDevice {
  std::string name;  ///< in /dev/infiniband
  std::uint64_t abi = 0;
  dev_t number = 0;
};

/// With one port, of RoCE.
struct Device {
  std::uint32_t index = 0;
  std::string name;
  std::string firmware;
  std::uint64_t node_guid = 0;          ///< the first byte is the highest
  std::uint64_t system_image_guid = 0;  ///< likewise
  std::uint64_t capabilities = 0;       ///< ib_device_cap_flags
  std::uint8_t port_state = 0;          ///< IBTA PortInfo:PortState
  std::uint8_t physical_state = 0;      ///< IBTA PortInfo:PortPhysicalState
  std::string interface = {};           ///< the network interface of the port
  unsigned interface_index = 0;         ///< 0: it has none
  CharacterDevice uverbs;
};

struct System {
  std::vector<Device> devices;
  CharacterDevice rdma_cm;
};

/// The datagrams for the socket with the number `port` that has sent `requests`.
Replies::Datagrams answer(Bytes requests, std::uint32_t port, const System& system);

}  // namespace softhca::door::nldev
