// Mailboxes between a PF and its VFs (SDXI 9.4 to 9.6).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sdxi/group.h"
#include "sdxi/own_interrupt.h"
#include "util/inspection.h"

namespace softhca::sdxi {

class Mailboxes {
 public:
  /// Mailboxes of a PF with `vfs` VFs, or, if `pf` is not null, of VF `vf_num`. With neither, all
  /// registers are reserved.
  Mailboxes(GroupMember& self, GroupMember* pf, std::uint16_t vf_num, std::uint16_t vfs,
            const FunctionGroup& group, OwnInterrupt& own_interrupt);

  /// MMIO_MB_CTL.
  std::uint64_t control() const { return control_; }
  /// Reads a register after MMIO_MB_CTL, or a mailbox: 8 aligned bytes.
  std::uint64_t read(std::uint64_t offset);
  /// Writes a register from MMIO_MB_CTL on. `written` has ones in the bytes that software wrote.
  void write(std::uint64_t offset, std::uint64_t value, std::uint64_t written);
  void reset();
  /// Shows each peer whose rcv or ack bit is set.
  void inspect(util::Inspection& out) const;

  std::span<std::byte> send_mailbox(std::uint16_t peer);
  void message_arrived(std::uint16_t peer);
  void message_taken(std::uint16_t peer);

 private:
  /// One bit for each peer.
  using Bits = std::vector<std::uint64_t>;

  GroupMember* peer(std::uint16_t number) const;
  /// The number by which the peer addresses this side.
  std::uint16_t own_number() const { return pf_ == nullptr ? 0 : vf_num_; }
  void send(std::uint64_t control);
  void clear_received(std::size_t word, std::uint64_t ones);
  std::byte* data(std::uint64_t offset, bool* writable);

  GroupMember& self_;
  GroupMember* pf_;
  std::uint16_t vf_num_;
  const FunctionGroup& group_;
  OwnInterrupt& own_interrupt_;
  std::uint64_t control_ = 0;  ///< MMIO_MB_CTL
  Bits acknowledged_;          ///< MMIO_MBS_ST
  Bits received_;              ///< MMIO_MBR_ST
  std::vector<Mailbox> sent_;
};

}  // namespace softhca::sdxi
