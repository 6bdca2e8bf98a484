#include "connectx/doorbell_pages.h"

#include <utility>

#include "connectx/base/bar_layout.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "connectx/objects.h"
#include "connectx/qp/rdma.h"
#include "connectx/queue/blue_flame.h"
#include "connectx/queue/send_doorbell.h"
#include "connectx/queue/shared_doorbells.h"
#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/init_segment.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using Page = spec::connectx::uar_page;
using Number = spec::connectx::cq_doorbell_register;

constexpr std::int64_t kDoorbellWork = 50;
/// Costs of polling a page that the guest has mapped, and the doorbell record of a queue on it.
constexpr std::int64_t kUarPollWork = 20;
constexpr std::int64_t kQueueWork = 10;
constexpr std::uint32_t kCqArm = Page::cq_cmd.kOffset;
constexpr std::uint32_t kEqUpdateAndArm = Page::eq_arm_eqn.kOffset;
constexpr std::uint32_t kEqUpdate = Page::eq_eqn.kOffset;

/// The queue that this dword names.
std::uint32_t send_number(std::span<const std::byte> dword) {
  return queue_of_doorbell(util::load_be32(dword.data()));
}

}  // namespace

DoorbellPages::DoorbellPages(util::WorkBudget& work, bool& attention, const QueueNumbers& numbers)
    : work_(work),
      attention_(attention),
      first_number_(numbers.first),
      is_rung_(numbers.count),
      half_cq_doorbells_(kBarSize / kUarPageSize) {}

void DoorbellPages::connect(const Objects& objects, SharedDoorbells* shared, util::Trace* trace) {
  parts_.emplace(Parts{.rdma = *objects.rdma,
                       .ethernet = *objects.ethernet,
                       .completion_queues = *objects.completion_queues,
                       .event_queues = *objects.event_queues,
                       .blue_flame = *objects.blue_flame,
                       .shared = shared,
                       .trace = trace});
  half_cq_doorbells_.clear();
  is_rung_.assign(is_rung_.size(), 0);
  rung_.clear();
}

inline void DoorbellPages::ring_send(UarPage uar, std::uint32_t number) {
  // A queue often rings several times in a row, and its doorbell is already noted.
  if (key_of(uar, number) != last_rung_) note_send(uar, number);
}

void DoorbellPages::write(UarPage uar, std::uint32_t offset, std::span<const std::byte> in) {
  ++(SharedDoorbells::contains(uar) ? mapped_doorbells_ : kernel_doorbells_);
  // Fast path: nearly every write is a send doorbell of 8 bytes, as documented.
  if (in.size() == 2 * sizeof(std::uint32_t) && offset >= kFirstSendRegister &&
      offset % kSendRegisterSize == 0) {
    return ring_send(uar, send_number(in.subspan(kSendNumber)));
  }
  write_dwords(uar, offset, in);
}

[[gnu::noinline]] void DoorbellPages::write_dwords(UarPage uar, std::uint32_t offset,
                                                   std::span<const std::byte> in) {
  if (offset % 4 != 0 || in.size() % 4 != 0) return;
  if (offset >= kFirstSendRegister && in.size() >= BlueFlame::kLeast) {
    return write_blue_flame(uar, offset, in);
  }
  for (; !in.empty() && offset < kUarPageSize; in = in.subspan(4), offset += 4) {
    const auto dword = util::load_be32(in.data());
    if (offset >= kFirstSendRegister) {
      // A WQE written in small pieces is in the send queue, too, so only its doorbell counts.
      if (offset % kSendRegisterSize != kSendNumber) continue;
      ring_send(uar, send_number(in));
    } else if (offset == kCqArm) {
      half_cq_doorbells_.put(uar.value(), dword);
    } else if (offset == kCqNumber) {
      // "No other DoorBell can be rung in the midst of an on-going write of a DoorBell over a given
      // UAR page" (PRM 7.2.2.2). On other pages, doorbells may be rung in between.
      const auto half = half_cq_doorbells_.take(uar.value());
      if (half) arm_cq(uar, *half, Cqn(dword & Number::cqn.kMax));
    } else if (offset == kEqUpdateAndArm || offset == kEqUpdate) {
      update_eq(uar, dword, offset == kEqUpdateAndArm);
    }
  }
}

/// Takes a combined write (PRM 7.2.2.1): a WQE, or the continuation of one. The first bytes of a
/// WQE are also the doorbell.
void DoorbellPages::write_blue_flame(UarPage uar, std::uint32_t offset,
                                     std::span<const std::byte> in) {
  auto& buffers = parts_->blue_flame;
  if (offset % kSendRegisterSize != 0) return buffers.write(uar, offset, in);
  const auto number = send_number(in.subspan(kSendNumber));
  if (auto* qp = parts_->rdma.find_by_doorbell(Qpn(number), uar)) {
    qp->send_queue().forget_templates();
  } else if (parts_->ethernet.listens(Sqn(number), uar)) {
    parts_->ethernet.forget_template(Sqn(number));
  } else {
    return;
  }
  buffers.write(uar, offset, in);
  attention_ = true;  // so that the end of this turn drops the buffers
  ring_send(uar, number);
}

