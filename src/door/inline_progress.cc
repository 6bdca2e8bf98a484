#include "door/inline_progress.h"

#include <infiniband/verbs.h>

#include <atomic>

namespace softhca::door {
namespace {

using PollCq = int (*)(ibv_cq*, int, ibv_wc*);

/// The provider's; one process has one of them.
std::atomic<PollCq> provider_poll = nullptr;

int poll_with_progress(ibv_cq* cq, int count, ibv_wc* completions) {
  progress_in_call();
  return provider_poll.load(std::memory_order_relaxed)(cq, count, completions);
}

}  // namespace

void wrap_poll(std::uint64_t user_handle, int fd) {
  const auto* cq = reinterpret_cast<const ibv_cq*>(user_handle);
  if (cq == nullptr || cq->context == nullptr || cq->context->cmd_fd != fd) return;
  auto& poll = cq->context->ops.poll_cq;
  if (poll == poll_with_progress) return;
  provider_poll = poll;
  poll = poll_with_progress;
}

}  // namespace softhca::door
