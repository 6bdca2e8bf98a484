// Sockets of NETLINK_RDMA in this process. The kernel does not know the devices of `softhca run`,
// so a NETLINK_USERSOCK socket stands in. All calls but sends go to the kernel. Requests are
// answered immediately, from a socket of the library. The first request connects the program's
// socket to it, so that answers of other processes are refused (ECONNREFUSED).
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
/// socket is no such stand-in, or the message is not for the kernel; or -errno. `paths`: of the
/// tree that lists the devices.
int serve_rdma_netlink(int fd, const void* bytes, std::size_t size, const sockaddr* to,
                       socklen_t to_size, const PathMap& paths);

}  // namespace softhca::door
