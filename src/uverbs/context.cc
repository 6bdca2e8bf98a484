#include "uverbs/context.h"

#include <rdma/ib_user_ioctl_cmds.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "util/log.h"

namespace softhca::uverbs {

namespace {

void note_refusal(const Request& request, Errno wrong) {
  const bool write_form =
      request.object() == UVERBS_OBJECT_DEVICE && request.method() == UVERBS_METHOD_INVOKE_WRITE;
  util::log(util::LogLevel::kDebug, "uverbs: object {:#x} method {:#x} (command {:#x}): {}",
            request.object(), request.method(),
            write_form ? request.get<std::uint32_t>(UVERBS_ATTR_WRITE_CMD) : 0,
            std::generic_category().message(wrong));
}

}  // namespace

Context::Context(Device& device, const UserMemory& memory, Options options)
    : device_(device), memory_(memory), options_(std::move(options)), user_(device) {}

Context::~Context() { objects_.clear(); }

Errno Context::serve(std::uint64_t argument) {
  Request request;
  if (const auto wrong = request.parse(memory_, argument); wrong != 0) return wrong;
  const auto wrong = commands_.serve(request).value_or(EPROTONOSUPPORT);
  if (wrong != 0) note_refusal(request, wrong);
  return wrong;
}

void Context::flush_events() {
  events_.flush();
  channels_.flush();
}

void Context::drop_closed() {
  events_.drop_closed();
  channels_.drop_closed();
}

}  // namespace softhca::uverbs
