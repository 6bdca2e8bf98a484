// Linux's answers about RDMA devices on a NETLINK_RDMA socket (RDMA_NL_NLDEV of
// include/uapi/rdma/rdma_netlink.h). libibverbs looks for devices there first; iproute2's `rdma`
// uses it too.
//
// Devices, ports and device files are reported. Objects and statistics are not: they belong to
// the processes of a run, each of which has a device of its own. Requests for these, and all that
// would change something, get EOPNOTSUPP.
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

/// A device with one RoCE port.
struct Device {
  std::uint32_t index = 0;
  std::string name;
  std::string firmware;
  std::uint64_t node_guid = 0;          ///< as a number; its first byte is the most significant
  std::uint64_t system_image_guid = 0;  ///< same order
  std::uint64_t capabilities = 0;       ///< ib_device_cap_flags
  std::uint8_t port_state = 0;          ///< IBTA PortInfo:PortState
  std::uint8_t physical_state = 0;      ///< IBTA PortInfo:PortPhysicalState
  std::string interface = {};           ///< the network interface of the port
  unsigned interface_index = 0;         ///< 0: none
  CharacterDevice uverbs;
};

struct System {
  std::vector<Device> devices;
  CharacterDevice rdma_cm;
};

/// The reply datagrams for the socket with port number `port` that has sent `requests`.
Replies::Datagrams answer(Bytes requests, std::uint32_t port, const System& system);

}  // namespace softhca::door::nldev
