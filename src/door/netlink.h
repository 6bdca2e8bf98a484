// Sockets of NETLINK_RDMA in this process. The kernel has none for devices of ours; one of
// NETLINK_USERSOCK stands for it, so that all calls but those that send are the kernel's, and what
// is sent is answered at once.
#pragma once

#include <sys/socket.h>

#include <cstddef>

#include "door/tree/paths.h"

namespace softhca::door {

/// socket(AF_NETLINK, `type`, NETLINK_RDMA): a descriptor, or -errno.
int open_rdma_netlink(int type);
/// Whether `fd` may be one: what is sent there is to be looked at.
bool may_be_rdma_netlink(int fd);
/// A message to `to`, or to nobody in particular: 1 if it was served, 0 if its socket is none of
/// ours or it is not for the kernel, or -errno. `paths`: of the tree that tells which devices there
/// are.
int serve_rdma_netlink(int fd, const void* bytes, std::size_t size, const sockaddr* to,
                       socklen_t to_size, const PathMap& paths);

}  // namespace softhca::door
