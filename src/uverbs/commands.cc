#include "uverbs/commands.h"

#include <rdma/ib_user_ioctl_cmds.h>

#include <cerrno>

namespace softhca::uverbs {

namespace {

using namespace rules;

constexpr AttributeRule kInvokeWrite[] = {
    in(UVERBS_ATTR_CORE_IN, 0, false), out(UVERBS_ATTR_CORE_OUT, 0, false),
    const_in(UVERBS_ATTR_WRITE_CMD, 4), kDriverIn, kDriverOut};

}  // namespace

std::span<const Method<Commands>> Commands::methods() {
  static constexpr Method<Commands> kMethods[] = {
      {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, kInvokeWrite, &Commands::invoke_write},
  };
  return kMethods;
}

template <class Serve>
std::optional<Errno> Commands::find(Serve&& serve_by) {
  std::optional<Errno> done;
  const auto any = [&](auto&... commands) { (void)((done = serve_by(commands)) || ...); };
  any(*this, events_, channels_, of_device_, of_port_, of_domains_, of_handles_, of_groups_,
      of_regions_, of_windows_, of_pages_, of_completions_, of_shared_queues_, of_xrc_, of_pairs_,
      of_receive_queues_, of_counters_, of_flows_, of_devx_, of_umems_);
  return done;
}

std::optional<Errno> Commands::serve(Request& request) {
  return find([&]<class Some>(Some& commands) -> std::optional<Errno> {
    if constexpr (requires { Some::methods(); }) {
      return serve_method(Some::methods(), commands, user_, request);
    }
    return std::nullopt;
  });
}

Errno Commands::invoke_write(Request& request) {
  const auto done = find([&]<class Some>(Some& commands) -> std::optional<Errno> {
    if constexpr (requires { Some::write_commands(); }) {
      return serve_write(Some::write_commands(), commands, user_, request);
    }
    return std::nullopt;
  });
  return done.value_or(EOPNOTSUPP);
}

}  // namespace softhca::uverbs