// "HCA validates that the UAR page used to post the command matches the one specified in the
// contexts of that object" (PRM 7.2). So a process cannot ring for objects of another process or of
// the kernel.

void DoorbellPages::arm_cq(UarPage uar, std::uint32_t arm_dword, Cqn cqn) {
  auto* cq = parts_->completion_queues.find(cqn);
  if (cq == nullptr || cq->attributes().uar_page != uar) return;
  if (parts_->trace != nullptr) [[unlikely]] {
    parts_->trace->note(util::TraceStep::kCqDoorbell, {},
                        {{"cqn", cqn.value()}, {"uar", uar.value()}});
  }
  cq->handle_arm(arm_dword);
}

void DoorbellPages::update_eq(UarPage uar, std::uint32_t dword, bool arm) {
  using Doorbell = spec::connectx::eq_doorbell_register;
  std::byte bytes[Doorbell::kSize];
  util::store_be32(bytes, dword);
  const util::View<Doorbell> doorbell(bytes);
  auto* eq = parts_->event_queues.find(Eqn(doorbell.get(Doorbell::eqn)));
  if (eq == nullptr || eq->attributes().uar_page != uar) return;
  if (parts_->trace != nullptr) [[unlikely]] {
    parts_->trace->note(util::TraceStep::kEqDoorbell, {},
                        {{"eqn", doorbell.get(Doorbell::eqn)},
                         {"consumer", doorbell.get(Doorbell::consumer_index)},
                         {"arm", arm ? 1u : 0u}});
  }
  eq->handle_doorbell(doorbell.get(Doorbell::consumer_index), arm);
}

[[gnu::noinline]] void DoorbellPages::note_send(UarPage uar, std::uint32_t number) {
  if (auto* qp = parts_->rdma.find_by_doorbell(Qpn(number), uar)) {
    parts_->rdma.doorbell(*qp);
  } else {
    const auto place = number - first_number_;  // large if the number is below
    if (place >= is_rung_.size() || !parts_->ethernet.listens(Sqn(number), uar)) return;
    attention_ = true;
    if (std::exchange(is_rung_[place], 1) == 0) rung_.push_back(number);
  }
  last_rung_ = key_of(uar, number);
  if (parts_->trace == nullptr) return;
  last_rung_ = kNoDoorbell;  // so that the next doorbell is also traced
  parts_->trace->note(util::TraceStep::kDoorbell, {}, {{"queue", number}, {"uar", uar.value()}});
}

util::Time DoorbellPages::poll(util::Time now) {
  auto& doorbells = *parts_->shared;
  if (doorbells.pages() == 0) return util::kNever;
  bool found = false;
  for (std::size_t i = 0; i != doorbells.pages(); ++i) found |= poll_page(i);
  return doorbells.next_poll(now, found);
}

bool DoorbellPages::poll_page(std::size_t index) {
  using Kind = SharedDoorbells::Queue::Kind;
  work_.charge(kUarPollWork);
  const auto stores = parts_->shared->poll(index);
  if (!stores.sends && !stores.arms) return false;
  for (const auto number : stores.senders) {
    if (number != 0) ring_send(stores.page, number);
  }
  // A later doorbell may have overwritten one that was not polled yet, so check every queue.
  const auto& queues = parts_->shared->queues(stores.page);
  work_.charge(kDoorbellWork + static_cast<std::int64_t>(queues.size()) * kQueueWork);
  for (const auto& queue : queues) {
    if (queue.kind == Kind::kSend && stores.sends) {
      poll_send(stores.page, queue.number);
    } else if (queue.kind == Kind::kCompletion && stores.arms) {
      auto* cq = parts_->completion_queues.find(Cqn(queue.number));
      if (cq != nullptr && cq->attributes().uar_page == stores.page) cq->poll_arm();
    }
  }
  return true;
}

void DoorbellPages::poll_send(UarPage uar, std::uint32_t number) {
  auto* qp = parts_->rdma.find_by_doorbell(Qpn(number), uar);
  const bool has_news = qp == nullptr ? parts_->ethernet.has_news(Sqn(number))
                                      : qp->send_queue().ring().has_news(qp->record());
  if (has_news) ring_send(uar, number);
}

bool DoorbellPages::run_sends() {
  if (rung_.empty()) return false;
  std::size_t done = 0;
  while (done != rung_.size() && !work_.spent()) {
    const auto number = rung_[done++];
    work_.charge(kDoorbellWork);
    is_rung_[number - first_number_] = 0;
    if (parts_->ethernet.owns(Sqn(number))) parts_->ethernet.doorbell(Sqn(number));
  }
  if (done == rung_.size()) {
    rung_.clear();
    return false;
  }
  rung_.erase(rung_.begin(), rung_.begin() + static_cast<std::ptrdiff_t>(done));
  return true;
}

void DoorbellPages::inspect(util::InspectNode& out) const {
  out.add("messages", kernel_doorbells_ + mapped_doorbells_);
  const auto* shared = parts_->shared;
  if (shared == nullptr) return;
  out.add("messages_to_mapped_pages", mapped_doorbells_);
  out.add("pages_polled", shared->pages());
  out.add("polls", shared->polls());
  out.add("polls_with_stores", shared->polls_with_stores());
}

}  // namespace softhca::connectx
