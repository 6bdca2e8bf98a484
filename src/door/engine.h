// The devices of one process, and what lets them work: a thread for what no call of the program
// drives.
//
// One lock for all of it. Control calls and turns take it; nobody waits for anything while he has
// it.
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
#include "door/resolution.h"
#include "door/strangers.h"
#include "door/tree/tree.h"
#include "rdma_cm/manager.h"
#include "util/known_files.h"
#include "util/result.h"
#include "uverbs/context.h"
#include "vfio_user/adaptive_poll.h"

namespace softhca::door {

class Engine {
 public:
  struct Options {
    std::string directory;       ///< of the run, with the hub's socket
    DeviceNumbers numbers = {};  ///< of the devices that a program sees
    /// OwnAddresses::take, of each device; others have none.
    std::vector<std::string> addresses = {};
    std::string control = {};  ///< directory for a socket of this process; empty: none
    FrameLoss loss = {};       ///< of all devices
  };
  static util::Result<std::unique_ptr<Engine>> create(Options options);

  /// A new context of uverbs<uverbs>: the program's descriptor, or -errno.
  int open(unsigned uverbs);
  /// The number of the device of a context of ours.
  std::optional<unsigned> owner(dev_t device, ino_t inode);
  /// False: no context of ours.
  bool serve(int fd, void* argument, int& result);
  /// An event channel of rdma_cm: the program's descriptor, or -errno.
  int open_rdma_cm();
  bool owns_channel(dev_t device, ino_t inode);
  /// write() on a channel. False: it is none of ours. `result`: bytes, or -errno.
  bool serve_rdma_cm(int fd, const void* bytes, std::size_t size, ssize_t& result);
  /// An entry of the GID table of mlx5_<number>, whose device is made if need be. False: there is
  /// no such device.
  bool find_gid(unsigned number, std::size_t index, std::optional<uverbs::GidEntry>& entry,
                std::string& interface);
  /// What the devices have counted is for all processes of the run to see.
  void publish_counters();
  /// Lets the devices work, unless somebody else does just now. From the program's own calls.
  void progress();
  /// Takes what the program has armed, so that it may arm again.
  void take_arms();
  /// The program has closed a file of ours: contexts without a descriptor are destroyed.
  void note_closed();
  /// In a child that was forked: what stays is the parent's, and ends with it.
  void leave_to_parent();
  /// The process ends: the thread does nothing any more, and peers are told. Calls of destructors
  /// that run later are still served. Never waits long.
  void stop();
  /// A child that fork() has not made has the memory of its parent, and nothing of this works
  /// there.
  bool is_of_this_process() const { return process_ == ::getpid(); }
  // For what must not come while a thread is in the middle of something, as fork() must not.
  /// False: the lock was not to be had in time.
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
  /// Makes the device if there is none yet. False: it cannot be. Without the lock: a hub may take
  /// long to answer, and open devices go on meanwhile.
  bool make_card(unsigned place);
  /// Calls `visit` with all that are made.
  template <class Visit>
  void for_each_card(Visit&& visit) const {
    for (const auto& card : cards_) {
      if (card != nullptr) visit(*card);
    }
  }
  bool find_mac(const driver::Gid& to, driver::Mac& mac);
  std::uint8_t path_mtu(const driver::Gid& to);
  /// As Card::find_present(), of any device.
  bool find_present(const driver::Gid& to, driver::Mac& mac) const;
  /// Frames from the hub and to it.
  void exchange();
  /// Serves the call with the lock. False: the file is none of ours any more.
  bool serve_once(dev_t device, ino_t inode, void* argument, Resolution& resolution, int& result);
  /// Asks the network for an address, without the lock.
  void resolve(Resolution& resolution);
  /// All devices have their turn, or those only that something waits for.
  enum class Turn : std::uint8_t { kWhole, kSparing };
  /// True if there was something to do. With the lock.
  bool turn(Turn how = Turn::kWhole);
  bool handle_faults();
  void drop_closed();
  void publish_counters_locked();
  /// The host's addresses may be others.
  void follow_host();
  /// Hubs may have gone.
  void look_at_hubs();
  util::Result<void> set_up_rdma_cm();
  void poke();

  // engine_thread.cc
  void work();
  /// Until the process ends.
  void look_after_devices();
  /// One look at everything: true if there was something to do. `sleeps`: nothing is left. With the
  /// lock.
  bool look(bool& sleeps);
  util::Duration nap(unsigned idle_turns) const;
  util::Duration in_crowd(util::Duration nap) const;
  /// Until something comes. False: nothing would tell.
  bool rest();
  /// True: something has come.
  bool wait(util::Duration longest);
  /// What wait() waits for. With the lock.
  void collect_wakes();
  /// When there is something to do, if nothing comes before. With the lock.
  util::Time next_event() const;
  /// Of `softhca inspect`. Without the lock.
  void answer_questions();
  /// What `function` asks of rdma_cm, which it is `known` by. With the lock.
  void inspect_rdma_cm(std::string_view function, util::Inspection& out, bool& known) const;

  const Options options_;
  const pid_t process_ = ::getpid();
  std::vector<std::unique_ptr<Card>> cards_;  ///< in their order; null: nobody has used it yet
  std::mutex making_card_;                    ///< taken before the lock
  Strangers strangers_;
  std::unique_ptr<PortFile> port_file_;
  std::unique_ptr<rdma_cm::Manager> rdma_cm_;  ///< null: no program has asked for it
  uverbs::OwnMemory memory_;
  std::unordered_map<ino_t, File> files_;
  util::KnownFiles known_files_;      ///< the keys of files_
  Resolution* resolution_ = nullptr;  ///< of the call that is being served

  std::timed_mutex lock_;
  std::atomic<unsigned> waiters_ = 0;  ///< for whom polls leave the lock alone
  std::size_t received_ = 0;           ///< packets, in the last turn
  util::Time lingers_until_{};         ///< the thread does not sleep before
  util::Time last_look_{};             ///< by the thread, at what is looked at once a second
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> inline_turns_ = 0;
  /// One of so many of these is whole.
  static constexpr std::uint64_t kWholeTurn = 16;
  std::uint64_t calls_ = 0;     ///< of the program, which may have made queues and pages
  bool program_polls_ = false;  ///< since the thread's last look
  bool sleeps_long_ = false;    ///< the thread, or it is about to: it must be told of what is new
  /// After something came the thread goes on looking, where that has paid and a processor is free.
  vfio_user::AdaptivePoll looks_on_{std::chrono::microseconds(100)};
  vfio_user::UniqueFd poke_;  ///< eventfd: the thread has something to do

  // Of the thread.
  const IsDoorbellFile is_ours_ = [this](dev_t device, ino_t inode) {
    return known_files_.find(device, inode).has_value();
  };
  FreeProcessors processors_;
  std::vector<pollfd> wakes_;      ///< eventfds, then what is looked at otherwise
  std::size_t eventfds_ = 0;       ///< of these
  util::Time next_event_{};        ///< as next_event() has said
  bool has_queues_ = false;        ///< that can be rung
  bool host_has_changed_ = false;  ///< perhaps
  bool is_asked_ = false;
  std::optional<ControlPoint> control_;
};

}  // namespace softhca::door
