// The switches of a server, by the argument of --port, what joins them to other networks, and the
// links of their ports that fail by rules.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/capture.h"
#include "fabric/faulty_link.h"
#include "fabric/switch.h"
#include "os/event_loop.h"
#include "run/keeper.h"
#include "server/fabric_link.h"
#include "server/host_port.h"
#include "subnet/subnet.h"
#include "util/inspect.h"
#include "util/result.h"
#include "vfio_user/serve_loop.h"

namespace softhca::server {

// Forms of --port.
inline constexpr std::string_view kFabric = "fabric:";  ///< the switch is connected to a hub
inline constexpr std::string_view kTap = "tap:";        ///< to a network of the host
inline constexpr std::string_view kPacket = "packet:";

inline bool is_of_host(std::string_view port) {
  return port.starts_with(kTap) || port.starts_with(kPacket);
}

/// Fails if --port has no such form.
util::Result<void> check_port(std::string_view port);

/// All switches, as one fabric for the loop.
class Switches final : public vfio_user::Fabric {
 public:
  /// The switch of this name, created at its first use with that link type. Null: it has another
  /// link type.
  fabric::Switch* named(const std::string& name, wire::Link link, fabric::Capture* capture);
  /// Connects the switch of this name to a hub.
  util::Result<void> join(os::EventLoop& loop, const std::string& name, run::FabricMember member,
                          fabric::Capture* capture);
  /// Connects the switch of this name to the network of the host that the name says.
  /// @pre is_of_host(name)
  util::Result<void> attach(os::EventLoop& loop, const std::string& name, fabric::Capture* capture);
  /// The port to a network of the host; null: the switch has none.
  const HostPort* host_port(const std::string& name) const;
  bool has_host_ports() const;
  /// Adds a link whose frames may wait. @pre it outlives the loop's turns
  void add(fabric::FaultyLink& link) { links_.push_back(&link); }

  bool has_frames() override;
  void deliver(std::size_t frames) override;
  std::int64_t take_work() override;
  util::Time pass_time(util::Time now) override;

  /// Shows the ports to networks of the host.
  void inspect(util::InspectNode& out) const;

 private:
  struct One {
    fabric::Switch network;
    std::optional<subnet::Subnet> subnet;  ///< of an InfiniBand link
    std::unique_ptr<FabricLink> hub;       ///< null: no hub
    std::unique_ptr<HostPort> host;        ///< null: no network of the host
  };
  std::map<std::string, std::unique_ptr<One>> by_name_;
  std::vector<fabric::FaultyLink*> links_;
};

}  // namespace softhca::server
