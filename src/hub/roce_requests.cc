#include "hub/roce_requests.h"

#include <array>
#include <cstdint>
#include <span>

#include "hub/fd_message.h"

namespace softhca::hub {

bool RoceRequests::serve(const Asker& asker, const Request& request) {
  switch (request.kind) {
    case Request::Kind::kAcceptLinks:
      break;
    case Request::Kind::kJoinAddress:
      return answer(asker, request.address);
    case Request::Kind::kLeaveAddress:
      host_.leave(asker.number, request.address);
      break;
    case Request::Kind::kListen:
      (void)host_.listen(asker.number, request.service);
      break;
    case Request::Kind::kUnlisten:
      host_.unlisten(asker.number, request.service);
      break;
  }
  return true;
}

bool RoceRequests::answer(const Asker& asker, const wire::Gid& address) {
  RoceRefusal refusal;
  const auto seat = host_.join(asker.number, address, refusal);
  if (refusal) warn(asker, refusal, address);
  RoceAnswer message;
  message.refusal = static_cast<std::uint8_t>(refusal.kind);
  message.block = seat.block;
  message.error = refusal.error;
  message.holder = refusal.holder;
  const std::array fds{seat.socket};
  return send_message(asker.socket, std::as_bytes(std::span(&message, 1)),
                      std::span(fds).first(refusal ? std::size_t{0} : std::size_t{1}));
}

void RoceRequests::warn(const Asker& asker, const RoceRefusal& refusal, const wire::Gid& address) {
  std::uint64_t held_back = 0;
  if (!warnings_.allow(clock_(), &held_back)) return;
  util::log(util::LogLevel::kWarning, "hub: process {} ({}): {}", asker.number, asker.pid,
            refusal.explain(address));
}

}  // namespace softhca::hub
