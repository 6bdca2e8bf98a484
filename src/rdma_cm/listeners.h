// Requests of other communication managers (REQ and SIDR_REQ), and the listeners that receive them.
#pragma once

#include <cstdint>
#include <vector>

#include "rdma_cm/bindings.h"
#include "rdma_cm/connections.h"
#include "rdma_cm/identifiers.h"
#include "rdma_cm/ports.h"
#include "rdma_cm/routes.h"
#include "rdma_cm/wakeup.h"

namespace softhca::rdma_cm {

class RequestView;

class Listeners {
 public:
  Listeners(const Ports& ports, const Routes& routes, const Bindings& bindings,
            Identifiers& identifiers, Connections& connections, Wakeup& wakeup)
      : ports_(ports),
        routes_(routes),
        bindings_(bindings),
        identifiers_(identifiers),
        connections_(connections),
        wakeup_(wakeup) {}

  /// Handles a SIDR_REQ if `datagram`, otherwise a REQ.
  void receive(const Received& message, bool datagram, util::Time now);
  /// Handles held requests. `expired`: only those whose time is over; otherwise all, since a
  /// program listens again.
  void serve_held(bool expired, util::Time now);

 private:
  /// A request to a service for which the program may listen again soon.
  struct Held {
    Received request;
    bool datagram;
    util::Time until;
  };
  enum class Refusal : std::uint8_t { kNoService, kByListener };

  Identifier* find(std::uint64_t service, unsigned port, const driver::Gid& to) const;
  void refuse(const Received& message, const RequestView& request, Refusal why);
  bool hold(const Received& message, const RequestView& request, util::Time now);
  Identifier& accept_from(const Received& message, const RequestView& request, Identifier& its);

  const Ports& ports_;
  const Routes& routes_;
  const Bindings& bindings_;
  Identifiers& identifiers_;
  Connections& connections_;
  Wakeup& wakeup_;
  std::vector<Held> held_;
};

}  // namespace softhca::rdma_cm
