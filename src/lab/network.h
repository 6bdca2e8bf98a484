// Functions on one switch, the links that rules may let fail, and the time that all of them share.
// Lab opens a driver on each function. Tests of one driver open it themselves.
//
// No function works by itself: all work in turns, while a driver waits (Host::progress).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/in_process_host.h"
#include "fabric/faulty_link.h"
#include "fabric/network_faults.h"
#include "fabric/switch.h"
#include "pcie/function.h"
#include "subnet/subnet.h"
#include "util/clock.h"
#include "util/log.h"

namespace softhca::lab {

class Network {
 public:
  struct Options {
    /// Time advances only when nothing else can happen, and then to the next timer, so that a retry
    /// of seconds costs nothing. Otherwise the time is the machine's.
    bool virtual_time = false;
    /// InfiniBand: the switch is an InfiniBand switch with a subnet manager.
    wire::Link link = wire::Link::kEthernet;
    /// Least severe level that is logged to stderr.
    util::LogLevel log_level = util::LogLevel::kWarning;
  };
  explicit Network(const Options& options);
  virtual ~Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// A new port of the switch, for a function. Its link fails by the rules of faults().
  fabric::Port& create_port(const std::string& name);
  /// Lets `function`, on the port created last, work in each turn. It must outlive the last turn.
  void add(pcie::Function& function) { slots_.back().function = &function; }
  /// For the host of a function: while its driver waits, all functions work.
  driver::InProcessHost::Options host_options();

  /// Rules that make the links fail (docs/faults.md). They act with virtual time only: links that
  /// cannot fail cost nothing.
  fabric::NetworkFaults& faults() { return faults_; }
  /// Adds a rule and returns its counters. Throws std::runtime_error if `rule` is not valid.
  const fabric::NetworkFaults::Counters& add_fault(std::string_view rule);
  fabric::Switch& network() { return switch_; }
  /// Null on Ethernet.
  const subnet::Subnet* subnet() const { return subnet_ ? &*subnet_ : nullptr; }
  util::Time now() const { return options_.virtual_time ? now_ : util::monotonic_now(); }

  /// Lets all functions work once, and delivers their frames.
  void progress();
  /// Virtual time only: runs until `done` returns true. False if that takes more than a minute, or
  /// nothing more happens.
  bool run_until(const std::function<bool()>& done);
  /// Virtual time only: runs everything due until `duration` from now.
  void advance(util::Duration duration);

 protected:
  /// A turn of all functions. Returns when the next event is due.
  virtual util::Time run(util::Time now);
  /// A turn. False if nothing is left to do now.
  bool pass();
  /// When the next event is due, as of the last turn.
  util::Time next() const { return next_; }
  /// Virtual time only. Time does not go back.
  void advance_to(util::Time time);
  const Options& options() const { return options_; }

 private:
  struct Slot {
    std::unique_ptr<fabric::Port> port;
    std::unique_ptr<fabric::FaultyLink> link;  ///< null: it cannot fail
    pcie::Function* function = nullptr;
  };

  void release(util::Time now);

  const Options options_;
  fabric::Switch switch_;
  std::optional<subnet::Subnet> subnet_;  ///< only with an InfiniBand link
  util::Time now_{std::chrono::seconds(1)};
  util::Time next_ = util::kNever;
  fabric::NetworkFaults faults_{[this] { return now(); }};
  std::vector<Slot> slots_;
};

}  // namespace softhca::lab
