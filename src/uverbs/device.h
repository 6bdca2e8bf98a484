// A ConnectX-4 as the kernel's driver for RDMA sees it: what all programs that have opened it
// share. The host and the HCA are the caller's.
//
// The memory of the program is where the device reaches it at its own address, one bit further up:
// no page is mapped twice and none is copied. Nothing here has a lock: who calls takes care that
// the device does not work meanwhile.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "driver/connectx/hca.h"
#include "driver/connectx/key_changer.h"
#include "driver/connectx/protection_domain.h"
#include "util/result.h"
#include "uverbs/event_subscriptions.h"
#include "uverbs/flow_rules.h"
#include "uverbs/record_scan.h"

namespace softhca::uverbs {

/// An entry of the GID table (host-door contract 4.4).
struct GidEntry {
  driver::Gid gid;
  bool roce_v2 = true;
};

class Device;

/// Keeps an entry of the GID table from being another address's, for a QP or an address handle that
/// names it, also when its own address has gone.
class GidUse {
 public:
  GidUse() = default;
  GidUse(Device& device, std::size_t index);
  GidUse(GidUse&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), index_(other.index_) {}
  GidUse& operator=(GidUse&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~GidUse();

 private:
  Device* device_ = nullptr;
  std::size_t index_ = 0;
};

/// Who is told of events of a queue.
class EventTarget {
 public:
  virtual ~EventTarget() = default;
  virtual void handle_event(softhca::spec::connectx::event_type type) = 0;
};

class SharedXrcDomain;

class Device {
 public:
  struct Options {
    std::vector<GidEntry> gids;  ///< at first, by index
    std::uint64_t node_guid = 0;
    unsigned interface_index = 0;  ///< of the interface that the addresses are of; 0: none
    /// The MAC of a destination; false: nobody is known to have that address.
    std::function<bool(const driver::Gid& to, driver::Mac& mac)> find_mac;
    /// The same, and the network is asked. May take a second. Empty: find_mac knows all.
    std::function<bool(const driver::Gid& to, driver::Mac& mac)> ask_for_mac = {};
  };

  /// @pre `host` reaches the program's memory at bus_address() and on_demand_address()
  static util::Result<std::unique_ptr<Device>> create(driver::connectx::Hca& hca, Options options);
  ~Device();

  static constexpr pcie::Iova kProgramMemory = pcie::Iova{1} << 47;
  static constexpr pcie::Iova bus_address(std::uint64_t address) {
    return kProgramMemory | address;
  }
  /// The same memory once more, reached by copies of the kernel: where a page is not there, or may
  /// not be accessed so, the access fails and nothing else happens. For keys on demand.
  static constexpr pcie::Iova on_demand_address(std::uint64_t address) {
    return 2 * kProgramMemory | address;
  }

  driver::connectx::Hca& hca() { return hca_; }
  driver::connectx::CommandQueue& commands() { return hca_.commands(); }
  util::View<softhca::spec::connectx::hca_cap> capabilities() const { return hca_.capabilities(); }
  const Options& options() const { return options_; }
  RecordScan& records() { return records_; }
  /// Of a kind of tables that lie in the way of frames by themselves. @pre it has rules here
  FlowRules& flows(softhca::spec::connectx::flow_table_type table) { return flows_.at(table); }
  /// Null: the entry is empty.
  const GidEntry* gid(std::size_t index) const {
    return index < gids_.size() && gids_[index] ? &*gids_[index] : nullptr;
  }
  /// Behind the last entry that was ever used.
  std::size_t gids_end() const { return gids_.size(); }
  /// Another address may have it: it is empty, and nothing names it.
  bool is_gid_free(std::size_t index) const {
    return gid(index) == nullptr && !gid_users_.contains(index);
  }
  /// Fills an entry, or empties it. Programs are told by Context::tell_gid_change().
  util::Result<void> set_gid(std::size_t index, const std::optional<GidEntry>& entry);
  bool find_mac(const driver::Gid& to, driver::Mac& mac) const;
  /// Asks for it, if need be.
  bool resolve_mac(const driver::Gid& to, driver::Mac& mac) const;
  /// HCA_CAP.max_lso_cap: the longest message of a raw packet QP that the device cuts; 0: none.
  unsigned log_max_tso() const { return log_max_tso_; }
  /// That all QPs count in, as those of mlx5_ib do.
  std::uint8_t counter_set() const { return counter_set_; }
  /// The protection domain of what belongs to no program; 0 if there is none to be had.
  std::uint32_t own_pd();
  /// The XRC domain of initiators, which name one to no end; 0 if there is none to be had.
  std::uint32_t own_xrc_domain();
  /// CREATE_UCTX: in its name a program gives commands of its own (DevX). 0: there is none to be
  /// had.
  std::uint16_t make_user_context();
  void end_user_context(std::uint16_t uid);
  /// That of programs that have none of their own, for questions that are open to all. 0: none.
  std::uint16_t everybodys_user_context();
  /// Changes a key in place. False: the device does not.
  bool change_key(const driver::connectx::KeyChange& change);

  // XRC domains that files name.
  using FileName = std::pair<dev_t, ino_t>;
  std::shared_ptr<SharedXrcDomain> find_xrc_domain(FileName file) const;
  void name_xrc_domain(FileName file, const std::shared_ptr<SharedXrcDomain>& domain);

  // Events.
  EventSubscriptions& subscriptions() { return subscriptions_; }
  void add_completion_target(std::uint32_t cqn, EventTarget& target);
  void remove_completion_target(std::uint32_t cqn) { completion_targets_.erase(cqn); }
  void add_queue_target(std::uint32_t qpn, EventTarget& target) { queue_targets_[qpn] = &target; }
  void remove_queue_target(std::uint32_t qpn) { queue_targets_.erase(qpn); }
  void add_shared_target(std::uint32_t srqn, EventTarget& target) {
    shared_targets_[srqn] = &target;
  }
  void remove_shared_target(std::uint32_t srqn) { shared_targets_.erase(srqn); }
  /// Hands on what the event queues have. True if there was anything.
  bool poll_events();

 private:
  friend class GidUse;
  Device(driver::connectx::Hca& hca, Options options);
  util::Result<void> set_up();
  util::Result<void> query_ethernet();

  driver::connectx::Hca& hca_;
  Options options_;
  std::vector<std::optional<GidEntry>> gids_;  ///< by index
  std::map<std::size_t, unsigned> gid_users_;  ///< how many there are, by index
  RecordScan records_;
  EventSubscriptions subscriptions_;
  std::map<softhca::spec::connectx::flow_table_type, FlowRules> flows_;
  std::uint16_t everybody_ = 0;
  std::uint8_t counter_set_ = 0;
  unsigned log_max_tso_ = 0;
  std::unordered_map<std::uint32_t, EventTarget*> completion_targets_;
  std::unordered_map<std::uint32_t, EventTarget*> queue_targets_;
  std::unordered_map<std::uint32_t, EventTarget*> shared_targets_;
  std::map<FileName, std::weak_ptr<SharedXrcDomain>> xrc_domains_;
  std::unique_ptr<driver::connectx::ProtectionDomain> own_pd_;
  std::uint32_t own_xrc_domain_ = 0;                           ///< 0: none was needed
  std::unique_ptr<driver::connectx::KeyChanger> key_changer_;  ///< null: none was needed
};

}  // namespace softhca::uverbs
