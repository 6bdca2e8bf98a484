#include "hub/shared_addresses.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <utility>
#include <vector>

#include "hub/fd_message.h"
#include "hub/roce_refusal.h"
#include "os/kept_fd.h"

namespace softhca::hub {
namespace {

using RequestKind = Request::Kind;

/// False: the socket takes nothing now. A request is so short that it is never sent in part.
bool say(int socket, const Request& request) {
  std::array<std::byte, Request::kSizeMax> room;
  const auto bytes = request.write(room);
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

bool say(int socket, RequestKind kind, const CmService& service) {
  return say(socket, {.kind = kind, .address = service.address, .service = service.id});
}

RoceRefusal refusal_of(const RoceAnswer& answer) {
  return {.kind = static_cast<RoceRefusal::Kind>(answer.refusal),
          .error = answer.error,
          .holder = answer.holder};
}

util::Result<Sharing> ask(int socket) {
  if (!say(socket, {.kind = RequestKind::kShare})) return util::fail_errno("hub: send");
  RoceAnswer answer;
  const auto received =
      receive_message(socket, std::as_writable_bytes(std::span(&answer, 1)), {}, MSG_WAITALL);
  if (received == Received::kNothing && errno == EAGAIN) {
    return util::fail("hub: it does not answer (is softhca-hub stopped?)");
  }
  if (received != Received::kMessage || answer.number != 0) {
    return util::fail("hub: it has ended, or is of another version of softhca");
  }
  if (const auto refusal = refusal_of(answer)) return util::fail(refusal.explain({}));
  return Sharing{.block = answer.block, .station = answer.station};
}

}  // namespace

util::Result<Sharing> share(const Joined& joined) {
  try {
    return ask(joined.socket.get());
  } catch (const std::exception&) {
    return util::fail("no memory");  // short enough to need no allocation
  }
}

void SharedAddresses::set_addresses(std::span<const wire::Gid> addresses) {
  for (auto& [address, place] : places_) {
    const bool is_back =
        !std::exchange(place.is_wanted, std::ranges::find(addresses, address) != addresses.end()) &&
        place.is_wanted;
    // Its user has closed the socket, and the hub does not know yet that it was left.
    if (is_back && place.state == State::kGranted && !place.socket) place.state = State::kNew;
  }
  for (const auto& address : addresses) places_.try_emplace(address);
  has_requests_ = true;  // also those whose pause is over
}

util::Result<UniqueFd> SharedAddresses::take_socket(const wire::Gid& address) {
  const auto at = places_.find(address);
  if (at == places_.end()) return UniqueFd();
  if (at->second.state == State::kRefused) return util::fail(at->second.reason);
  return std::move(at->second.socket);
}

bool SharedAddresses::listen(const CmService& service) {
  if (listeners_.size() >= CmDispatch::kListenersMax && !listeners_.contains(service)) return false;
  ++listeners_[service];
  return has_requests_ = true;
}

void SharedAddresses::unlisten(const CmService& service) {
  const auto at = listeners_.find(service);
  if (at == listeners_.end() || --at->second != 0) return;
  listeners_.erase(at);
  has_requests_ = true;
}

/// False: the socket takes nothing now.
bool SharedAddresses::send_all(int socket) {
  if (!send_listeners(socket)) return false;
  for (auto at = places_.begin(); at != places_.end();) {
    auto& [address, place] = *at;
    if (!send_place(socket, address, place)) return false;
    const bool is_left = !place.is_wanted && place.state != State::kAsked;
    at = is_left ? places_.erase(at) : std::next(at);
  }
  return true;
}

/// The end of a listener first: the hub bounds their number.
bool SharedAddresses::send_listeners(int socket) {
  for (auto at = reported_.begin(); at != reported_.end();) {
    if (listeners_.contains(*at)) {
      ++at;
      continue;
    }
    if (!say(socket, RequestKind::kUnlisten, *at)) return false;
    at = reported_.erase(at);
  }
  for (const auto& [service, count] : listeners_) {
    if (reported_.contains(service)) continue;
    if (!say(socket, RequestKind::kListen, service)) return false;
    reported_.insert(service);
  }
  return true;
}

/// False: the socket takes nothing now.
bool SharedAddresses::send_place(int socket, const wire::Gid& address, Place& place) {
  const bool is_known = place.state == State::kGranted || place.state == State::kRefused;
  if (!place.is_wanted) {
    return !is_known || say(socket, {.kind = RequestKind::kLeaveAddress, .address = address});
  }
  const bool asks =
      place.state == State::kNew || (place.state == State::kRefused && clock_() >= place.again);
  if (!asks) return true;
  if (!say(socket, {.kind = RequestKind::kJoinAddress, .address = address})) return false;
  place.state = State::kAsked;
  asked_.push_back(address);
  return true;
}

void SharedAddresses::handle_answer(const RoceAnswer& answer, UniqueFd socket) {
  if (asked_.empty()) return;
  const auto address = asked_.front();
  asked_.pop_front();
  has_news_ = true;
  auto& place = places_[address];
  has_requests_ |= !place.is_wanted;
  const auto refusal = refusal_of(answer);
  if (!refusal && socket) {
    place.state = State::kGranted;
    place.socket = os::keep(std::move(socket));
    place.pause = kFirstPause;
    return;
  }
  place.state = State::kRefused;
  place.reason = refusal ? refusal.explain(address) : "hub: a descriptor is missing (ulimit -n?)";
  place.again = clock_() + place.pause;
  place.pause = std::min(2 * place.pause, kLongestPause);
}

}  // namespace softhca::hub
