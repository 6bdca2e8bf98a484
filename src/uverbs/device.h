// A ConnectX-4 from the view of the kernel's RDMA driver: the state that all programs with an open
// device file share. The caller owns the host and the HCA.
//
// The device reaches the program's memory at the program's own addresses with one higher bit set.
// No page is mapped twice and none is copied. Nothing here has a lock: the caller must keep the
// device from running meanwhile.
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

/// An entry of the GID table (kernel interface 4.4).
struct GidEntry {
  driver::Gid gid;
  bool roce_v2 = true;
};

class Device;

/// Reserves an entry of the GID table for a QP or an address handle that names it. While the use
/// lives, no other address gets the entry, even after its own address is removed.
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

/// Receives the events of a queue.
class EventTarget {
 public:
  virtual ~EventTarget() = default;
  virtual void handle_event(softhca::spec::connectx::event_type type) = 0;
};

class SharedXrcDomain;

class Device {
 public:
  struct Options {
    std::vector<GidEntry> gids;  ///< initial entries, by index
    std::uint64_t node_guid = 0;
    unsigned interface_index = 0;  ///< interface that has the addresses; 0: none
    /// Returns its present MTU in bytes; 0: not known. Empty: never known.
    std::function<unsigned()> interface_mtu = {};
    /// Finds the MAC of a destination. False: no neighbor with that address is known.
    std::function<bool(const driver::Gid& to, driver::Mac& mac)> find_mac;
    /// The same, but also asks the network, which may take a second. Empty: find_mac is complete.
    std::function<bool(const driver::Gid& to, driver::Mac& mac)> ask_for_mac = {};
    /// The MAC to which a connected QP sends packets for QP `qpn` at a destination with this MAC:
    /// several devices may share the destination's address. Empty: the same MAC.
    std::function<driver::Mac(const driver::Mac& mac, std::uint32_t qpn)> mac_of_qp = {};
    /// Called before a QP is attached to a multicast group (`joins`), and when it is in the group
    /// no longer. May be empty. If a call that joins throws, the QP is not attached.
    std::function<void(const driver::Gid& group, bool joins)> on_member = {};
  };

  /// @pre `host` reaches the program's memory at bus_address() and on_demand_address()
  static util::Result<std::unique_ptr<Device>> create(driver::connectx::Hca& hca, Options options);
  ~Device();

  static constexpr pcie::Iova kProgramMemory = pcie::Iova{1} << 47;
  static constexpr pcie::Iova bus_address(std::uint64_t address) {
    return kProgramMemory | address;
  }
  /// The same memory, reached by kernel copies, for on-demand keys. If a page is missing or forbids
  /// the access, the access fails without any other effect.
  static constexpr pcie::Iova on_demand_address(std::uint64_t address) {
    return 2 * kProgramMemory | address;
  }

  driver::connectx::Hca& hca() { return hca_; }
  driver::connectx::CommandQueue& commands() { return hca_.commands(); }
  util::View<softhca::spec::connectx::hca_cap> capabilities() const { return hca_.capabilities(); }
  const Options& options() const { return options_; }
  RecordScan& records() { return records_; }
  /// The rules of one kind of root flow tables. @pre this kind has rules here
  FlowRules& flows(softhca::spec::connectx::flow_table_type table) { return flows_.at(table); }
  /// Null: the entry is empty.
  const GidEntry* gid(std::size_t index) const {
    return index < gids_.size() && gids_[index] ? &*gids_[index] : nullptr;
  }
  /// One past the last entry that was ever used.
  std::size_t gids_end() const { return gids_.size(); }
  /// Whether another address may take the entry: it is empty, and nothing uses it.
  bool is_gid_free(std::size_t index) const {
    return gid(index) == nullptr && !gid_users_.contains(index);
  }
  /// Fills or empties an entry. Context::report_gid_change() notifies the programs.
  util::Result<void> set_gid(std::size_t index, const std::optional<GidEntry>& entry);
  bool find_mac(const driver::Gid& to, driver::Mac& mac) const;
  /// Finds a MAC, and asks the network if necessary.
  bool resolve_mac(const driver::Gid& to, driver::Mac& mac) const;
  /// HCA_CAP.max_lso_cap: log2 of the longest message of a raw packet QP that the device segments;
  /// 0: none.
  unsigned log_max_tso() const { return log_max_tso_; }
  /// The MTU of the port as ib_mtu: as in mlx5_ib, what fits the interface's. 4096 if that is not
  /// known.
  std::uint8_t active_mtu() const;
  /// The counter set of all QPs, as in mlx5_ib.
  std::uint8_t counter_set() const { return counter_set_; }
  /// The protection domain of objects that belong to no program; 0: the device refused one.
  std::uint32_t own_pd();
  /// The XRC domain of initiators, which must name one but never use it; 0: the device refused one.
  std::uint32_t own_xrc_domain();
  /// CREATE_UCTX: the user context for a program's DevX commands. 0: the device refused one.
  std::uint16_t make_user_context();
  void end_user_context(std::uint16_t uid);
  /// The context for queries open to programs without a user context. 0: the device refused one.
  std::uint16_t everybodys_user_context();
  /// Changes a key in place. False: the device refuses.
  bool change_key(const driver::connectx::KeyChange& change);

  // XRC domains named by files.
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
  /// Delivers all entries of the event queues. True if there were any.
  bool poll_events();

 private:
  friend class GidUse;
  Device(driver::connectx::Hca& hca, Options options);
  util::Result<void> set_up();
  util::Result<void> query_ethernet();

  driver::connectx::Hca& hca_;
  Options options_;
  std::vector<std::optional<GidEntry>> gids_;  ///< by index
  std::map<std::size_t, unsigned> gid_users_;  ///< number of uses, by index
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
  std::uint32_t own_xrc_domain_ = 0;                           ///< 0: not needed yet
  std::unique_ptr<driver::connectx::KeyChanger> key_changer_;  ///< null: not needed yet
};

}  // namespace softhca::uverbs
