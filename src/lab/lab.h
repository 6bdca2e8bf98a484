// A testbed in one process: HCAs by name, each with its driver and the verbs, all on one switch.
// Examples, `softhca perf` and the suite of tests/verbs use it.
//
//   lab::Lab lab({"connectx", "rsnic"});
//   auto pd = lab.device(0).allocate_pd().value();
//
// No device works by itself: all work while a driver waits (Host::progress).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver/verbs/device.h"
#include "fabric/faulty_link.h"
#include "fabric/network_faults.h"
#include "fabric/switch.h"
#include "pcie/function.h"
#include "subnet/subnet.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/result.h"

namespace softhca::lab {

/// Names of the device models.
std::span<const std::string_view> models();
/// True if devices of `model` have a port for this link. @pre it is one of models()
bool has_link(std::string_view model, wire::Link link);

class Lab {
 public:
  struct Options {
    /// Time advances only when nothing else can happen, and then to the next timer, so that a retry
    /// of seconds costs nothing. Otherwise the time is the machine's.
    bool virtual_time = false;
    /// InfiniBand: the switch is an InfiniBand switch with a subnet manager; devices without such a
    /// port are refused.
    wire::Link link = wire::Link::kEthernet;
    /// Least severe level that is logged to stderr.
    util::LogLevel log_level = util::LogLevel::kWarning;
  };

  /// Device n has the MAC address 02:00:00:00:00:<n + 1>, and in entry 0 of its table the GID
  /// ::ffff:10.0.0.<n + 1>; on InfiniBand it has the LID that the subnet manager assigns. Throws
  /// std::runtime_error if a name is unknown or a device does not come up.
  explicit Lab(const std::vector<std::string>& names) : Lab(names, Options()) {}
  Lab(const std::vector<std::string>& names, const Options& options);
  /// @pre all objects made on the devices are destroyed
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  std::size_t size() const { return nodes_.size(); }
  driver::verbs::Device& device(std::size_t index) { return *nodes_.at(index)->device; }
  const std::string& name(std::size_t index) const { return nodes_.at(index)->name; }
  /// Rules that make the links fail (docs/faults.md). The port of device n is called <model><n>.
  /// They act with virtual time only: links that cannot fail cost nothing.
  fabric::NetworkFaults& faults() { return faults_; }
  fabric::Switch& network() { return switch_; }
  /// Null on Ethernet.
  const subnet::Subnet* subnet() const { return subnet_ ? &*subnet_ : nullptr; }
  util::Time now() const { return options_.virtual_time ? now_ : util::monotonic_now(); }

  /// Lets all devices work once, and delivers their frames.
  void progress();
  /// Virtual time only: runs until `done` returns true. False if that takes more than a minute, or
  /// nothing more happens.
  bool run_until(const std::function<bool()>& done);
  /// Virtual time only: runs everything due until `duration` from now.
  void advance(util::Duration duration);

 private:
  struct Node {
    std::string name;
    std::unique_ptr<fabric::Port> port;
    std::unique_ptr<fabric::FaultyLink> link;  ///< null: it cannot fail
    std::unique_ptr<pcie::Function> function;
    std::unique_ptr<driver::Host> host;
    std::unique_ptr<driver::verbs::Device> device;
  };

  void add(const std::string& name);
  util::Result<void> wait_for_link(Node& node);
  bool pass();

  Options options_;
  fabric::Switch switch_;
  std::optional<subnet::Subnet> subnet_;  ///< only with an InfiniBand link
  util::Time now_{std::chrono::seconds(1)};
  util::Time next_ = util::kNever;
  fabric::NetworkFaults faults_{[this] { return now(); }};
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace softhca::lab
