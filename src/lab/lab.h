// A laboratory in one process: HCAs by name, each with its driver behind the verbs, all on one
// switch. What examples, `softhca perf` and the suite of tests/verbs stand on.
//
//   lab::Lab lab({"connectx", "rsnic"});
//   auto pd = lab.device(0).allocate_pd().value();
//
// Nothing works by itself: a device does when its driver waits (Host::progress), and then all do.
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
#include "fabric/impairment.h"
#include "fabric/switch.h"
#include "pcie/function.h"
#include "subnet/subnet.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/result.h"

namespace softhca::lab {

/// What a device can be called.
std::span<const std::string_view> models();
/// Whether devices of `model` have a port for such a link. @pre it is one of models()
bool has_link(std::string_view model, wire::Link link);

class Lab {
 public:
  struct Options {
    /// Time stands still unless nothing else can happen, and then goes to the next timer: a retry
    /// of seconds costs nothing. Otherwise it is that of the machine.
    bool virtual_time = false;
    /// InfiniBand: the switch is one, with a subnet manager; devices that have no such port are
    /// refused.
    wire::Link link = wire::Link::kEthernet;
    /// Virtual time only: what each device sends suffers this. Otherwise cables are as good as
    /// none, and cost nothing.
    fabric::Impairment::Options impairment = {};
    /// What is worth a line on stderr.
    util::LogLevel log_level = util::LogLevel::kWarning;
  };

  /// Device n has the MAC address 02:00:00:00:00:<n + 1> and the GID ::ffff:10.0.0.<n + 1> in entry
  /// 0 of its table, or the LID that the subnet manager gives it. Throws std::runtime_error if a
  /// name is unknown or a device does not come up.
  explicit Lab(const std::vector<std::string>& names) : Lab(names, Options()) {}
  Lab(const std::vector<std::string>& names, const Options& options);
  /// @pre what was made on the devices is gone
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  std::size_t size() const { return nodes_.size(); }
  driver::verbs::Device& device(std::size_t index) { return *nodes_.at(index)->device; }
  const std::string& name(std::size_t index) const { return nodes_.at(index)->name; }
  /// Virtual time only.
  fabric::Impairment& cable(std::size_t index) { return *nodes_.at(index)->cable; }
  fabric::Switch& network() { return switch_; }
  /// Null on Ethernet.
  const subnet::Subnet* subnet() const { return subnet_ ? &*subnet_ : nullptr; }
  util::Time now() const { return options_.virtual_time ? now_ : util::monotonic_now(); }

  /// Lets all devices work once, and delivers their frames.
  void progress();
  /// Virtual time only: lets everything happen until `done` says so. False if a minute was not
  /// enough, or nothing more happens.
  bool run_until(const std::function<bool()>& done);
  /// Virtual time only: lets everything happen that happens until `duration` from now.
  void advance(util::Duration duration);

 private:
  struct Node {
    std::string name;
    std::unique_ptr<fabric::Port> port;
    std::unique_ptr<fabric::Impairment> cable;  ///< null: the port itself
    std::unique_ptr<pcie::Function> function;
    std::unique_ptr<driver::Host> host;
    std::unique_ptr<driver::verbs::Device> device;
  };

  void add(const std::string& name);
  util::Result<void> wait_for_link(Node& node);
  bool pass();

  Options options_;
  fabric::Switch switch_;
  std::optional<subnet::Subnet> subnet_;  ///< of an InfiniBand link
  util::Time now_{std::chrono::seconds(1)};
  util::Time next_ = util::kNever;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace softhca::lab
