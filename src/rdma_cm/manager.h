// The kernel's side of /dev/infiniband/rdma_cm: identifiers and their commands (ucma), and the
// communication manager that connects them (cm/). It exchanges management datagrams with the
// managers of other hosts, Linux included (IBTA 12; kernel interface 8).
//
// It has no lock, thread or clock. The caller has exclusive access to the device and passes the
// time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cm/connection_table.h"
#include "cm/connections.h"
#include "cm/wakeup.h"
#include "rdma_cm/bindings.h"
#include "rdma_cm/channel.h"
#include "rdma_cm/commands.h"
#include "rdma_cm/connection_events.h"
#include "rdma_cm/identifiers.h"
#include "rdma_cm/listeners.h"
#include "rdma_cm/options.h"
#include "rdma_cm/ports.h"
#include "rdma_cm/resolver.h"
#include "rdma_cm/routes.h"
#include "util/inspection.h"
#include "uverbs/user_memory.h"

namespace softhca::rdma_cm {

class Manager {
 public:
  static constexpr util::Duration kListenAgain = rdma_cm::kListenAgain;
  using Port = DevicePort;
  using Options = rdma_cm::Options;
  /// @pre `ports` has at least one; the first is the default
  static util::Result<std::unique_ptr<Manager>> create(std::span<const Port> ports,
                                                       const uverbs::UserMemory& memory,
                                                       Options options);
  ~Manager();

  util::Result<Channel*> open();
  Channel* find_channel(std::uint64_t device, std::uint64_t inode) const;
  /// Serves write() on a channel. Returns 0 or an errno. EAGAIN: the program asks for an event and
  /// none waits. `other`: finds the channel behind a descriptor.
  Errno serve(Channel& channel, std::uint64_t address, std::size_t size,
              const std::function<Channel*(int)>& other, util::Time now);
  /// Handles received messages, and retransmits unanswered ones.
  void tick(util::Time now);
  /// When tick() is due, if no message arrives before.
  util::Time next_tick() const { return wakeup_.next(); }
  /// Releases channels that the program has closed, with their identifiers.
  void drop_closed();
  /// Disconnects all peers, when the program ends.
  void disconnect_all();
  /// Describes its identifiers (inspect.cc).
  void inspect(util::Inspection& out) const;

 private:
  Manager(const uverbs::UserMemory& memory, Options options)
      : memory_(memory), options_(std::move(options)) {}

  const uverbs::UserMemory& memory_;
  Options options_;
  Ports ports_{options_};
  std::vector<std::unique_ptr<Channel>> channels_;
  cm::ConnectionTable connection_table_;
  Identifiers identifiers_{connection_table_};
  Bindings bindings_{ports_, options_, identifiers_};
  cm::Wakeup wakeup_;
  Routes routes_{ports_, options_};
  Resolver resolver_{ports_, options_, routes_, identifiers_, wakeup_};
  ConnectionEvents connection_events_{identifiers_};
  Listeners listeners_{ports_, routes_, bindings_, identifiers_, connections_, wakeup_};
  cm::Connections connections_{ports_, connection_table_, connection_events_, listeners_, wakeup_};
  Commands commands_{ports_, routes_, identifiers_, bindings_, resolver_, connections_, listeners_};
  util::Time now_{};  ///< of the last call that had a time, for those that have none
};

/// Answers `softhca inspect` (inspect.cc). An empty `function` means everything about a program,
/// "rdma_cm" its identifiers; any other one returns false. `manager` is null if the program has not
/// used librdmacm.
bool inspect(const Manager* manager, std::string_view function, util::Inspection& out);

}  // namespace softhca::rdma_cm
