#include "hub/cm_dispatch.h"

#include <algorithm>

namespace softhca::hub {
namespace {

using Attribute = CmMessage::Attribute;

constexpr unsigned kBlockShift = 24;

RoceBlock block_of(std::uint32_t number) { return static_cast<RoceBlock>(number >> kBlockShift); }

bool contains(std::span<const RoceBlock> members, RoceBlock block) {
  return std::ranges::find(members, block) != members.end();
}

}  // namespace

bool CmDispatch::listen(RoceBlock block, std::uint64_t service, util::Time now) {
  auto& services = services_of_[block];
  if (services.size() >= options_.listeners_max && !services.contains(service)) {
    drop_expired(block, now);
    if (services.size() >= options_.listeners_max) {
      ++counters_.refused;
      return false;
    }
  }
  const auto [at, is_new] = listeners_.try_emplace(service);
  auto& listener = at->second;
  if (!is_new && listener.block != block) {
    if (listener.until > now) {
      ++counters_.refused;
      return false;
    }
    services_of_[listener.block].erase(service);
  }
  listener = {.block = block, .until = util::kNever};
  services.insert(service);
  return true;
}

void CmDispatch::unlisten(RoceBlock block, std::uint64_t service, util::Time now) {
  const auto at = listeners_.find(service);
  if (at == listeners_.end() || at->second.block != block) return;
  if (at->second.until == util::kNever) at->second.until = now + kListensAgain;
}

void CmDispatch::drop_expired(RoceBlock block, util::Time now) {
  std::erase_if(services_of_[block], [&](std::uint64_t service) {
    const auto at = listeners_.find(service);
    if (at->second.until > now) return false;
    listeners_.erase(at);
    return true;
  });
}

void CmDispatch::forget(RoceBlock block) {
  if (const auto at = services_of_.find(block); at != services_of_.end()) {
    for (const auto service : at->second) listeners_.erase(service);
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

/// A repeated request goes where it went first: its connection is there, even if another process
/// listens by now.
CmDispatch::Target CmDispatch::find_listener(const wire::Gid& from, const CmMessage& message,
                                             Members members, util::Time now) {
  const RequestKey key{
      .from = from, .number = message.local, .datagram = message.attribute == Attribute::SIDR_REQ};
  const auto* const before = find_request(key, now);
  if (before != nullptr && before->service == message.service && contains(members, before->block)) {
    return {.block = before->block, .duplicate = true};
  }
  const auto at = listeners_.find(message.service);
  const bool listens =
      at != listeners_.end() && at->second.until > now && contains(members, at->second.block);
  if (!listens) return {.block = members.front(), .expected = false};
  return {.block = at->second.block};
}

CmDispatch::Target CmDispatch::find(const wire::Gid& from, const CmMessage& message,
                                    Members members, util::Time now) {
  if (members.empty()) return {};
  if (message.is_request()) return find_listener(from, message, members, now);
  if (message.remote == 0 && message.attribute == Attribute::REJ) {
    // The peer gives up a request before it has received this side's number (IBTA 12.6.7.2).
    const auto* const request = find_request({.from = from, .number = message.local}, now);
    if (request == nullptr || !contains(members, request->block)) return {};
    return {.block = request->block};
  }
  const auto block = block_of(message.remote);
  if (contains(members, block)) return {.block = block};
  // The peer of a process that has ended waits for a confirmation.
  if (message.attribute == Attribute::DREQ) return {.block = members.front(), .expected = false};
  return {};
}

std::optional<RoceBlock> CmDispatch::route(const wire::Gid& from, std::span<const std::byte> packet,
                                           Members members, util::Time now) {
  const auto message = CmMessage::parse(packet);
  if (!message || from.is_multicast()) {
    ++counters_.malformed;
    return std::nullopt;
  }
  const auto target = find(from, *message, members, now);
  if (target.block == 0) {
    ++counters_.unknown;
    return std::nullopt;
  }
  if (!(target.expected ? rates_ : unexpected_rates_).allow(from, now)) {
    ++counters_.over_rate;
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
