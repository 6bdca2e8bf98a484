// What the interposed calls of libc ask: the kernel's side of the device files.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace softhca::door {

/// open() of /dev/infiniband/uverbs<number>: a new descriptor, or -errno. The first one of a
/// process makes the engine.
int open_uverbs(unsigned number, int flags);
/// A device file of ours, by what fstat() tells of it: its device number, or 0.
std::uint64_t device_of(dev_t dev, ino_t inode);
/// ioctl(RDMA_VERBS_IOCTL) on `fd`. False: it is none of ours. `result`: 0, or -errno.
bool serve_ioctl(int fd, void* argument, int& result);

}  // namespace softhca::door
