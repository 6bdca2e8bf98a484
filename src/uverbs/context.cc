#include "uverbs/context.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "util/log.h"
#include "uverbs/method.h"

namespace softhca::uverbs {

namespace {

using namespace rules;
constexpr std::uint16_t kUhwIn = UVERBS_ATTR_UHW_IN;
constexpr std::uint16_t kUhwOut = UVERBS_ATTR_UHW_OUT;

constexpr AttributeRule kUhw[] = {in(kUhwIn, 0, false), out(kUhwOut, 0, false)};

// Attributes of the methods (kernel interface 3.4). Each may carry the driver's own (UHW).
constexpr AttributeRule kInvokeWrite[] = {in(UVERBS_ATTR_CORE_IN, 0, false),
                                          out(UVERBS_ATTR_CORE_OUT, 0, false),
                                          const_in(UVERBS_ATTR_WRITE_CMD, 4), kUhw[0], kUhw[1]};

}  // namespace

std::span<const Context::Method> Context::methods() {
  static constexpr Method kMethods[] = {
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, kInvokeWrite, &Context::invoke_write},
  };
  return kMethods;
}

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

Context::~Context() {
  objects_.clear();
  device_.subscriptions().remove(this);
}

Errno Context::serve(std::uint64_t argument) {
  Request request;
  if (const auto wrong = request.parse(memory_, argument); wrong != 0) return wrong;
  std::optional<Errno> wrong;
  for (const auto table : {methods(), devx_methods()}) {
    if (!wrong) wrong = serve_method(table, *this, user_, request);
  }
  if (!wrong) wrong = commands_.serve(request);
  if (!wrong) wrong = EPROTONOSUPPORT;
  if (*wrong != 0) note_refusal(request, *wrong);
  return *wrong;
}

Errno Context::invoke_write(Request& request) {
  return commands_.serve_write(request).value_or(EOPNOTSUPP);
}

void Context::flush_events() {
  events_.flush();
  for (auto& [identity, answers] : answers_) answers->flush();
  // A program may have thousands of channels, and their pipes are rarely full.
  if (!std::exchange(*events_wait_, false)) return;
  for (auto& [identity, channel] : event_channels_) channel->pipe.flush();
}

}  // namespace softhca::uverbs
