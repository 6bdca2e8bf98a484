#include "hub/roce_requests.h"

#include <array>
#include <cstdint>
#include <span>

#include "hub/fd_message.h"

namespace softhca::hub {

namespace {

RoceAnswer answer_of(const RoceRefusal& refusal, RoceBlock block, unsigned station) {
  RoceAnswer message;
  message.refusal = static_cast<std::uint8_t>(refusal.kind);
  message.block = block;
  message.station = static_cast<std::uint16_t>(station);
  message.error = refusal.error;
  message.holder = refusal.holder;
  return message;
}

bool send(int socket, const RoceAnswer& message, std::span<const int> fds) {
  return send_message(socket, std::as_bytes(std::span(&message, 1)), fds);
}

}  // namespace

bool RoceRequests::serve(const Asker& asker, const Request& request, unsigned station) {
  switch (request.kind) {
    case Request::Kind::kAcceptLinks:
      break;
    case Request::Kind::kShare:
      return share(asker, station);
    case Request::Kind::kJoinAddress:
      return answer(asker, request.address, station);
    case Request::Kind::kLeaveAddress:
      host_.leave(asker.number, request.address);
      break;
    case Request::Kind::kListen:
      (void)host_.listen(asker.number, request.cm_service());
      break;
    case Request::Kind::kUnlisten:
      host_.unlisten(asker.number, request.cm_service());
      break;
  }
  return true;
}

bool RoceRequests::share(const Asker& asker, unsigned station) {
  RoceRefusal refusal{.kind = RoceRefusal::Kind::kTooManyProcesses};
  const auto block = station == 0 ? RoceBlock{0} : host_.share(asker.number, refusal);
  if (refusal) warn(asker, refusal, {});
  return send(asker.socket, answer_of(refusal, block, station), {});
}

bool RoceRequests::answer(const Asker& asker, const wire::Gid& address, unsigned station) {
  RoceRefusal refusal;
  const auto seat = host_.join(asker.number, address, refusal);
  if (refusal) warn(asker, refusal, address);
  const std::array fds{seat.socket};
  return send(asker.socket, answer_of(refusal, seat.block, station),
              std::span(fds).first(refusal ? std::size_t{0} : std::size_t{1}));
}

void RoceRequests::warn(const Asker& asker, const RoceRefusal& refusal, const wire::Gid& address) {
  std::uint64_t held_back = 0;
  if (!warnings_.allow(clock_(), &held_back)) return;
  util::log(util::LogLevel::kWarning, "hub: process {} ({}): {}", asker.number, asker.pid,
            refusal.explain(address));
}

}  // namespace softhca::hub
