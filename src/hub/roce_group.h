// The UDP sockets of an IP address that several processes share for RoCEv2 (IBTA Annex A17): a
// SO_REUSEPORT group (socket(7)) with a member for each block of QP numbers. A classic BPF program
// (SO_ATTACH_REUSEPORT_CBPF, which needs no privilege) chooses the member by the upper 8 bits of
// the destination QPN. So the kernel hands each packet to its process, and the hub copies none.
//
// Member 0 is the hub's own: packets to QP1 arrive there, and those for blocks without a member.
// Member k is that of block k. The kernel numbers the members in the order in which they were
// bound, and renumbers them when one is closed. So the hub keeps all open. The kernel drops what
// arrives at a member whose block no process has, by a filter of that socket.
//
// All users of a socket can change it, and any process of the same user can bind another socket to
// the group. The hub resets what matters when a process leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hub/roce_blocks.h"
#include "hub/roce_refusal.h"
#include "os/unique_fd.h"
#include "wire/gid.h"

namespace softhca::hub {

class RoceGroup {
 public:
  /// A datagram that has arrived at member 0.
  struct Datagram {
    wire::Gid from;
    std::uint16_t source_port = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    std::span<const std::byte> packet;  ///< from the BTH to the ICRC, or the beginning of it
  };
  struct Counters {
    std::uint64_t dropped = 0;   ///< packets for blocks that no process had
    std::uint64_t overflow = 0;  ///< packets for which member 0 had no room
  };

  /// Takes the port at the address. `refusal`: why not, if the result is null.
  static std::unique_ptr<RoceGroup> open(const wire::Gid& address, std::uint16_t port,
                                         RoceRefusal& refusal);

  const wire::Gid& address() const { return address_; }
  /// The descriptor of member 0, which does not block.
  int own() const { return members_.front().socket.get(); }
  /// Receives a datagram at member 0 into `buffer`. False: none is there.
  bool receive(std::span<std::byte> buffer, Datagram& datagram) const;

  /// Opens the member of a block for the process that has it now. Its descriptor is the hub's: the
  /// process gets a duplicate. -1: refused. @pre the block has no process here
  int admit(RoceBlock block, RoceRefusal& refusal);
  /// The descriptor of a process's member. @pre has(block)
  int member(RoceBlock block) const { return members_[block].socket.get(); }
  /// The process has left. @pre has(block)
  void leave(RoceBlock block);
  /// Drops at most kDrainedAtOnce packets that a departed process has left unread. False: none are
  /// left. Until then its block is refused.
  bool drain();
  static constexpr unsigned kDrainedAtOnce = 128;
  bool has(RoceBlock block) const { return block < members_.size() && members_[block].in_use; }
  /// The blocks of the processes, the oldest first.
  std::span<const RoceBlock> blocks() const { return blocks_; }

  /// Whether the last process of the block has made its member unusable.
  bool is_spoiled(RoceBlock block) const {
    return block < members_.size() && members_[block].is_spoiled;
  }

  std::size_t sockets() const { return members_.size(); }
  Counters counters() const;

 private:
  struct Member {
    os::UniqueFd socket;
    bool in_use = false;
    bool is_spoiled = false;  ///< its last process has made it unusable
    bool is_drained = true;   ///< its last process has left no packets
    unsigned drains = 0;      ///< calls of drain() since that process left
    std::uint32_t drops = 0;  ///< the kernel's count for this socket when `dropped` was updated
    std::uint64_t dropped = 0;
  };

  RoceGroup(const wire::Gid& address, std::uint16_t port) : address_(address), port_(port) {}
  bool open_first(RoceRefusal& refusal);
  bool open_next(RoceRefusal& refusal);
  bool bind(int socket, RoceRefusal& refusal) const;
  bool steer() const;
  void allow_merging() const;
  static void count_drops(Member& member);
  static void drain(Member& member);

  const wire::Gid address_;
  const std::uint16_t port_;
  std::vector<Member> members_;  ///< by their numbers in the kernel
  std::vector<RoceBlock> blocks_;
};

}  // namespace softhca::hub
