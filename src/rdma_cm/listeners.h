// The listeners, and the requests of peers that reach them.
#pragma once

#include <cstdint>
#include <vector>

#include "cm/connections.h"
#include "cm/services.h"
#include "cm/wakeup.h"
#include "rdma_cm/bindings.h"
#include "rdma_cm/identifiers.h"
#include "rdma_cm/ports.h"
#include "rdma_cm/routes.h"

namespace softhca::rdma_cm {

class Listeners final : public cm::Services {
 public:
  Listeners(const Ports& ports, const Routes& routes, const Bindings& bindings,
            Identifiers& identifiers, cm::Connections& connections, cm::Wakeup& wakeup)
      : ports_(ports),
        routes_(routes),
        bindings_(bindings),
        identifiers_(identifiers),
        connections_(connections),
        wakeup_(wakeup) {}

  cm::Response take(const cm::Received& message, const cm::RequestView& request,
                    util::Time now) override;
  /// Handles held requests. `expired`: only those whose time is over; otherwise all, since a
  /// program listens again.
  void serve_held(bool expired, util::Time now);

 private:
  /// A request to a service for which the program may listen again soon.
  struct Held {
    cm::Received request;
    util::Time until;
  };

  Identifier* find(std::uint64_t service, unsigned port, const driver::Gid& to) const;
  bool hold(const cm::Received& message, const cm::RequestView& request, util::Time now);
  void accept_from(const cm::Received& message, const cm::RequestView& request, Identifier& its);

  const Ports& ports_;
  const Routes& routes_;
  const Bindings& bindings_;
  Identifiers& identifiers_;
  cm::Connections& connections_;
  cm::Wakeup& wakeup_;
  std::vector<Held> held_;
};

}  // namespace softhca::rdma_cm
