#include "uverbs/commands.h"

#include "uverbs/method.h"

namespace softhca::uverbs {

template <class Serve>
std::optional<Errno> Commands::find(Serve&& serve_by) {
  std::optional<Errno> done;
  const auto any = [&](auto&... commands) { (void)((done = serve_by(commands)) || ...); };
  any(events_, of_device_, of_port_, of_domains_, of_handles_, of_groups_, of_regions_, of_windows_,
      of_pages_, of_completions_, of_shared_queues_, of_xrc_, of_pairs_, of_receive_queues_,
      of_counters_, of_flows_);
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

std::optional<Errno> Commands::serve_write(Request& request) {
  return find([&]<class Some>(Some& commands) -> std::optional<Errno> {
    if constexpr (requires { Some::write_commands(); }) {
      return uverbs::serve_write(Some::write_commands(), commands, user_, request);
    }
    return std::nullopt;
  });
}

}  // namespace softhca::uverbs
