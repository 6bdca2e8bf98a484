// The device of one process, and what lets it work: the model, its driver, a link to the hub, and a
// thread for what no call of the program drives.
//
// One lock for all of it. Control calls and turns take it; nobody waits for anything while he has
// it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "connectx/device.h"
#include "door/device_file.h"
#include "door/fault_port.h"
#include "door/own_address.h"
#include "door/port_files.h"
#include "driver/connectx/hca.h"
#include "driver/in_process_host.h"
#include "fabric/ring_port.h"
#include "fabric/switch.h"
#include "hub/join.h"
#include "hub/neighbours.h"
#include "rdma_cm/manager.h"
#include "util/result.h"
#include "uverbs/context.h"
#include "uverbs/device.h"

namespace softhca::door {

class Engine {
 public:
  /// `directory`: of the run, with the hub's socket.
  static util::Result<std::unique_ptr<Engine>> create(const std::string& directory);

  /// A new context: the program's descriptor, or -errno.
  int open();
  bool owns(dev_t device, ino_t inode);
  /// False: no context of ours.
  bool serve(int fd, void* argument, int& result);
  /// An event channel of rdma_cm: the program's descriptor, or -errno.
  int open_rdma_cm();
  bool owns_channel(dev_t device, ino_t inode);
  /// write() on a channel. False: it is none of ours. `result`: bytes, or -errno.
  bool serve_rdma_cm(int fd, const void* bytes, std::size_t size, ssize_t& result);
  /// Lets the device work, unless somebody else does just now. From the program's own calls.
  void progress();
  /// In a child that was forked: what stays is the parent's, and ends with it.
  void leave_to_parent() {
    joined_->socket.reset();
    address_.lock.reset();
  }
  /// The process ends: the thread is to do nothing any more.
  void stop();

 private:
  struct File {
    DeviceFile file;
    std::unique_ptr<uverbs::Context> context;
  };

  Engine() = default;
  util::Result<void> set_up(const std::string& directory);
  util::Result<void> join(const std::string& directory);
  bool find_mac(const driver::Gid& to, driver::Mac& mac) const;
  /// Asks the network, and waits for an answer. With the lock.
  bool ask_for_mac(const driver::Gid& to, driver::Mac& mac);
  /// Frames from the hub and to it.
  bool exchange();
  /// True if there was something to do. With the lock.
  bool turn();
  bool handle_faults();
  void drop_closed();
  util::Result<void> set_up_rdma_cm();
  void poke();

  // engine_thread.cc
  void work();
  /// One look at everything: true if there was something to do. `sleeps`: nothing is left.
  bool look(bool& sleeps);
  void nap(unsigned idle_turns);
  /// Until something comes. False: nothing would tell.
  bool rest();
  /// True: something has come.
  bool wait(util::Duration longest);
  /// When there is something to do, if nothing comes before. With the lock.
  util::Time next_event() const;

  std::optional<hub::Joined> joined_;
  fabric::Switch switch_;
  std::unique_ptr<fabric::Port> device_port_;
  std::unique_ptr<hub::Neighbours> neighbours_;
  std::unique_ptr<FaultPort> fault_port_;
  std::unique_ptr<fabric::RingPort> link_;
  std::unique_ptr<connectx::Device> model_;
  std::unique_ptr<driver::InProcessHost> host_;
  std::unique_ptr<driver::connectx::Hca> hca_;
  std::unique_ptr<uverbs::Device> device_;
  std::string directory_;
  OwnAddress address_;  ///< by which others of the run know this process
  std::unique_ptr<PortFiles> port_files_;
  std::unique_ptr<rdma_cm::Manager> rdma_cm_;  ///< null: no program has asked for it
  uverbs::OwnMemory memory_;
  std::unordered_map<ino_t, File> files_;

  std::mutex lock_;
  util::Time next_ = util::kNever;  ///< when the device wants to be called
  util::Time last_look_{};          ///< by the thread, at what is looked at once a second
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> inline_turns_ = 0;
  vfio_user::UniqueFd poke_;  ///< eventfd: the thread has something to do
};

}  // namespace softhca::door
