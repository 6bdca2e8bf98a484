// `softhca serve --port fabric:NAME`: connects a switch of the server to the hub of `softhca run
// --fabric NAME`, so that guests and programs of the host share a network.
#pragma once

#include <memory>
#include <string>

#include "fabric/ring_port.h"
#include "fabric/switch.h"
#include "hub/join.h"
#include "os/event_loop.h"
#include "run/keeper.h"
#include "util/result.h"

namespace softhca::server {

class FabricLink {
 public:
  /// `loop` and `network` must outlive it. Programs of the host are not trusted, so the frames
  /// taken from the hub in one turn of the loop are limited.
  static util::Result<std::unique_ptr<FabricLink>> create(os::EventLoop& loop,
                                                          fabric::Switch& network,
                                                          const std::string& name,
                                                          run::FabricMember member);
  ~FabricLink();
  FabricLink(const FabricLink&) = delete;
  FabricLink& operator=(const FabricLink&) = delete;

  /// To be called after frames were delivered: wakes the hub if it has new frames, and releases the
  /// frames that came from it.
  void settle();

 private:
  FabricLink(os::EventLoop& loop, fabric::Switch& network, std::string name,
             run::FabricMember member, hub::Joined joined);
  util::Result<void> watch();
  void handle_socket();
  void receive();
  void leave();

  os::EventLoop& loop_;
  const std::string name_;
  run::FabricMember member_;
  hub::Joined joined_;
  fabric::RingPort link_;
  os::EventLoop::Notice more_;  ///< frames may remain for the next turn
};

}  // namespace softhca::server
