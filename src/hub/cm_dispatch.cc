#include "hub/cm_dispatch.h"

#include <algorithm>

#include "util/endian.h"

namespace softhca::hub {
namespace {

using Attribute = CmMessage::Attribute;

/// Bits of a communication ID below its block.
constexpr unsigned kIdShift = 24;

RoceBlock block_of_id(std::uint32_t number) { return static_cast<RoceBlock>(number >> kIdShift); }

/// Processes of one address have a rate each. A multicast GID, which is no peer's.
wire::Gid peer_of(const CmDispatch::Ends& ends) {
  if (ends.sender == 0) return ends.from;
  wire::Gid peer;
  peer.bytes.front() = std::byte{0xff};
  util::store_be32(peer.bytes.data() + 12, ends.sender);
  return peer;
}

bool contains(std::span<const RoceBlock> members, RoceBlock block) {
  return std::ranges::find(members, block) != members.end();
}

}  // namespace

bool CmDispatch::listen(RoceBlock block, const CmService& service, util::Time now) {
  auto& services = services_of_[block];
  if (services.size() >= options_.listeners_max && !services.contains(service)) {
    drop_ended(block);
    if (services.size() >= options_.listeners_max) {
      ++counters_.refused;
      return false;
    }
  }
  const auto [at, is_new] = listeners_.try_emplace({.service = service, .block = block});
  auto& listener = at->second;
  if (is_new || listener.until <= now) listener.since = ++listens_;
  listener.until = util::kNever;
  services.insert(service);
  return true;
}

void CmDispatch::unlisten(RoceBlock block, const CmService& service, util::Time now) {
  const auto at = listeners_.find({.service = service, .block = block});
  if (at == listeners_.end()) return;
  if (at->second.until == util::kNever) at->second.until = now + kListensAgain;
}

/// Forgets what the process no longer listens on.
void CmDispatch::drop_ended(RoceBlock block) {
  std::erase_if(services_of_[block], [&](const CmService& service) {
    const auto at = listeners_.find({.service = service, .block = block});
    if (at->second.until == util::kNever) return false;
    listeners_.erase(at);
    return true;
  });
}

void CmDispatch::forget(RoceBlock block) {
  if (const auto at = services_of_.find(block); at != services_of_.end()) {
    for (const auto& service : at->second) {
      listeners_.erase({.service = service, .block = block});
    }
    services_of_.erase(at);
  }
  std::erase_if(request_order_, [&](const RequestKey& key) {
    const auto at = requests_.find(key);
    if (at->second.block != block) return false;
    requests_.erase(at);
    return true;
  });
}

const CmDispatch::Request* CmDispatch::find_request(const RequestKey& key, util::Time now) const {
  const auto at = requests_.find(key);
  return at == requests_.end() || at->second.until <= now ? nullptr : &at->second;
}

void CmDispatch::remember(const RequestKey& key, const Request& request) {
  const auto [at, is_new] = requests_.insert_or_assign(key, request);
  if (!is_new) return;
  request_order_.push_back(key);
  if (request_order_.size() <= options_.requests_max) return;
  requests_.erase(request_order_.front());
  request_order_.pop_front();
}

/// The first of the processes that listen, or the last of those that may listen again. 0: none.
RoceBlock CmDispatch::find_listener(const CmService& service, Members members, util::Time now,
                                    bool lives) const {
  const ListenerKey* found = nullptr;
  const Listener* best = nullptr;
  for (auto at = listeners_.lower_bound({.service = service});
       at != listeners_.end() && at->first.service == service; ++at) {
    const auto& one = at->second;
    if ((one.until == util::kNever) != lives || one.until <= now) continue;
    if (!contains(members, at->first.block)) continue;
    const bool is_better =
        best == nullptr || (lives ? one.since < best->since : one.until > best->until);
    if (!is_better) continue;
    found = &at->first;
    best = &one;
  }
  return found == nullptr ? RoceBlock{0} : found->block;
}

/// The oldest process if there is none.
CmDispatch::Target CmDispatch::find_listener(std::uint64_t id, const wire::Gid& to, Members members,
                                             util::Time now) const {
  const auto family = to.is_ipv4() ? CmService::all_ipv4() : CmService::all_ipv6();
  for (const bool lives : {true, false}) {
    for (const auto& address : {to, family, CmService::all()}) {
      const CmService service{.id = id, .address = address};
      const auto block = find_listener(service, members, now, lives);
      if (block != 0) return {.block = block, .listens = lives};
    }
  }
  return {.block = members.front(), .expected = false};
}

/// A repeated request goes where it went first: its connection is there, even if another process
/// listens by now.
CmDispatch::Target CmDispatch::find_request_target(const Ends& ends, const CmMessage& message,
                                                   Members members, util::Time now) {
  const RequestKey key{.from = ends.from,
                       .number = message.local,
                       .datagram = message.attribute == Attribute::SIDR_REQ};
  const auto* const before = find_request(key, now);
  if (before != nullptr && before->service == message.service && contains(members, before->block)) {
    return {.block = before->block, .duplicate = true};
  }
  return find_listener(message.service, ends.to, members, now);
}

CmDispatch::Target CmDispatch::find(const Ends& ends, const CmMessage& message, Members members,
                                    util::Time now) {
  if (members.empty()) return {};
  if (message.is_request()) return find_request_target(ends, message, members, now);
  if (message.remote == 0 && message.attribute == Attribute::REJ) {
    // The peer gives up a request before it has received this side's number (IBTA 12.6.7.2).
    const auto* const request = find_request({.from = ends.from, .number = message.local}, now);
    if (request == nullptr || !contains(members, request->block)) return {};
    return {.block = request->block};
  }
  const auto block = block_of_id(message.remote);
  if (contains(members, block)) return {.block = block};
  // The peer of a process that has ended waits for a confirmation.
  if (message.attribute == Attribute::DREQ) return {.block = members.front(), .expected = false};
  return {};
}

/// Reads what processes have registered meanwhile, and searches again. A listener that was found
/// may have ended: its process alone shows that. False: so many have been read that the request
/// must wait.
bool CmDispatch::catch_up(const Ends& ends, const CmMessage& message, Members members,
                          util::Time now, Target& target) {
  for (RoceBlock read = 0; target.listens && target.block != read;) {
    read = target.block;
    options_.catch_up(std::span(&read, 1));
    target = find(ends, message, members, now);
  }
  if (target.listens) return true;
  if (!catch_up_rate_.allow({}, now, static_cast<std::uint32_t>(members.size()))) return false;
  options_.catch_up(members);
  target = find(ends, message, members, now);
  return true;
}

std::optional<RoceBlock> CmDispatch::route(const Ends& ends, std::span<const std::byte> packet,
                                           Members members, util::Time now) {
  const auto& from = ends.from;
  const auto message = CmMessage::parse(packet);
  if (!message || from.is_multicast()) {
    ++counters_.malformed;
    return std::nullopt;
  }
  auto target = find(ends, *message, members, now);
  if (target.block == 0) {
    ++counters_.unknown;
    return std::nullopt;
  }
  if (!(target.expected ? rates_ : unexpected_rates_).allow(peer_of(ends), now)) {
    ++counters_.over_rate;
    return std::nullopt;
  }
  const bool is_new = message->is_request() && !target.duplicate;
  if (is_new && options_.catch_up && !catch_up(ends, *message, members, now, target)) {
    ++counters_.unread;
    return std::nullopt;
  }
  ++counters_.forwarded;
  if (target.duplicate) ++counters_.duplicates;
  if (!target.expected) ++counters_.unexpected;
  if (message->is_request() && target.expected && !target.duplicate) {
    remember({.from = from,
              .number = message->local,
              .datagram = message->attribute == Attribute::SIDR_REQ},
             {.service = message->service, .block = target.block, .until = now + kRemembered});
  }
  return target.block;
}

}  // namespace softhca::hub
