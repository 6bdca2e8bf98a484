// The calls on device files, as the interposed libc functions pass them on. The kernel's work
// behind them is in uverbs/ and rdma_cm/.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace softhca::door {

class Engine;
/// Creates the engine if necessary. Null: this failed.
Engine* engine_of_process();
/// Null: no engine was needed yet.
Engine* engine_if_made();

/// For calls that come between the door's handlers of fork(): from those of other libraries, and of
/// signals. The thread has the door's locks there, although no call is halfway through. A ForkPause
/// releases them until it is destroyed. In a child it first does what the door's own handler does.
class ForkPause {
 public:
  ForkPause();
  ~ForkPause();
  ForkPause(const ForkPause&) = delete;
  ForkPause& operator=(const ForkPause&) = delete;

 private:
  bool pauses_ = false;
};

/// open() of /dev/infiniband/uverbs<number>: a new descriptor, or -errno. A process's first call
/// creates the engine.
int open_uverbs(unsigned number, int flags);
/// open() of /dev/infiniband/rdma_cm; the same results.
int open_rdma_cm();
/// Serves write() on `fd`. False: not an rdma_cm channel of this process. `result`: bytes, or
/// -errno.
bool serve_write(int fd, const void* bytes, std::size_t size, ssize_t& result);
/// Whether this process has a channel of rdma_cm. If not, writes need no check.
bool has_channels();
/// The device number of rdma_cm if the pipe is one of its channels; else 0.
std::uint64_t device_of_channel(dev_t dev, ino_t inode);
/// The device number of a device file that open_uverbs() returned, from its fstat() data; else 0.
std::uint64_t device_of(dev_t dev, ino_t inode);
/// open() of a file of the tree whose content differs between processes (tree/live_path.h), by its
/// public name. False: it is none. `result`: a readable descriptor, or -errno.
bool open_live_file(std::string_view path, int& result);
/// Serves ioctl(RDMA_VERBS_IOCTL) on `fd`. False: not a device file of this process. `result`: 0,
/// or -errno.
bool serve_ioctl(int fd, void* argument, int& result);

/// The program has closed a descriptor that the library gave to it.
void note_closed();
/// Whether this process is a child that shares its parent's memory until execve(), as after
/// vfork(). Its descriptors are its own, but records in memory are the parent's.
bool shares_memory_of_another();
/// EngineState::take_arms(): the program arms a CQ, perhaps for the second time.
void take_arms_in_call();
/// The program is about to cancel a thread. When this returns, no thread is halfway through a call.
void prepare_for_cancels();

}  // namespace softhca::door
