// The addresses of the machine that processes of a hub share: the blocks of numbers of these
// processes, their sockets of RoCEv2 by UDP, and the messages to QP1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "hub/cm_dispatch.h"
#include "hub/forwarded_datagram.h"
#include "hub/roce_blocks.h"
#include "hub/roce_group.h"
#include "hub/roce_refusal.h"
#include "os/alarm.h"
#include "os/event_loop.h"
#include "spec/infiniband/constants.h"
#include "util/time_source.h"
#include "wire/gid.h"

namespace softhca::hub {

class RoceHost {
 public:
  struct Options {
    std::uint16_t port = spec::infiniband::kRoceV2UdpPort;
    std::size_t addresses_max = 16;  ///< of all processes together
    util::TimeSource clock = util::monotonic_now;
    /// Called when process `number` gets a block, and with 0 when it leaves. May be empty.
    std::function<void(RoceBlock block, unsigned number)> publish = {};
    /// Calls listen() and unlisten() for what the process has registered, and the hub has not read
    /// yet. May be empty.
    std::function<void(unsigned number)> catch_up = {};
  };
  /// Hands a datagram to process `number`. False: it has no room.
  using Deliver = std::function<bool(unsigned number, const ForwardedDatagram& datagram)>;

  /// A process's place at an address.
  struct Seat {
    RoceBlock block = 0;  ///< 0: refused
    int socket = -1;      ///< of the hub: the process gets a duplicate
  };
  struct Counters {
    std::uint64_t joined = 0;    ///< requests of processes that were granted
    std::uint64_t refused = 0;   ///< requests that were not
    std::uint64_t lost = 0;      ///< messages to QP1 for which a process had no room
    RoceGroup::Counters groups;  ///< of the addresses that are in use
    CmDispatch::Counters cm;
  };
  /// Without processes, an address keeps its port for so long. A process that ends closes its
  /// sockets a moment after the hub has noticed its end, and only then can the port be taken again.
  static constexpr util::Duration kLinger = RoceBlocks::kRest;
  /// An address that was refused is not tried again for so long: finding the reason costs time.
  static constexpr util::Duration kRefusedFor = std::chrono::seconds(1);

  /// `loop` must outlive it.
  RoceHost(os::EventLoop& loop, Options options, Deliver deliver);
  ~RoceHost();
  RoceHost(const RoceHost&) = delete;
  RoceHost& operator=(const RoceHost&) = delete;

  /// Most addresses of one process.
  static constexpr std::size_t kAddressesMax = 16;

  /// Gives the process a block, as join() does; the same one if it asks again. 0: refused.
  RoceBlock share(unsigned number, RoceRefusal& refusal);
  /// Gives the process its socket at the address; the same one if it asks again. A process without
  /// a socket still has the address on the hub.
  Seat join(unsigned number, const wire::Gid& address, RoceRefusal& refusal);
  void leave(unsigned number, const wire::Gid& address);
  /// The process has left the hub.
  void forget(unsigned number);

  /// Only for a process that has a block. False: it has too many listeners.
  bool listen(unsigned number, const CmService& service);
  void unlisten(unsigned number, const CmService& service);

  /// The process that has the block; 0: none.
  unsigned process_of(RoceBlock block) const { return number_of_[block]; }
  /// Calls `visit(number)` with each process that has a block.
  template <class Visit>
  void for_each_process(Visit&& visit) const {
    for (const auto& [number, block] : block_of_) visit(number);
  }
  /// The process to which a message to QP1 goes; 0: none. `packet`: from the BTH to the ICRC.
  /// `ends.sender`: the process that has sent it, or whose station has; 0: another machine.
  unsigned route(CmDispatch::Ends ends, std::span<const std::byte> packet);

  Counters counters() const;
  std::size_t addresses() const { return groups_.size(); }
  /// Closes the sockets of addresses that no process has had for kLinger. The loop calls it.
  void close_idle();

 private:
  struct Address {
    std::unique_ptr<RoceGroup> group;
    util::Time empty_since{};
  };

  struct Refused {
    RoceRefusal refusal;
    util::Time until{};
    unsigned number = 0;  ///< of the process that asked first
  };

  Address* find_or_open(unsigned number, const wire::Gid& address, RoceRefusal& refusal);
  void note_refused(unsigned number, const wire::Gid& address, const RoceRefusal& refusal);
  Address* open(const wire::Gid& address, RoceRefusal& refusal);
  int admit(unsigned number, RoceGroup& group, RoceRefusal& refusal);
  int admit_new(unsigned number, RoceGroup& group, RoceRefusal& refusal);
  void give_back_block(unsigned number);
  void set_alarm();
  void vacate(Address& address, RoceBlock block);
  /// Drops what departed processes have left in their sockets, in turns of the loop.
  void drain();
  void receive(const RoceGroup& group);
  void catch_up(std::span<const RoceBlock> members);
  RoceBlock block_of(unsigned number) const;
  void take_block(unsigned number, RoceBlock block);
  bool is_spoiled(RoceBlock block) const;
  bool have(RoceBlock block, const wire::Gid& address);
  std::span<const RoceBlock> holders(const wire::Gid& address) const;

  os::EventLoop& loop_;
  const Options options_;
  const Deliver deliver_;
  RoceBlocks blocks_;
  std::map<unsigned, RoceBlock> block_of_;                   ///< by process number
  std::array<unsigned, RoceBlocks::kLast + 1> number_of_{};  ///< by block; 0: none
  /// The processes that have each address, the oldest first, with or without a socket.
  std::map<wire::Gid, std::vector<RoceBlock>> holders_;
  std::map<wire::Gid, Address> groups_;
  std::map<wire::Gid, Refused> refused_;
  CmDispatch cm_;
  std::unique_ptr<os::Alarm> alarm_;  ///< for close_idle(); null before the first address
  os::EventLoop::Notice drain_;
  Counters counters_;
};

}  // namespace softhca::hub
