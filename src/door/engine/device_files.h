// The device files that the program has open, with their contexts: opened by the program, and
// destroyed when it has closed them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "door/card/card.h"
#include "door/engine/device_file.h"
#include "door/memory/doorbell_traps.h"
#include "door/memory/program_memory.h"
#include "os/known_files.h"
#include "uverbs/context.h"
#include "uverbs/locked_memory.h"

namespace softhca::door {

class DeviceFiles {
 public:
  struct Options {
    /// The reaction to more locked memory than `ulimit -l`.
    uverbs::LockedMemory::Beyond beyond_memlock = uverbs::LockedMemory::Beyond::kWarning;
    /// Called when a context has a new CQ: its user handle, and the program's descriptor.
    void (*made_cq)(std::uint64_t user_handle, int fd);
  };
  explicit DeviceFiles(const Options& options)
      : options_(options), locked_(options.beyond_memlock) {}
  DeviceFiles(const DeviceFiles&) = delete;
  DeviceFiles& operator=(const DeviceFiles&) = delete;

  // These take no lock, and are safe in signal handlers.
  /// The number of the device to which a context belongs; nothing if the file is no context.
  std::optional<unsigned> owner(dev_t device, ino_t inode) const {
    return known_.find(device, inode);
  }
  /// owner() as a function.
  const IsDoorbellFile& is_ours() const { return is_ours_; }
  /// The memory to which the arguments of calls point.
  const ProgramMemory& memory() const { return memory_; }

  // Call with the lock.
  /// Opens a context of uverbs<number>, whose device is the process's at `place`. Returns the
  /// program's descriptor, or -errno.
  int open(Card& card, unsigned place, unsigned number);
  /// Null: there is none any more.
  uverbs::Context* find(dev_t device, ino_t inode) const;
  /// Destroys the contexts whose files the program has closed.
  void drop_closed();
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [inode, file] : files_) visit(*file.context);
  }
  /// Calls `visit` with each context of the device at `place`.
  template <class Visit>
  void for_each_of(unsigned place, Visit&& visit) const {
    for (const auto& [inode, file] : files_) {
      if (file.place == place) visit(*file.context);
    }
  }

 private:
  struct File {
    DeviceFile file;
    unsigned place;  ///< of its device
    std::unique_ptr<uverbs::Context> context;
  };

  const Options options_;
  const IsDoorbellFile is_ours_ = [this](dev_t device, ino_t inode) {
    return owner(device, inode).has_value();
  };
  uverbs::LockedMemory locked_;
  ProgramMemory memory_{is_ours_, locked_};
  std::unordered_map<ino_t, File> files_;
  os::KnownFiles known_;  ///< the keys of files_
};

}  // namespace softhca::door
