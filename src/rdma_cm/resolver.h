// Resolves the destinations of identifiers, and reports the results to the program.
#pragma once

#include <optional>
#include <set>

#include "cm/wakeup.h"
#include "rdma_cm/identifiers.h"
#include "rdma_cm/options.h"
#include "rdma_cm/ports.h"
#include "rdma_cm/routes.h"

namespace softhca::rdma_cm {

class Resolver {
 public:
  Resolver(const Ports& ports, const Options& options, const Routes& routes,
           const Identifiers& identifiers, cm::Wakeup& wakeup)
      : ports_(ports),
        options_(options),
        routes_(routes),
        identifiers_(identifiers),
        wakeup_(wakeup) {}

  /// Resolves id.destination now, or until `timeout` has passed.
  void resolve_address(Identifier& id, util::Duration timeout, util::Time now);
  /// @pre the address is resolved
  void resolve_route(Identifier& id);
  /// Polls for resolved addresses, since no event reports them.
  void tick(util::Time now);
  /// Sets the wakeup for all destinations that are not resolved yet.
  void set_wakeup() const;

 private:
  /// Records the GID of its destination, and notifies the program.
  void be_resolved(Identifier& id, const driver::Gid& peer);
  void wait_for_address(Identifier& id, util::Time now);
  void ask(Identifier& id, util::Time now);
  /// The program that has the port number at the destination, an address of another machine.
  std::optional<driver::Gid> find_service(const Identifier& id) const;

  const Ports& ports_;
  const Options& options_;
  const Routes& routes_;
  const Identifiers& identifiers_;
  cm::Wakeup& wakeup_;
  std::set<std::uint32_t> resolving_;  ///< identifiers that await their destination's address
};

}  // namespace softhca::rdma_cm
