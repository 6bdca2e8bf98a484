// The rules by which a device's link fails: those of the run (`softhca run --fault`), and that of
// --loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "door/card/frame_loss.h"
#include "fabric/faulty_link.h"
#include "fabric/network_faults.h"
#include "fabric/shared_faults.h"
#include "util/clock.h"
#include "util/time_source.h"

namespace softhca::door {

class LinkFaults {
 public:
  struct Options {
    std::string name;     ///< of the device, as rules call it
    unsigned number = 0;  ///< on the hub: each device of a run loses different frames
    FrameLoss loss = {};
    std::string rules = {};  ///< the file of the run's rules; empty: none
    util::TimeSource clock = util::monotonic_now;
  };
  /// For the link of `below`, which must outlive it. Null: no rule can come.
  static std::unique_ptr<LinkFaults> create(fabric::Port& below, Options options);

  /// The port in front of `below`.
  fabric::Port& port() { return link_; }
  /// Follows the rules, and sends and delivers frames that have waited until `now`: at most `room`
  /// to be sent. If more have than a turn takes, next_event() is past.
  void pass_time(util::Time now, std::size_t room = SIZE_MAX);
  /// Most frames that go out with one packet that the device sends.
  std::size_t frames_per_packet() const { return link_.frames_per_packet(); }
  /// When the next frame has waited.
  util::Time next_event() const { return link_.next_event(); }
  /// The state of the link if a rule has changed it since the last call.
  std::optional<bool> see_change();

 private:
  LinkFaults(fabric::Port& below, const Options& options)
      : rules_(options.clock), link_(below, rules_, options.name, options.number) {}

  fabric::NetworkFaults rules_;
  fabric::FaultyLink link_;
  std::unique_ptr<fabric::FaultReader> reader_;  ///< null: the run has no rules
  bool was_up_ = true;                           ///< as of the last see_change()
};

}  // namespace softhca::door
