// A process's hub with its loop and its switch's capture.
#pragma once

#include <memory>
#include <string>

#include "fabric/capture.h"
#include "hub/hub.h"
#include "os/event_loop.h"
#include "util/result.h"

namespace softhca::run {

class HubHost {
 public:
  /// The hub listens at `directory`/hub. `pcap`: a file to capture to; empty: none.
  static util::Result<std::unique_ptr<HubHost>> create(const std::string& directory,
                                                       const std::string& pcap);

  os::EventLoop& events() { return *events_; }
  const hub::Hub& hub() const { return *hub_; }

 private:
  HubHost() = default;

  // Destroyed in the opposite order.
  std::unique_ptr<fabric::Capture> capture_;
  std::unique_ptr<os::EventLoop> events_;
  std::unique_ptr<hub::Hub> hub_;
};

}  // namespace softhca::run
