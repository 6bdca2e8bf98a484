// The entry points of a process's devices: the calls of its program, fork() and the end.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "door/engine/card_table.h"
#include "door/engine/device_files.h"
#include "door/engine/device_thread.h"
#include "door/engine/engine_state.h"
#include "door/engine/questions.h"
#include "door/engine/resolution.h"
#include "util/result.h"
#include "uverbs/device.h"

namespace softhca::door {

class Engine {
 public:
  struct Options {
    CardTable::Options cards;
    DeviceFiles::Options files;
    std::string control = {};  ///< directory for a socket of this process; empty: none
    /// False: the thread polls instead of sleeping, for debuggers, which stop at each trap.
    bool traps_doorbells = true;
  };
  static util::Result<std::unique_ptr<Engine>> create(const Options& options);

  /// Opens a new context of uverbs<uverbs>. Returns the program's descriptor, or -errno.
  int open(unsigned uverbs);
  /// The number of the device to which a context belongs; nothing if the file is no context.
  std::optional<unsigned> owner(dev_t device, ino_t inode) const {
    return state_.files().owner(device, inode);
  }
  bool is_context(int fd) const;
  /// Serves ioctl(RDMA_VERBS_IOCTL). False: `fd` is no context of this process.
  bool serve(int fd, void* argument, int& result);
  /// Opens an event channel of rdma_cm. Returns the program's descriptor, or -errno.
  int open_rdma_cm();
  bool owns_channel(dev_t device, ino_t inode);
  /// Serves write() on a channel. False: `fd` is no channel of this process. `result`: bytes, or
  /// -errno.
  bool serve_rdma_cm(int fd, const void* bytes, std::size_t size, ssize_t& result);
  /// Reads an entry of the GID table of mlx5_<number>, whose device is created if necessary. False:
  /// there is no such device.
  bool find_gid(unsigned number, std::size_t index, std::optional<uverbs::GidEntry>& entry,
                std::string& interface);
  /// Whether mlx5_<number> is in use here, and its port is down for good.
  bool has_lost_link(unsigned number);
  /// Adds the devices' counters to those of the run, which all its processes see.
  void publish_counters();
  /// Drives the devices from a call of the program, unless another thread is driving them. False:
  /// the lock is taken, perhaps by this thread for fork().
  bool progress();
  /// EngineState::take_arms(). `in_handler`: of a signal that has interrupted a call, so that this
  /// thread may have the lock. Then it waits only for a short time.
  void take_arms(bool in_handler);
  /// The program has closed a file of this engine: destroys contexts without a descriptor.
  void note_closed();
  /// In a forked child: leaves everything to the parent, and destroys nothing of it.
  void leave_to_parent();
  /// The process ends: stops the thread, and disconnects peers. Later calls from destructors are
  /// still served. Waits only for a short time.
  void stop();
  /// False in a child that was created without fork(): it shares its parent's memory, and nothing
  /// here works there.
  bool is_of_this_process() const { return process_ == ::getpid(); }
  /// DeviceLock::hold().
  bool hold() { return lock_.hold(); }
  void release() { lock_.unlock(); }

 private:
  explicit Engine(const Options& options)
      : state_(options.cards, options.files),
        thread_(state_, questions_, options.traps_doorbells) {}
  /// Serves the call under the lock. False: the context of the file is gone.
  bool serve_once(dev_t device, ino_t inode, void* argument, Resolution& resolution, int& result);
  /// Asks the network for an address. Call without the lock.
  void resolve(Resolution& resolution);
  /// Serves write() on a channel under the lock. Nothing: the file is no channel.
  std::optional<int> serve_channel_once(dev_t device, ino_t inode, const void* bytes,
                                        std::size_t size);

  const pid_t process_ = ::getpid();
  EngineState state_;
  DeviceLock& lock_ = state_.lock();
  Questions questions_{state_};
  DeviceThread thread_;
};

}  // namespace softhca::door
