// Hosts with a ConnectX each, on one switch and on virtual time. Each cable fails by the rules of
// fabric/fault_rule.h. Time moves from event to event, so that an idle hour costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "connectx/device.h"
#include "driver/in_process_host.h"
#include "driver/verbs/verbs.h"
#include "fabric/faulty_link.h"
#include "fabric/network_faults.h"
#include "fabric/switch.h"
#include "fabric/tap.h"

namespace softhca::bad_network {

/// Hashes each frame of the switch with its time and its sender's port, as a capture holds them.
class WireHash final : public fabric::Tap {
 public:
  explicit WireHash(const util::Time& now) : now_(now) {}
  void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
  void handle_frame(std::uint32_t ingress_port, const wire::Frame& frame) override;
  std::uint64_t value() const { return hash_; }
  std::uint64_t frames() const { return frames_; }

 private:
  void mix(std::uint64_t word);

  const util::Time& now_;
  std::vector<std::byte> bytes_;
  std::uint64_t hash_ = 0;
  std::uint64_t frames_ = 0;
};

class Fleet {
 public:
  explicit Fleet(unsigned hosts);
  /// @pre all objects made on the devices are destroyed
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  unsigned size() const { return static_cast<unsigned>(hosts_.size()); }
  /// port= of a rule for this host.
  const std::string& name(unsigned host) const { return hosts_.at(host)->name; }
  driver::verbs::Device& device(unsigned host) { return *hosts_.at(host)->verbs; }
  fabric::NetworkFaults& faults() { return faults_; }
  util::Time now() const { return now_; }
  const WireHash& hash() const { return hash_; }

  /// Runs all events before `until`. Calls `look` when the devices have nothing more to do at this
  /// time; if it returns true they run again.
  void run(util::Time until, const std::function<bool()>& look);
  /// A station without a device, which sends any frames. They are delivered in the next turn.
  void inject(const wire::Frame& frame) { stranger_->transmit(frame); }
  /// One turn of all devices, at this time.
  void turn() { (void)pass(); }
  /// Turns of all devices so far.
  std::uint64_t turns() const { return turns_; }
  /// Polls without letting a device work or time pass.
  std::size_t poll(driver::verbs::CompletionQueue& cq, std::span<driver::Completion> out);

 private:
  struct Host {
    std::string name;
    std::unique_ptr<fabric::Port> port;
    std::unique_ptr<fabric::FaultyLink> link;
    std::unique_ptr<connectx::Device> device;
    std::unique_ptr<driver::InProcessHost> host;
    std::unique_ptr<driver::verbs::Device> verbs;
  };

  void add();
  bool pass();
  void progress();

  util::Time now_{std::chrono::seconds(1)};
  util::Time next_ = util::kNever;
  std::uint64_t turns_ = 0;
  bool only_polls_ = false;
  WireHash hash_{now_};
  fabric::Switch switch_;
  fabric::NetworkFaults faults_{[this] { return now_; }};
  std::unique_ptr<fabric::Port> stranger_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

}  // namespace softhca::bad_network
