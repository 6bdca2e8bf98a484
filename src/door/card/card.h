// A card: one RDMA device of a process, mlx5_<number>. It holds the model, its driver, the kernel's
// view of it, its link to the network of the run, and its addresses there. It has no lock: the
// caller holds the engine's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "connectx/device.h"
#include "door/card/fault_port.h"
#include "door/card/frame_loss.h"
#include "door/card/host_addresses.h"
#include "door/card/link_faults.h"
#include "door/card/machines.h"
#include "door/card/on_demand_memory.h"
#include "door/card/own_address.h"
#include "door/card/run_counters.h"
#include "door/card/shared_routes.h"
#include "driver/connectx/hca.h"
#include "driver/in_process_host.h"
#include "fabric/switch.h"
#include "hub/neighbours.h"
#include "hub/service_finder.h"
#include "hub/uplink.h"
#include "util/clock.h"
#include "util/result.h"
#include "util/time_source.h"
#include "uverbs/device.h"

namespace softhca::door {

class Card {
 public:
  struct Options {
    std::string directory;     ///< of the run; has the hub's socket
    unsigned number = 0;       ///< of mlx5_<number>
    std::string address = {};  ///< OwnAddresses::take
    FrameLoss loss = {};
    /// The file of the run's network rules (fabric::FaultBook); empty: none.
    std::string faults = {};
    /// Finds the MAC of a destination in the tables of all devices of the process.
    std::function<bool(const driver::Gid& to, driver::Mac& mac)> find_mac;
    /// Called if a call needs the MAC of an address that no device knows. True: the network is
    /// asked, and the call is then served again.
    std::function<bool(const driver::Gid& to)> want_mac;
    /// The address of the process if it has a port number of librdmacm at an address of this
    /// machine. Empty: it never has.
    hub::ServiceFinder::Owner owner_of = {};
    /// Measures how long frames have waited for room at their receivers.
    util::TimeSource clock = util::monotonic_now;
    /// Reads the MTU of an interface (door::mtu_of).
    std::function<unsigned(unsigned interface)> read_mtu = mtu_of;
  };
  static util::Result<std::unique_ptr<Card>> create(Options options);

  uverbs::Device& device() { return *device_; }
  const connectx::Device& model() const { return *model_; }
  std::uint64_t node_guid() const;
  /// When progress() is due.
  util::Time next() const { return next_; }

  // The steps of a turn, in this order.
  /// Takes frames from the hub, from other processes and from other machines. Returns their number.
  std::size_t receive();
  void progress() { host_->progress(); }
  /// From now on the device sends without waiting for room at receivers: the program ends.
  void hurry() { hurries_ = true; }
  /// Sets how patiently it waits for ACKs: the peers' devices are programs, which may have to wait
  /// for a processor. `threads`: runnable threads per processor.
  void set_crowd(unsigned threads);
  /// Sends frames to the hub and to other processes.
  void settle() { link_->settle(); }
  /// Requests a wakeup from the hub. False if frames wait already.
  bool prepare_to_sleep() { return link_->prepare_to_sleep(); }
  /// Frees memory of idle links, and keeps the others. Call about once a second.
  void look_after_links();
  bool has_work() { return switch_.has_work(); }
  /// Whether it has nothing to do at `now`. This does not see doorbells that the driver has rung
  /// meanwhile.
  bool is_quiet(util::Time now) const { return next_ > now && !switch_.has_work(); }
  /// The eventfd that the hub signals.
  int wake() const { return link_->wake(); }
  /// The UDP sockets by which the device reaches other machines.
  const Machines& machines() const { return machines_; }
  /// How its packets reach addresses that several processes have.
  const SharedRoutes& shared_routes() const { return *routes_; }

  /// The MAC of its own address, or of one in its neighbor table. False: it knows none.
  bool find_mac(const driver::Gid& to, driver::Mac& mac) const;
  bool has_address(const driver::Gid& gid) const;
  /// Its own, of no other process.
  driver::Gid link_local_address() const;
  /// Asks the network; find_mac() may find the address afterwards.
  void ask(const driver::Gid& to);
  /// The ports of other machines' processes that the network was asked for.
  hub::ServiceFinder& services() { return *services_; }
  /// The MTU in bytes of the path to an address on another machine; 0: it is none, or not known.
  unsigned mtu_to(const driver::Gid& to) const;
  /// Readable when follow_host() may have something to do; -1: never.
  int host_changes() const { return addresses_.changes(); }
  /// Updates the GID table and the MTU from the interface that gives the addresses. Returns the
  /// number of changed entries.
  unsigned follow_host();
  /// Adds the device's counters to those of the run, which all its processes see.
  void publish_counters();
  /// Finds the MAC of an address that a host has, without asking the network.
  bool find_present(const driver::Gid& to, driver::Mac& mac) const;
  /// Whether the hub has gone since the last call. The port is then down for good.
  bool see_hub_go();
  bool has_link() const { return fault_port_->link_up(); }
  /// The state of the link if a rule has changed it since the last call.
  std::optional<bool> see_link_change() {
    return faults_ == nullptr ? std::nullopt : faults_->see_change();
  }
  /// In a forked child: closes what belongs to the parent.
  void leave_to_parent();

 private:
  explicit Card(Options options) : options_(std::move(options)), machines_(options_.directory) {}
  util::Result<void> join();
  util::Result<void> set_up();
  fabric::Port& make_ports();
  void progress_device();
  std::size_t packets_of_room();
  util::Time run_as_far_as_there_is_room(util::Time now);
  void announce_addresses();
  driver::Mac mac() const;

  const Options options_;
  OwnAddresses addresses_;
  unsigned interface_mtu_ = 0;  ///< in bytes, as of the last follow_host(); 0: not known
  fabric::Switch switch_;
  std::unique_ptr<fabric::Port> device_port_;
  std::unique_ptr<LinkFaults> faults_;  ///< null: there are none
  std::unique_ptr<hub::Neighbours> neighbours_;
  std::unique_ptr<hub::ServiceFinder> services_;
  std::unique_ptr<SharedRoutes> routes_;
  std::unique_ptr<FaultPort> fault_port_;
  std::unique_ptr<hub::Uplink> link_;
  Machines machines_;
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
