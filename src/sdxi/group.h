// Functions that may reach each other's memory (SDXI 3.3.1): a PF with its VFs, and other PFs, in
// one process. Members see each other only through this interface.
//
// One loop owns all functions of a FunctionGroup and what they share. It is the control thread of
// their worker threads, if there are any. GroupMember::group_name() divides them into one or more
// function groups of the document.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pcie/interrupts.h"
#include "sdxi/memory.h"
#include "sdxi/refusal.h"
#include "sdxi/workers.h"

namespace softhca::sdxi {

class ContextControl;
class Faults;

/// The request of a requesting function to the target of an AKey (SDXI 3.3.4).
struct RemoteRequest {
  std::uint16_t requester;  ///< its sfunc
  std::uint16_t rkey;
  std::uint8_t buffer;
};

/// The destination of a descriptor's interrupt.
struct InterruptTarget {
  pcie::Interrupts* interrupts;
  std::uint16_t vector;
};

/// One 16-byte mailbox (SDXI 9.4).
using Mailbox = std::array<std::byte, 16>;

class GroupMember {
 public:
  virtual ~GroupMember() = default;
  virtual std::uint16_t sfunc() const = 0;
  virtual bool is_vf() const = 0;

  // Target side of a cross-function access (SDXI 3.3.4, steps 3 to 8).
  virtual Checked<AddressSpace> admit_memory(const RemoteRequest& request) = 0;
  virtual Checked<InterruptTarget> admit_interrupt(const RemoteRequest& request) = 0;

  /// For a PF's administrative operations on a VF (SDXI 3.5).
  virtual ContextControl& context_control() = 0;

  // Mailboxes (SDXI 9.4). `peer` is the other side: a VF's number on a PF, 0 on a VF.
  virtual std::span<std::byte> send_mailbox(std::uint16_t peer) = 0;
  virtual void message_arrived(std::uint16_t peer) = 0;
  virtual void message_taken(std::uint16_t peer) = 0;

  /// Called when another PF's MMIO_GRP_ENUM.probe was written.
  virtual void set_probe(bool probe) = 0;
  virtual bool probe() const = 0;
  /// MMIO_GRP_ENUM.busy: the value of probe has not yet reached all other PFs.
  virtual bool probe_busy() const = 0;
  virtual std::uint32_t group_id() const = 0;
  /// DeviceOptions::group; of a VF, that of its PF.
  virtual const std::string& group_name() const = 0;
};

class FunctionGroup {
 public:
  /// `clock` is for the worker threads.
  explicit FunctionGroup(util::TimeSource clock = util::monotonic_now);
  ~FunctionGroup();

  /// Identity of a new member.
  struct Seat {
    std::uint16_t sfunc = 0;
    GroupMember* pf = nullptr;  ///< null for a PF
    std::uint16_t vf_num = 0;   ///< for a VF: counted from 0, as MMIO_MBS_CTL.tgt_vf (SDXI 9.4)
  };

  void join(GroupMember& member, const Seat& seat);
  void leave(GroupMember& member);
  /// The lowest unused sfunc, from 1 on. SDXI 9.1: unique in the group, not 0.
  std::uint16_t free_sfunc() const;
  std::uint16_t next_vf(const GroupMember& pf) const;

  /// Null if the group of `from` has no such function.
  GroupMember* find(const GroupMember& from, std::uint16_t sfunc) const;
  GroupMember* vf_of(const GroupMember& pf, std::uint16_t vf_num) const;
  /// SDXI 3.3.1: the probe field of the PF `from` was written; passes the value to all other PFs of
  /// its group.
  void propagate_probe(const GroupMember& from, bool probe) const;

  /// The injected faults of the group's functions.
  Faults& faults() const { return *faults_; }
  /// The threads that execute descriptors of all members; none until Workers::start().
  Workers& workers() { return workers_; }

 private:
  struct Entry {
    GroupMember* member;
    Seat seat;
  };
  const Entry* seated(std::uint16_t sfunc) const;

  std::vector<Entry> members_;
  std::unique_ptr<Faults> faults_;
  Workers workers_;
};

}  // namespace softhca::sdxi
