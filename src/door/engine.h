// The devices of one process, and the thread that drives them when no call of the program does.
//
// One lock protects all of it. Calls and turns take it, and never block while they hold it.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "door/card.h"
#include "door/control/control_point.h"
#include "door/device_file.h"
#include "door/doorbell_traps.h"
#include "door/frame_loss.h"
#include "door/free_processors.h"
#include "door/port_file.h"
#include "door/program_memory.h"
#include "door/resolution.h"
#include "door/strangers.h"
#include "door/tree/tree.h"
#include "rdma_cm/manager.h"
#include "util/known_files.h"
#include "util/result.h"
#include "uverbs/context.h"
#include "uverbs/locked_memory.h"
#include "vfio_user/adaptive_poll.h"

namespace softhca::door {

class Engine {
 public:
  struct Options {
    std::string directory;       ///< of the run; has the hub's socket
    DeviceNumbers numbers = {};  ///< of the devices that the program sees
    /// OwnAddresses::take() of each device; further devices get none.
    std::vector<std::string> addresses = {};
    std::string control = {};  ///< directory for a socket of this process; empty: none
    FrameLoss loss = {};       ///< for all devices
    /// The reaction to more locked memory than `ulimit -l`.
    uverbs::LockedMemory::Beyond beyond_memlock = uverbs::LockedMemory::Beyond::kWarning;
    /// False: the thread polls instead of sleeping, for debuggers, which stop at each trap.
    bool traps_doorbells = true;
  };
  static util::Result<std::unique_ptr<Engine>> create(Options options);

  /// Opens a new context of uverbs<uverbs>. Returns the program's descriptor, or -errno.
  int open(unsigned uverbs);
  /// The number of the device to which a context belongs; nothing if the file is no context.
  std::optional<unsigned> owner(dev_t device, ino_t inode);
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
  /// Takes pending CQ arm requests, so that the program can write new ones. `in_handler`: of a
  /// signal that has interrupted a call, so that this thread may have the lock. Then it waits only
  /// for a short time.
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
  // For operations during which no thread may be in the middle of a turn, such as fork().
  /// False: the lock was not free in time.
  bool hold();
  void release() { lock_.unlock(); }

 private:
  struct File {
    DeviceFile file;
    unsigned card;
    std::unique_ptr<uverbs::Context> context;
  };

  explicit Engine(Options options)
      : options_(std::move(options)),
        cards_(options_.numbers.count),
        strangers_(options_.directory) {}
  util::Result<void> set_up();
  /// Creates the device if there is none yet. False: this failed. Call without the lock: a hub may
  /// take long to answer, and open devices must go on meanwhile.
  bool make_card(unsigned place);
  void make_card_of(const driver::Gid& to);
  /// Calls `visit` with each device that exists.
  template <class Visit>
  void for_each_card(Visit&& visit) const {
    for (const auto& card : cards_) {
      if (card != nullptr) visit(*card);
    }
  }
  bool find_mac(const driver::Gid& to, driver::Mac& mac);
  std::uint8_t path_mtu(const driver::Gid& to);
  /// Card::find_present() over all devices.
  bool find_present(const driver::Gid& to, driver::Mac& mac) const;
  /// Moves frames from the hub and to it.
  void exchange();
  /// Serves the call under the lock. False: the context of the file is gone.
  bool serve_once(dev_t device, ino_t inode, void* argument, Resolution& resolution, int& result);
  /// Asks the network for an address. Call without the lock.
  void resolve(Resolution& resolution);
  /// Whether a turn serves all devices, or only those with pending work.
  enum class Turn : std::uint8_t { kWhole, kSparing };
  /// Runs a turn. True if there was work. Call with the lock.
  bool turn(Turn how = Turn::kWhole);
  bool handle_faults();
  void drop_closed();
  void publish_counters_locked();
  /// Picks up changed host addresses.
  void follow_host();
  /// Checks whether hubs have gone.
  void look_at_hubs();
  util::Result<void> set_up_rdma_cm();
  void poke();

  // engine_thread.cc
  void work();
  /// Runs until the process ends.
  void look_after_devices();
  /// One round of the thread: true if there was work. `sleeps`: nothing is left to do. Call with
  /// the lock.
  bool look(bool& sleeps);
  util::Duration nap(unsigned idle_turns) const;
  util::Duration in_crowd(util::Duration nap) const;
  /// Sleeps until work comes. False: traps cannot be armed, or an event is due soon.
  bool rest();
  /// True: something has come.
  bool wait(util::Duration longest);
  /// Collects the descriptors for wait(). Call with the lock.
  void collect_wakes();
  /// When work is due if nothing comes before. Call with the lock.
  util::Time next_event() const;
  /// Answers `softhca inspect`. Call without the lock.
  void answer_questions();

  const Options options_;
  const pid_t process_ = ::getpid();
  std::vector<std::unique_ptr<Card>> cards_;  ///< by device number; null: not used yet
  std::mutex making_card_;                    ///< taken before the lock
  Strangers strangers_;
  std::unique_ptr<PortFile> port_file_;
  std::unique_ptr<rdma_cm::Manager> rdma_cm_;  ///< null: no program has asked for it
  const IsDoorbellFile is_ours_ = [this](dev_t device, ino_t inode) {
    return known_files_.find(device, inode).has_value();
  };
  uverbs::LockedMemory locked_{options_.beyond_memlock};
  ProgramMemory memory_{is_ours_, locked_};
  std::unordered_map<ino_t, File> files_;
  util::KnownFiles known_files_;      ///< the keys of files_
  Resolution* resolution_ = nullptr;  ///< of the call being served

  /// A thread of the program has OwnCalls before it takes the lock, and a FaultGuard soon after. If
  /// a signal handler finds the first alone, its thread waits for the lock, or has it.
  std::timed_mutex lock_;
  std::atomic<unsigned> waiters_ = 0;  ///< threads that want the lock; polls do not take it then
  std::size_t received_ = 0;           ///< packets, in the last turn
  util::Time lingers_until_{};         ///< the thread stays awake until then
  util::Time last_look_{};             ///< time of the thread's last checks, made once a second
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> inline_turns_ = 0;
  /// Every n-th inline turn is a whole one.
  static constexpr std::uint64_t kWholeTurn = 16;
  std::uint64_t calls_ = 0;     ///< of the program; each may have created queues and pages
  bool program_polls_ = false;  ///< since the thread's last round
  bool sleeps_long_ = false;    ///< the thread sleeps, or is about to: wake it for new work
  /// After work came, the thread keeps polling if that has paid off and a processor is free.
  vfio_user::AdaptivePoll looks_on_{std::chrono::microseconds(100)};
  vfio_user::UniqueFd poke_;  ///< eventfd that wakes the thread

  // Only the thread uses these.
  FreeProcessors processors_;
  std::vector<pollfd> wakes_;      ///< eventfds first, then other descriptors
  std::size_t eventfds_ = 0;       ///< of these
  util::Time next_event_{};        ///< last result of next_event()
  bool has_queues_ = false;        ///< there are queues with doorbells
  bool host_has_changed_ = false;  ///< the host's addresses may have changed
  bool is_asked_ = false;
  std::optional<ControlPoint> control_;
};

}  // namespace softhca::door
