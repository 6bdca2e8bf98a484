// `softhca serve --port fabric:NAME`: joins a switch of the server to the hub of `softhca run
// --fabric NAME`, so that guests and programs of the host are on one network.
#pragma once

#include <memory>
#include <string>

#include "cli/run/keeper.h"
#include "fabric/ring_port.h"
#include "fabric/switch.h"
#include "hub/join.h"
#include "util/event_loop.h"
#include "util/result.h"

namespace softhca::cli {

class FabricLink {
 public:
  /// `loop` and `network` outlive it. Programs of the host are not trusted: what one turn of the
  /// loop takes from the hub is limited.
  static util::Result<std::unique_ptr<FabricLink>> create(util::EventLoop& loop,
                                                          fabric::Switch& network,
                                                          const std::string& name,
                                                          FabricMember member);
  ~FabricLink();
  FabricLink(const FabricLink&) = delete;
  FabricLink& operator=(const FabricLink&) = delete;

  /// After frames were delivered: the hub is told of those that were for it, and gets the room of
  /// those that came from it.
  void settle();

 private:
  FabricLink(util::EventLoop& loop, fabric::Switch& network, std::string name, FabricMember member,
             hub::Joined joined);
  util::Result<void> watch();
  void handle_socket();
  void receive();
  void leave();

  util::EventLoop& loop_;
  const std::string name_;
  FabricMember member_;
  hub::Joined joined_;
  fabric::RingPort link_;
  util::EventLoop::Notice more_;  ///< frames may be left for the next turn
};

}  // namespace softhca::cli
