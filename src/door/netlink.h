// Sockets of NETLINK_RDMA in this process. The kernel does not know our devices, so a
// NETLINK_USERSOCK socket stands in. All calls but sends go to the kernel; sent requests are
// answered immediately, from a socket to which the first request connects the program's: answers of
// other processes are refused (ECONNREFUSED).
#pragma once

#include <sys/socket.h>

#include <cstddef>

#include "door/tree/paths.h"

namespace softhca::door {

/// Serves socket(AF_NETLINK, `type`, NETLINK_RDMA). Returns a descriptor, or -errno.
int open_rdma_netlink(int type);
/// Whether `fd` may be such a socket, so that its sends must be checked.
bool may_be_rdma_netlink(int fd);
/// Serves a message sent to `to`, or without an address. Returns 1 if it was served; 0 if the
/// socket is none of ours or the message is not for the kernel; or -errno. `paths`: of the tree
/// that lists the devices.
int serve_rdma_netlink(int fd, const void* bytes, std::size_t size, const sockaddr* to,
                       socklen_t to_size, const PathMap& paths);

}  // namespace softhca::door
