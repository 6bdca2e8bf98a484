// What the interposed calls of libc ask: the kernel's side of the device files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace softhca::door {

class Engine;
/// Made if there is none yet. Null: it cannot be.
Engine* engine_of_process();
/// Null: nothing has needed it.
Engine* engine_if_made();

/// open() of /dev/infiniband/uverbs<number>: a new descriptor, or -errno. The first one of a
/// process makes the engine.
int open_uverbs(unsigned number, int flags);
/// open() of /dev/infiniband/rdma_cm, likewise.
int open_rdma_cm();
/// write() on `fd`. False: it is no channel of rdma_cm of ours. `result`: bytes, or -errno.
bool serve_write(int fd, const void* bytes, std::size_t size, ssize_t& result);
/// Whether this process has a channel of rdma_cm, so that writes are to be looked at.
bool has_channels();
/// Of a pipe: the device number of rdma_cm, or 0.
std::uint64_t device_of_channel(dev_t dev, ino_t inode);
/// A device file of ours, by what fstat() tells of it: its device number, or 0.
std::uint64_t device_of(dev_t dev, ino_t inode);
/// open() of a file of the tree that each process sees otherwise (tree/live_path.h), by the name
/// that programs use. False: it is none. `result`: a descriptor to read from, or -errno.
bool open_live_file(std::string_view path, int& result);
/// ioctl(RDMA_VERBS_IOCTL) on `fd`. False: it is none of ours. `result`: 0, or -errno.
bool serve_ioctl(int fd, void* argument, int& result);

/// The program has closed a descriptor of ours.
void note_closed();
/// This process is a child that has its parent's memory until it calls execve(), as of vfork(): its
/// descriptors are its own, and what is noted is the parent's.
bool shares_memory_of_another();
/// What the program has asked of its CQs before is known when this returns.
void take_arms_in_call();
/// The program is about to cancel a thread: none is in the middle of something when this returns.
void prepare_for_cancels();

}  // namespace softhca::door
