// A link that fails by rules between a recording port and a recorder, on virtual time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/faulty_link.h"
#include "fabric/recorder.h"

namespace softhca::fabric {

class FaultyLinkTest : public testing::Test {
 protected:
  FaultyLinkTest() { link_.set_receiver(&receiver_); }

  NetworkFaults::Id add(std::string_view rule) { return faults_.add(parse_fault(rule).value()); }
  const NetworkFaults::Counters& counters(NetworkFaults::Id id) {
    return *faults_.find(id)->counters;
  }
  /// Sends frames of these texts.
  void send(const std::vector<std::string>& texts) {
    for (const auto& text : texts) link_.transmit(frame_of(kB, kA, texts_.emplace_back(text)));
  }
  void receive(const std::vector<std::string>& texts) {
    for (const auto& text : texts) {
      below_.receiver->handle_frame(frame_of(kA, kB, texts_.emplace_back(text)));
    }
  }
  /// Lets time pass to this moment, with all events before it.
  void pass_to(util::Duration end) {
    while (link_.next_event() <= util::Time(end)) {
      now_ = std::max(now_, link_.next_event());
      link_.handle_timeout(now_);
    }
    now_ = util::Time(end);
  }

  util::Time now_{};
  RecordingPort below_;
  Recorder receiver_;
  std::deque<std::string> texts_;
  NetworkFaults faults_{[this] { return now_; }};
  FaultyLink link_{below_, faults_, "a", 0};
};

}  // namespace softhca::fabric
