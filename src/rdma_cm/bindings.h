// Binds identifiers to source addresses and port numbers (kernel interface 8.2, 8.4).
//
// Identifiers of one process share a port number by Linux's rules (cma_check_port) in these cases:
// - they have different addresses;
// - 0.0.0.0 and :: serve one IP version each;
// - both ask to share it, until one of them listens.
// Other processes see a number as owned by one process.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "rdma_cm/identifiers.h"
#include "rdma_cm/options.h"
#include "rdma_cm/ports.h"

namespace softhca::rdma_cm {

class Bindings {
 public:
  Bindings(const Ports& ports, const Options& options, const Identifiers& identifiers);

  /// Binds an identifier to an address, and claims the address's port number, or a free one if that
  /// is 0.
  Errno bind(Identifier& id, const SocketAddress& address);
  /// Checks a port number against the other identifiers of this process.
  Errno check_port(const Identifier& id, bool reuses) const;
  /// Makes peers' requests for an identifier's service reach this process. ENOMEM: too many
  /// listeners. @pre it is bound
  Errno listen(const Identifier& id) const;
  /// Releases the port number.
  void release(Identifier& id, util::Time now);
  /// Until when a program will probably listen on a port number again, in any port space. Nothing:
  /// it will not.
  std::optional<util::Time> returns_until(std::uint16_t port, util::Time now) const;

 private:
  /// Claims the port number of its address, or a free one.
  Errno claim(Identifier& id);
  Errno claim_any(Identifier& id);
  /// Another identifier of this process with the same number.
  const Identifier* other_owner(const Identifier& id) const;

  const Ports& ports_;
  const Options& options_;
  const Identifiers& identifiers_;
  std::uint16_t last_port_;
  std::map<std::uint16_t, util::Time> left_;  ///< port numbers likely to be listened on again
};

}  // namespace softhca::rdma_cm
