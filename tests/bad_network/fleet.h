// Hosts with a ConnectX each, in a lab on virtual time. Each cable fails by the rules of
// fabric/fault_rule.h. Time moves from event to event, so that an idle hour costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "driver/verbs/verbs.h"
#include "fabric/tap.h"
#include "lab/lab.h"

namespace softhca::bad_network {

/// Hashes each frame of the switch with its time and its sender's port, as a capture holds them.
class WireHash final : public fabric::Tap {
 public:
  explicit WireHash(const lab::Network& network) : network_(network) {}
  void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
  void handle_frame(std::uint32_t ingress_port, const wire::Frame& frame) override;
  std::uint64_t value() const { return hash_; }
  std::uint64_t frames() const { return frames_; }

 private:
  void mix(std::uint64_t word);

  const lab::Network& network_;
  std::vector<std::byte> bytes_;
  std::uint64_t hash_ = 0;
  std::uint64_t frames_ = 0;
};

class Fleet : public lab::Lab {
 public:
  explicit Fleet(unsigned hosts);
  /// @pre all objects made on the devices are destroyed
  ~Fleet() override { network().set_tap(nullptr); }

  const WireHash& hash() const { return hash_; }

  /// Runs all events before `until`. Calls `look` when the devices have nothing more to do at this
  /// time; if it returns true they run again.
  void run_before(util::Time until, const std::function<bool()>& look);
  /// A station without a device, which sends any frames. They are delivered in the next turn.
  void inject(const wire::Frame& frame) { stranger_->transmit(frame); }
  /// One turn of all devices, at this time.
  void turn() { (void)pass(); }
  /// Turns of all devices so far.
  std::uint64_t turns() const { return turns_; }
  /// Polls without letting a device work or time pass.
  std::size_t poll(driver::verbs::CompletionQueue& cq, std::span<driver::Completion> out);

 private:
  util::Time run(util::Time now) override;

  std::uint64_t turns_ = 0;
  bool only_polls_ = false;
  WireHash hash_{*this};
  std::unique_ptr<fabric::Port> stranger_ = network().create_port("stranger");
};

}  // namespace softhca::bad_network
