#include "door/inline_progress.h"

#include <infiniband/verbs.h>
#include <sched.h>

#include <atomic>
#include <span>

#include "uverbs/user_memory.h"

namespace softhca::door {
namespace {

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

using PollCq = int (*)(ibv_cq*, int, ibv_wc*);

/// The provider's; one process has one of them.
std::atomic<PollCq> provider_poll = nullptr;

/// After so many looks that have found nothing, whoever else wants the processor may have it: it
/// may be the peer that is waited for.
constexpr unsigned kLooks = 32;
[[gnu::tls_model("initial-exec")]] constinit thread_local unsigned empty_looks = 0;

int poll_with_progress(ibv_cq* cq, int count, ibv_wc* completions) {
  progress_in_call();
  const int got = provider_poll.load(std::memory_order_relaxed)(cq, count, completions);
  if (got != 0) {
    empty_looks = 0;
  } else if (++empty_looks % kLooks == 0) {
    ::sched_yield();
  }
  return got;
}

}  // namespace

void wrap_poll(std::uint64_t user_handle, int fd) {
  // What libibverbs gives is the address of its CQ; others give what they like.
  const uverbs::OwnMemory memory;
  ibv_context* context = nullptr;
  int its_fd = -1;
  const auto* place = &reinterpret_cast<const ibv_cq*>(user_handle)->context;
  if (!memory.read(reinterpret_cast<std::uint64_t>(place), bytes_of(context)) ||
      !memory.read(reinterpret_cast<std::uint64_t>(&context->cmd_fd), bytes_of(its_fd)) ||
      its_fd != fd) {
    return;
  }
  auto& poll = context->ops.poll_cq;
  if (poll == poll_with_progress) return;
  provider_poll = poll;
  poll = poll_with_progress;
}

}  // namespace softhca::door
