// The commands of the device file (kernel interface 8.1, 8.2), each a structure of rdma_user_cm.h.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>

#include "cm/connections.h"
#include "rdma_cm/bindings.h"
#include "rdma_cm/channel.h"
#include "rdma_cm/identifiers.h"
#include "rdma_cm/listeners.h"
#include "rdma_cm/memberships.h"
#include "rdma_cm/ports.h"
#include "rdma_cm/resolver.h"
#include "rdma_cm/routes.h"
#include "uverbs/user_memory.h"

namespace softhca::rdma_cm {

namespace spec = softhca::spec::infiniband;

/// Reads a command of the program. Missing bytes at its end are 0.
template <class T>
T take(std::span<const std::byte> in) {
  T value{};
  std::memcpy(&value, in.data(), std::min(sizeof value, in.size()));
  return value;
}

/// A command that the program writes to a channel.
struct Call {
  /// Writes as much of the answer as the program's buffer holds: old libraries know fewer members.
  template <class T>
  Errno answer(std::uint64_t address, const T& value) const {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return memory.write(address, bytes.first(std::min(bytes.size(), room))) ? 0 : EFAULT;
  }

  Channel& channel;
  const uverbs::UserMemory& memory;
  const std::function<Channel*(int)>& other;  ///< finds the channel behind a descriptor
  util::Time now;
  std::span<const std::byte> in = {};  ///< the command's structure
  std::size_t room = 0;                ///< bytes for the answer
};

/// Commands of identifiers and their events.
class IdentifierCommands {
 public:
  IdentifierCommands(const Ports& ports, Identifiers& identifiers, Bindings& bindings,
                     cm::Connections& connections, Memberships& memberships)
      : ports_(ports),
        identifiers_(identifiers),
        bindings_(bindings),
        connections_(connections),
        memberships_(memberships) {}

  Errno create_id(const Call& call);
  Errno destroy_id(const Call& call);
  Errno query(const Call& call);
  Errno get_event(const Call& call);
  Errno write_event(const Call& call);
  Errno migrate_id(const Call& call);

  void erase(std::uint32_t number, util::Time now);

 private:
  Errno query_path(const Call& call, const Identifier& id, std::uint64_t response) const;
  std::uint32_t drop_events(Identifier& id, util::Time now);

  const Ports& ports_;
  Identifiers& identifiers_;
  Bindings& bindings_;
  cm::Connections& connections_;
  Memberships& memberships_;
};

/// Commands that give an identifier its addresses: bind to a source, resolve a destination (kernel
/// interface 8.2, 8.4).
class AddressCommands {
 public:
  AddressCommands(const Identifiers& identifiers, Bindings& bindings, const Routes& routes,
                  Resolver& resolver)
      : identifiers_(identifiers), bindings_(bindings), routes_(routes), resolver_(resolver) {}

  Errno bind(const Call& call);
  Errno resolve_addr(const Call& call);
  Errno resolve_route(const Call& call);

 private:
  const Identifiers& identifiers_;
  Bindings& bindings_;
  const Routes& routes_;
  Resolver& resolver_;
};

/// Commands of a connection, from listen and connect to disconnect (kernel interface 8.2).
class ConnectionCommands {
 public:
  ConnectionCommands(const Identifiers& identifiers, Bindings& bindings, const Routes& routes,
                     cm::Connections& connections, Listeners& listeners)
      : identifiers_(identifiers),
        bindings_(bindings),
        routes_(routes),
        connections_(connections),
        listeners_(listeners) {}

  Errno connect(const Call& call);
  Errno listen(const Call& call);
  Errno accept(const Call& call);
  Errno reject(const Call& call);
  Errno disconnect(const Call& call);
  Errno init_qp_attr(const Call& call);
  Errno notify(const Call& call);

 private:
  Errno accept_request(Identifier& id, const rdma_ucm_conn_param& param, const rdma_ucm_ece& ece,
                       util::Time now);
  /// Returns EINVAL.
  Errno fail_to_accept(Identifier& id);

  const Identifiers& identifiers_;
  Bindings& bindings_;
  const Routes& routes_;
  cm::Connections& connections_;
  Listeners& listeners_;
};

/// The options of an identifier (rdma_set_option(3)), with Linux's checks.
class OptionCommands {
 public:
  OptionCommands(const Identifiers& identifiers, Resolver& resolver)
      : identifiers_(identifiers), resolver_(resolver) {}

  Errno set_option(const Call& call);

 private:
  Errno set_path(Identifier& id, std::span<const std::byte> value);

  const Identifiers& identifiers_;
  Resolver& resolver_;
};

/// Multicast groups by address (kernel interface 8.2). RoCE needs no join message: the group's GID
/// follows from the address. The QP itself joins (ATTACH_MCAST), which librdmacm requests on the
/// event.
class MulticastCommands {
 public:
  MulticastCommands(const Ports& ports, Identifiers& identifiers, Memberships& memberships)
      : ports_(ports), identifiers_(identifiers), memberships_(memberships) {}

  Errno join_ip_multicast(const Call& call);
  Errno join_multicast(const Call& call);
  Errno leave_multicast(const Call& call);

 private:
  Errno join(const Call& call, std::uint32_t number, std::uint64_t uid, const SocketAddress& group,
             std::uint64_t response);
  cm::LocalAddress source_for(const Identifier& id, const SocketAddress& group) const;

  const Ports& ports_;
  Identifiers& identifiers_;
  Memberships& memberships_;
};

/// All commands by number.
class Commands {
 public:
  Commands(const Ports& ports, const Routes& routes, Identifiers& identifiers, Bindings& bindings,
           Resolver& resolver, cm::Connections& connections, Listeners& listeners)
      : of_identifiers_(ports, identifiers, bindings, connections, memberships_),
        of_addresses_(identifiers, bindings, routes, resolver),
        of_connections_(identifiers, bindings, routes, connections, listeners),
        of_options_(identifiers, resolver),
        of_groups_(ports, identifiers, memberships_) {}

  /// Serves a write() of `size` bytes at `address`, and sets in and room of `call`. Returns 0 or an
  /// errno.
  Errno serve(Call call, std::uint64_t address, std::size_t size);
  /// Destroys an identifier.
  void erase(std::uint32_t number, util::Time now) { of_identifiers_.erase(number, now); }

 private:
  struct Command;
  static const Command* find(std::uint32_t number);

  Memberships memberships_;
  IdentifierCommands of_identifiers_;
  AddressCommands of_addresses_;
  ConnectionCommands of_connections_;
  OptionCommands of_options_;
  MulticastCommands of_groups_;
};

}  // namespace softhca::rdma_cm
