// One device of a process: the model, its driver, its place on the network of the run, and the
// addresses that it has there. It has no lock: its engine's is held.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "connectx/device.h"
#include "door/fault_port.h"
#include "door/frame_loss.h"
#include "door/on_demand_memory.h"
#include "door/own_address.h"
#include "door/run_counters.h"
#include "driver/connectx/hca.h"
#include "driver/in_process_host.h"
#include "fabric/impairment.h"
#include "fabric/switch.h"
#include "hub/neighbours.h"
#include "hub/uplink.h"
#include "util/result.h"
#include "uverbs/device.h"

namespace softhca::door {

class Card {
 public:
  struct Options {
    std::string directory;     ///< of the run, with the hub's socket
    unsigned number = 0;       ///< of mlx5_<number>
    std::string address = {};  ///< OwnAddresses::take
    FrameLoss loss = {};
    /// The MAC of a destination, as all devices of the process know it.
    std::function<bool(const driver::Gid& to, driver::Mac& mac)> find_mac;
    /// A call needs an address that no device knows: true if the call is served again when the
    /// network was asked.
    std::function<bool(const driver::Gid& to)> want_mac;
  };
  static util::Result<std::unique_ptr<Card>> create(Options options);

  uverbs::Device& device() { return *device_; }
  const connectx::Device& model() const { return *model_; }
  std::uint64_t node_guid() const;
  /// When it wants to be called.
  util::Time next() const { return next_; }

  // A turn, in this order.
  /// Frames from the hub and from other processes. Returns how many there were.
  std::size_t receive();
  void progress() { host_->progress(); }
  /// From now on it waits for nobody's room: the program ends, and what it owes is sent.
  void hurry() { hurries_ = true; }
  /// Its peers' devices are programs, which wait for a processor that they share with others:
  /// `threads` for each of these.
  void set_crowd(unsigned threads);
  /// Frames to the hub and to others.
  void settle() { link_->settle(); }
  /// Nothing waits: the hub wakes us from now on.
  bool prepare_to_sleep() { return link_->prepare_to_sleep(); }
  /// Once a second or so: memory of links that are idle.
  void free_idle_pages() { link_->free_idle_pages(); }
  bool has_work() { return switch_.has_work(); }
  /// Nothing waits in it at that time. What the driver has rung for meanwhile is not known here.
  bool is_quiet(util::Time now) const { return next_ > now && !switch_.has_work(); }
  /// What the hub writes to.
  int wake() const { return link_->wake(); }

  /// The MAC of an address of its own, or of one that it has been told. False: it knows of none.
  bool find_mac(const driver::Gid& to, driver::Mac& mac) const;
  bool has_address(const driver::Gid& gid) const;
  /// Asks the network: find_mac() may know it afterwards.
  void ask(const driver::Gid& to);
  /// Readable when follow_host() may have something to do; -1: never.
  int host_changes() const { return addresses_.changes(); }
  /// The GID table follows the interface that gives the addresses. Returns how many entries are
  /// others now.
  unsigned follow_host();
  /// What its device has counted is for all processes of the run to see.
  void publish_counters();
  /// The MAC of an address that a host has, as far as is known without asking.
  bool find_present(const driver::Gid& to, driver::Mac& mac) const;
  /// The hub has gone since the last look: the port is down from now on.
  bool see_hub_go();
  /// In a child that was forked: what stays is the parent's.
  void leave_to_parent();

 private:
  explicit Card(Options options) : options_(std::move(options)) {}
  util::Result<void> join();
  util::Result<void> set_up();
  util::Time run_as_far_as_there_is_room(util::Time now);
  void tell_neighbours();
  driver::Mac mac() const;

  const Options options_;
  OwnAddresses addresses_;
  fabric::Switch switch_;
  std::unique_ptr<fabric::Port> device_port_;
  std::unique_ptr<fabric::Impairment> impairment_;  ///< null: nothing is lost on purpose
  std::unique_ptr<hub::Neighbours> neighbours_;
  std::unique_ptr<FaultPort> fault_port_;
  std::unique_ptr<hub::Uplink> link_;
  OnDemandMemory on_demand_;
  std::unique_ptr<connectx::Device> model_;
  std::unique_ptr<driver::InProcessHost> host_;
  std::unique_ptr<driver::connectx::Hca> hca_;
  std::unique_ptr<uverbs::Device> device_;
  util::Time next_ = util::kNever;
  bool hurries_ = false;
  std::unique_ptr<RunCounters> counters_;
};

}  // namespace softhca::door
