#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstring>

#include "rdma_cm/commands.h"

namespace softhca::rdma_cm {
namespace {

SocketAddress address_of(const __kernel_sockaddr_storage& from) {
  SocketAddress to;
  static_assert(sizeof to.storage == sizeof from);
  std::memcpy(&to.storage, &from, sizeof from);
  return to;
}

/// Whether a command gives the size of its address.
bool has_size(const SocketAddress& address, std::uint16_t size) {
  return size != 0 && size == address.size();
}

}  // namespace

Errno AddressCommands::bind(const Call& call) {
  const auto command = take<rdma_ucm_bind>(call.in);
  const auto address = address_of(command.addr);
  if (command.reserved != 0 || !has_size(address, command.addr_size)) return EINVAL;
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  return bindings_.bind(*id, address);
}

Errno AddressCommands::resolve_addr(const Call& call) {
  const auto command = take<rdma_ucm_resolve_addr>(call.in);
  const auto destination = address_of(command.dst_addr);
  auto source = address_of(command.src_addr);
  if (command.reserved != 0 || !has_size(destination, command.dst_size)) return EINVAL;
  if (command.src_size != 0 && !has_size(source, command.src_size)) return EINVAL;
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  if (id->state != State::kIdle) return EINVAL;
  if (!id->has_source()) {
    if (source.size() == 0) {
      source = SocketAddress::any(destination.family());
      source.take_scope(destination);
    }
    if (const auto wrong = bindings_.bind(*id, source); wrong != 0) return wrong;
  }
  if (id->source.family() != destination.family()) return EINVAL;
  if (destination.family() == kFamilyIb) return ENODEV;  // cma_resolve_ib_dev
  if (const auto wrong = routes_.check(*id, destination); wrong != 0) return wrong;
  id->destination = destination;
  resolver_.resolve_address(*id, std::chrono::milliseconds(command.timeout_ms), call.now);
  return 0;
}

Errno AddressCommands::resolve_route(const Call& call) {
  const auto command = take<rdma_ucm_resolve_route>(call.in);
  Identifier* id = nullptr;
  if (const auto wrong = identifiers_.find(call.channel, command.id, id); wrong != 0) return wrong;
  if (command.timeout_ms == 0 || id->state != State::kResolved) return EINVAL;
  resolver_.resolve_route(*id);
  return 0;
}

}  // namespace softhca::rdma_cm
