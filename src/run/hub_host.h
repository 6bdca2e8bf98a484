// A process's hub with its loop, its switch's capture, and its trunk to other machines.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/control_socket.h"
#include "fabric/capture.h"
#include "hub/block_file.h"
#include "hub/far_members.h"
#include "hub/hub.h"
#include "os/event_loop.h"
#include "run/trunk_options.h"
#include "util/result.h"

namespace softhca::run {

/// Options of a new hub.
struct FabricSetup {
  std::string pcap = {};  ///< file to capture to; empty: none
  std::optional<TrunkSetup> trunk = std::nullopt;
};

class HubHost {
 public:
  /// The hub listens at `directory`/hub.
  static util::Result<std::unique_ptr<HubHost>> create(const std::string& directory,
                                                       const FabricSetup& setup);
  /// The socket at which the hub answers softhca inspect, about kHub or kTrunk.
  static std::string control_path(const std::string& directory) { return directory + "/asked"; }
  static constexpr std::string_view kHub = "hub";
  static constexpr std::string_view kTrunk = "trunk";

  /// Waits a moment for the hubs to join. Returns a line for the user about the trunk; empty: there
  /// is none. Fails if a hub refuses.
  util::Result<std::string> await_others();

  os::EventLoop& events() { return *events_; }
  const hub::Hub& hub() const { return *hub_; }

 private:
  HubHost() = default;
  util::Result<void> create_trunk(const std::string& directory, const TrunkSetup& setup);
  util::Result<void> listen(const std::string& directory);
  std::string answer(std::string_view request) const;

  // Destroyed in the opposite order.
  std::unique_ptr<fabric::Capture> capture_;
  std::unique_ptr<os::EventLoop> events_;
  std::optional<hub::FarMembers> far_members_;
  std::optional<hub::BlockFile> blocks_;
  std::unique_ptr<trunk::UdpTrunk> trunk_;
  std::unique_ptr<control::ControlSocket> control_;
  std::unique_ptr<hub::Hub> hub_;
};

}  // namespace softhca::run
