// Requests of a process for its sockets of shared addresses, one after the other.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <span>
#include <utility>

#include "hub/cm_packets.h"
#include "hub/fd_message.h"
#include "hub/join.h"
#include "hub/request.h"
#include "hub/roce_refusal.h"
#include "util/result.h"

namespace softhca::hub {

using RequestKind = Request::Kind;

struct JoinedAddress {
  UniqueFd socket;
  RoceBlock block = 0;
};

inline void say(int socket, const Request& request) {
  std::array<std::byte, Request::kSizeMax> room;
  const auto bytes = request.write(room);
  EXPECT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

inline Request listens(RequestKind kind, const wire::Gid& address = CmService::all()) {
  return {.kind = kind, .address = address, .service = kService};
}

/// Asks, and waits for the answer. The error is the refusal.
inline util::Result<JoinedAddress> join_address(const Joined& joined, const wire::Gid& address) {
  say(joined.socket.get(), {.kind = RequestKind::kJoinAddress, .address = address});
  RoceAnswer answer;
  std::array<UniqueFd, 1> fds;
  const auto received = receive_message(
      joined.socket.get(), std::as_writable_bytes(std::span(&answer, 1)), fds, MSG_WAITALL);
  if (received == Received::kNothing || received == Received::kEnd) return util::fail("hub: gone");
  EXPECT_EQ(answer.number, 0u);
  const RoceRefusal refusal{.kind = static_cast<RoceRefusal::Kind>(answer.refusal),
                            .error = answer.error,
                            .holder = answer.holder};
  EXPECT_EQ(received, refusal ? Received::kFdsMissing : Received::kMessage);
  if (refusal) return util::fail(refusal.explain(address));
  return JoinedAddress{.socket = std::move(fds[0]), .block = answer.block};
}

}  // namespace softhca::hub
