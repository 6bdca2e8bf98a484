// The event channels of rdma_cm that the program has open, and what they share: the connection
// manager, and the port numbers of the run.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "door/engine/card_table.h"
#include "door/engine/port_file.h"
#include "driver/address.h"
#include "rdma_cm/manager.h"
#include "util/inspection.h"
#include "util/result.h"
#include "uverbs/user_memory.h"

namespace softhca::door {

/// Call with the lock.
class CmChannels {
 public:
  /// `directory`: of the run.
  CmChannels(std::string directory, CardTable& cards, const uverbs::UserMemory& memory)
      : directory_(std::move(directory)), cards_(cards), memory_(memory) {}
  CmChannels(const CmChannels&) = delete;
  CmChannels& operator=(const CmChannels&) = delete;

  /// Opens a channel. Returns the program's descriptor, or -errno. @pre all devices exist
  int open();
  /// Null: the file is no channel.
  rdma_cm::Channel* find(dev_t device, ino_t inode) const {
    return manager_ == nullptr ? nullptr : manager_->find_channel(device, inode);
  }
  /// Serves write() on a channel. Returns 0 or an errno; EAGAIN: the program asks for an event, and
  /// none waits.
  int serve(rdma_cm::Channel& channel, const void* bytes, std::size_t size);
  void tick() {
    if (manager_ != nullptr) manager_->tick(util::monotonic_now());
  }
  /// When tick() is due.
  util::Time next_tick() const {
    return manager_ == nullptr ? util::kNever : manager_->next_tick();
  }
  /// Releases the channels that the program has closed.
  void drop_closed() {
    if (manager_ != nullptr) manager_->drop_closed();
  }
  /// Disconnects all peers. False: there are none.
  bool disconnect_all();
  /// rdma_cm::inspect().
  bool inspect(std::string_view function, util::Inspection& out) const {
    return rdma_cm::inspect(manager_.get(), function, out);
  }
  /// In a forked child: the port numbers remain the parent's.
  void leave_to_parent();

 private:
  util::Result<void> set_up();
  void find_services_of_machines(rdma_cm::Options& options);
  std::optional<driver::Gid> link_local_beside(const driver::Gid& own) const;

  const std::string directory_;
  CardTable& cards_;
  const uverbs::UserMemory& memory_;
  std::unique_ptr<PortFile> port_file_;
  std::unique_ptr<rdma_cm::Manager> manager_;  ///< null: the program has opened no channel
};

}  // namespace softhca::door
