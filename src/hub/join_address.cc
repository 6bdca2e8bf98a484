// A process's requests to the hub for RoCEv2 by UDP: request.h.
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <exception>
#include <span>
#include <utility>

#include "hub/fd_message.h"
#include "hub/join.h"
#include "hub/request.h"
#include "hub/roce_refusal.h"
#include "os/kept_fd.h"

namespace softhca::hub {
namespace {

bool say(int socket, const Request& request) {
  std::array<std::byte, Request::kSizeMax> room;
  const auto bytes = request.write(room);
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

util::Result<JoinedAddress> ask(int socket, const wire::Gid& address) {
  if (!say(socket, {.kind = Request::Kind::kJoinAddress, .address = address, .service = 0})) {
    return util::fail_errno("hub: send");
  }
  RoceAnswer answer;
  std::array<UniqueFd, 1> fds;
  const auto received =
      receive_message(socket, std::as_writable_bytes(std::span(&answer, 1)), fds, MSG_WAITALL);
  const bool whole = received == Received::kMessage || received == Received::kFdsMissing;
  if (received == Received::kNothing && errno == EAGAIN) {
    return util::fail("hub: it does not answer (is softhca-hub stopped?)");
  }
  if (!whole || answer.number != 0) {
    return util::fail("hub: it has ended, or is of another version of softhca");
  }
  const RoceRefusal refusal{.kind = static_cast<RoceRefusal::Kind>(answer.refusal),
                            .error = answer.error,
                            .holder = answer.holder};
  if (refusal) return util::fail(refusal.explain(address));
  if (received == Received::kFdsMissing) {
    return util::fail("hub: a descriptor is missing (ulimit -n?)");
  }
  return JoinedAddress{.socket = os::keep(std::move(fds[0])), .block = answer.block};
}

}  // namespace

util::Result<JoinedAddress> join_address(const Joined& joined, const wire::Gid& address) {
  try {
    return ask(joined.socket.get(), address);
  } catch (const std::exception&) {
    return util::fail("no memory");  // short enough to need no allocation
  }
}

bool listen(const Joined& joined, std::uint64_t service) {
  return say(joined.socket.get(),
             {.kind = Request::Kind::kListen, .address = {}, .service = service});
}

bool unlisten(const Joined& joined, std::uint64_t service) {
  return say(joined.socket.get(),
             {.kind = Request::Kind::kUnlisten, .address = {}, .service = service});
}

}  // namespace softhca::hub
