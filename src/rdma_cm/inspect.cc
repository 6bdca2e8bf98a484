// The report of a program's identifiers for softhca inspect.
#include <fmt/format.h>

#include "rdma_cm/manager.h"
#include "wire/address_text.h"

namespace softhca::rdma_cm {
namespace {

std::string_view name_of(cm::State state) {
  switch (state) {
    case cm::State::kIdle:
      return "idle";
    case cm::State::kReqSent:
      return "request sent";
    case cm::State::kReqRcvd:
      return "request received";
    case cm::State::kRepSent:
      return "reply sent";
    case cm::State::kRepRcvd:
      return "reply received";
    case cm::State::kEstablished:
      return "established";
    case cm::State::kDreqSent:
      return "disconnect sent";
    case cm::State::kDreqRcvd:
      return "disconnect received";
    case cm::State::kTimeWait:
      return "time wait";
    case cm::State::kOver:
      return "over";
  }
  return "";
}

std::string_view state_of(const Identifier& id) {
  switch (id.state) {
    case State::kListening:
      return "listening";
    case State::kResolving:
      return "resolving";
    case State::kResolved:
      return "resolved";
    case State::kRouteResolved:
      return "route resolved";
    case State::kIdle:
    case State::kConnecting:
      return name_of(id.connection.state);
  }
  return "";
}

/// "198.18.0.1:7174" or "[::]:7174"; "none" before it is bound.
std::string text_of(const SocketAddress& address) {
  if (address.family() != AF_INET && address.family() != AF_INET6) return "none";
  const auto ip = wire::text_of(address.gid());
  return address.family() == AF_INET ? fmt::format("{}:{}", ip, address.port())
                                     : fmt::format("[{}]:{}", ip, address.port());
}

void list(const Identifiers& ids, util::Inspection& out) {
  const auto find = [&ids](std::uint64_t number) -> const Identifier* {
    return ids.find(static_cast<std::uint32_t>(number));
  };
  const auto show = [](const Identifier& id, util::InspectNode& list) {
    auto& node = list.child(fmt::format("id {}", id.number));
    node.add("state", state_of(id));
    node.add("source", text_of(id.source));
    node.add("destination", text_of(id.destination));
    node.add_hex("port_space", id.port_space);
    node.add_hex("qpn", id.connection.qp.local_qpn);
    node.add_hex("remote_qpn", id.connection.qp.remote_qpn);
  };
  out.list({.name = "identifiers",
            .end = std::uint64_t{ids.last_number()} + 1,
            .count = ids.all().size()},
           find, show);
}

}  // namespace

void Manager::inspect(util::Inspection& out) const { list(identifiers_, out); }

bool inspect(const Manager* manager, std::string_view function, util::Inspection& out) {
  constexpr std::string_view kName = "rdma_cm";
  if (function.empty()) {
    if (manager != nullptr) out.group(kName, [&] { manager->inspect(out); });
    return true;
  }
  if (function != kName) return false;
  if (manager != nullptr) {
    manager->inspect(out);
  } else {
    cm::ConnectionTable none;
    list(Identifiers(none), out);
  }
  return true;
}

}  // namespace softhca::rdma_cm
