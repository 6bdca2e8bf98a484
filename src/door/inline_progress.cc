#include "door/inline_progress.h"

#include <infiniband/verbs.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <span>
#include <utility>

#include "door/kernel.h"
#include "uverbs/user_memory.h"

namespace softhca::door {
namespace {

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// After this many empty polls, yield the processor: the peer that the program waits for may need
/// it.
constexpr unsigned kLooks = 32;
[[gnu::tls_model("initial-exec")]] constinit thread_local unsigned empty_looks = 0;

void note_look(bool found) {
  if (found) {
    empty_looks = 0;
  } else if (++empty_looks % kLooks == 0) {
    ::sched_yield();
  }
}

using PollCq = int (*)(ibv_cq*, int, ibv_wc*);

/// The provider's function; a process has only one provider.
std::atomic<PollCq> provider_poll = nullptr;

int poll_with_progress(ibv_cq* cq, int count, ibv_wc* completions) {
  progress_in_call();
  const int got = provider_poll.load(std::memory_order_relaxed)(cq, count, completions);
  note_look(got != 0);
  return got;
}

using NotifyCq = int (*)(ibv_cq*, int);
std::atomic<NotifyCq> provider_notify = nullptr;

/// A doorbell record holds one arm request. A CQ armed for any completion must stay so if the
/// program then arms it for a solicited one: take the first request before the second overwrites
/// it.
int notify_with_look(ibv_cq* cq, int solicited_only) {
  if (solicited_only != 0) take_arms_in_call();
  return provider_notify.load(std::memory_order_relaxed)(cq, solicited_only);
}

/// The provider has several start_poll functions for CQs of ibv_create_cq_ex(). They differ in
/// locking and waiting.
using StartPoll = int (*)(ibv_cq_ex*, ibv_poll_cq_attr*);

constexpr std::size_t kStartsMax = 32;
std::array<std::atomic<StartPoll>, kStartsMax> provider_starts{};

template <std::size_t kWhich>
int start_with_progress(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  progress_in_call();
  const int result = provider_starts[kWhich].load(std::memory_order_relaxed)(cq, attributes);
  note_look(result != ENOENT);
  return result;
}

template <std::size_t... kWhich>
constexpr std::array<StartPoll, sizeof...(kWhich)> all_starts(std::index_sequence<kWhich...>) {
  return {start_with_progress<kWhich>...};
}
constexpr auto kStarts = all_starts(std::make_index_sequence<kStartsMax>{});

/// Returns a function that drives the device before it calls `start`, the provider's. If there are
/// too many, returns `start`. Call with the engine's lock.
StartPoll start_in_front_of(StartPoll start) {
  if (std::ranges::find(kStarts, start) != kStarts.end()) return start;
  for (std::size_t i = 0; i != kStartsMax; ++i) {
    if (provider_starts[i] == nullptr) provider_starts[i] = start;
    if (provider_starts[i] == start) return kStarts[i];
  }
  return start;
}

}  // namespace

void wrap_poll(std::uint64_t user_handle, int fd) {
  // libibverbs passes the address of its CQ; other callers may pass anything.
  const uverbs::OwnMemory memory;
  ibv_context* context = nullptr;
  int its_fd = -1;
  const auto* place = &reinterpret_cast<const ibv_cq*>(user_handle)->context;
  if (!memory.read(reinterpret_cast<std::uint64_t>(place), bytes_of(context)) ||
      !memory.read(reinterpret_cast<std::uint64_t>(&context->cmd_fd), bytes_of(its_fd)) ||
      its_fd != fd) {
    return;
  }
  if (auto& poll = context->ops.poll_cq; poll != poll_with_progress) {
    provider_poll = poll;
    poll = poll_with_progress;
  }
  if (auto& notify = context->ops.req_notify_cq; notify != notify_with_look) {
    provider_notify = notify;
    notify = notify_with_look;
  }
  // Providers use one structure for both kinds of CQs (verbs_cq), zeroed except for the fields that
  // the kind has. start_poll is set before the kernel is called.
  auto* const extended = reinterpret_cast<ibv_cq_ex*>(user_handle);
  StartPoll start = nullptr;
  if (memory.read(reinterpret_cast<std::uint64_t>(&extended->start_poll), bytes_of(start)) &&
      start != nullptr) {
    extended->start_poll = start_in_front_of(start);
  }
}

}  // namespace softhca::door
