#include "uverbs/command_status.h"

#include <array>
#include <cerrno>

#include "spec/connectx/command.h"
#include "util/log.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using OutputHeader = spec::command_output_header;
using Status = spec::command_status;

namespace {

Status status_of(std::span<const std::byte> out) {
  return static_cast<Status>(util::View<OutputHeader>(out).get(OutputHeader::status));
}

Errno errno_of(Status status) {
  switch (status) {
    case Status::RESOURCE_BUSY:
      return EBUSY;
    case Status::NOT_READY:
    case Status::NO_RESOURCES:
      return EAGAIN;
    case Status::EXCEED_LIM:
      return ENOMEM;
    case Status::BAD_OP:
    case Status::BAD_PARAM:
    case Status::BAD_RESOURCE:
    case Status::BAD_RES_STATE:
    case Status::BAD_INDEX:
    case Status::BAD_RESOURCE_STATE:
    case Status::BAD_PKT:
    case Status::BAD_SIZE:
      return EINVAL;
    default:
      return EIO;
  }
}

}  // namespace

Errno execute(Device& device, std::span<const std::byte> in, std::span<std::byte> out) {
  const auto done = device.commands().execute_bytes(in, out);
  if (done) return 0;
  util::log(util::LogLevel::kInfo, "a program's command: {}", done.error().message);
  return status_of(out) == Status::OK ? EIO : EREMOTEIO;
}

Errno execute_own(Device& device, std::span<const std::byte> in) {
  std::array<std::byte, 16> out{};
  const auto wrong = execute(device, in, out);
  return wrong == EREMOTEIO ? errno_of(status_of(out)) : wrong;
}

}  // namespace softhca::uverbs
