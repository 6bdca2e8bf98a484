// Doorbell pages (PRM 7.4.4, Table 13): 4 KiB each, mapped into processes of the guest. A process
// can write anything to its own page at any time.

#include <utility>

#include "connectx/base/resources.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
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
constexpr std::int64_t kUarLookWork = 20;
constexpr std::int64_t kQueueWork = 10;
constexpr std::uint32_t kCqArm = Page::cq_cmd.kOffset;
constexpr std::uint32_t kEqUpdateAndArm = Page::eq_arm_eqn.kOffset;
constexpr std::uint32_t kEqUpdate = Page::eq_eqn.kOffset;

/// The queue that this dword names.
std::uint32_t send_number(std::span<const std::byte> dword) {
  return queue_of_doorbell(util::load_be32(dword.data()));
}

}  // namespace

inline void Device::ring_send_doorbell(UarPage uar, std::uint32_t number) {
  // A queue often rings several times in a row, and its doorbell is already noted.
  if (doorbell_key(uar, number) != last_rung_) note_send_doorbell(uar, number);
}

void Device::write_uar(UarPage uar, std::uint32_t offset, std::span<const std::byte> in) {
  ++(SharedDoorbells::contains(uar) ? mapped_doorbells_ : kernel_doorbells_);
  // Fast path: nearly every write is a send doorbell of 8 bytes, as documented.
  if (in.size() == 2 * sizeof(std::uint32_t) && offset >= kFirstSendRegister &&
      offset % kSendRegisterSize == 0) {
    return ring_send_doorbell(uar, send_number(in.subspan(kSendNumber)));
  }
  write_uar_dwords(uar, offset, in);
}

[[gnu::noinline]] void Device::write_uar_dwords(UarPage uar, std::uint32_t offset,
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
      ring_send_doorbell(uar, send_number(in));
    } else if (offset == kCqArm) {
      half_cq_doorbells_[uar.value()] = dword;
    } else if (offset == kCqNumber) {
      // "No other DoorBell can be rung in the midst of an on-going write of a DoorBell over a given
      // UAR page" (PRM 7.2.2.2). On other pages, doorbells may be rung in between.
      const auto half = std::exchange(half_cq_doorbells_[uar.value()], std::nullopt);
      if (half) arm_cq(uar, *half, Cqn(dword & Number::cqn.kMax));
    } else if (offset == kEqUpdateAndArm || offset == kEqUpdate) {
      update_eq(uar, dword, offset == kEqUpdateAndArm);
    }
  }
}

/// Takes a combined write (PRM 7.2.2.1): a WQE, or the continuation of one. The first bytes of a
/// WQE are also the doorbell.
void Device::write_blue_flame(UarPage uar, std::uint32_t offset, std::span<const std::byte> in) {
  auto& buffers = *objects_->blue_flame;
  if (offset % kSendRegisterSize != 0) return buffers.write(uar, offset, in);
  const auto number = send_number(in.subspan(kSendNumber));
  if (auto* qp = rdma().find_listener(Qpn(number), uar)) {
    qp->forget_seen();
  } else if (ethernet().listens(Sqn(number), uar)) {
    ethernet().forget_template(Sqn(number));
  } else {
    return;
  }
  buffers.write(uar, offset, in);
  attention_ = true;  // so that the end of this turn drops the buffers
  ring_send_doorbell(uar, number);
}

// "HCA validates that the UAR page used to post the command matches the one specified in the
// contexts of that object" (PRM 7.2). So a process cannot ring for objects of another process or of
// the kernel.

void Device::arm_cq(UarPage uar, std::uint32_t arm_dword, Cqn cqn) {
  auto* cq = completion_queues().find(cqn);
  if (cq == nullptr || cq->attributes().uar_page != uar) return;
  if (trace() != nullptr) [[unlikely]] {
    trace()->note(util::TraceStep::kCqDoorbell, {}, {{"cqn", cqn.value()}, {"uar", uar.value()}});
  }
  cq->handle_arm(arm_dword);
}

void Device::update_eq(UarPage uar, std::uint32_t dword, bool arm) {
  using Doorbell = spec::connectx::eq_doorbell_register;
  std::byte bytes[Doorbell::kSize];
  util::store_be32(bytes, dword);
  const util::View<Doorbell> doorbell(bytes);
  auto* eq = event_queues().find(Eqn(doorbell.get(Doorbell::eqn)));
  if (eq == nullptr || eq->attributes().uar_page != uar) return;
  if (trace() != nullptr) [[unlikely]] {
    trace()->note(util::TraceStep::kEqDoorbell, {},
                  {{"eqn", doorbell.get(Doorbell::eqn)},
                   {"consumer", doorbell.get(Doorbell::consumer_index)},
                   {"arm", arm ? 1u : 0u}});
  }
  eq->handle_doorbell(doorbell.get(Doorbell::consumer_index), arm);
}

[[gnu::noinline]] void Device::note_send_doorbell(UarPage uar, std::uint32_t number) {
  if (auto* qp = rdma().find_listener(Qpn(number), uar)) {
    rdma().doorbell(*qp);
  } else {
    if (number >= is_rung_.size() || !ethernet().listens(Sqn(number), uar)) return;
    attention_ = true;
    if (std::exchange(is_rung_[number], 1) == 0) rung_.push_back(number);
  }
  last_rung_ = doorbell_key(uar, number);
  if (trace() == nullptr) return;
  last_rung_ = kNoDoorbell;  // so that the next doorbell is also traced
  trace()->note(util::TraceStep::kDoorbell, {}, {{"queue", number}, {"uar", uar.value()}});
}

/// Polls the pages that processes have mapped. Returns when to poll again.
util::Time Device::hear_doorbells(util::Time now) {
  auto& doorbells = *shared_doorbells_;
  if (doorbells.pages() == 0) return util::kNever;
  bool heard = false;
  for (std::size_t i = 0; i != doorbells.pages(); ++i) heard |= hear_page(i);
  return doorbells.next_look(now, heard);
}

bool Device::hear_page(std::size_t index) {
  using Kind = SharedDoorbells::Queue::Kind;
  work().charge(kUarLookWork);
  const auto heard = shared_doorbells_->look(index);
  if (!heard.sends && !heard.arms) return false;
  for (const auto number : heard.senders) {
    if (number != 0) ring_send_doorbell(heard.page, number);
  }
  // A later doorbell may have overwritten one that was not polled yet, so check every queue.
  const auto& queues = shared_doorbells_->queues(heard.page);
  work().charge(kDoorbellWork + static_cast<std::int64_t>(queues.size()) * kQueueWork);
  for (const auto& queue : queues) {
    if (queue.kind == Kind::kSend && heard.sends) {
      hear_send(heard.page, queue.number);
    } else if (queue.kind == Kind::kCompletion && heard.arms) {
      auto* cq = completion_queues().find(Cqn(queue.number));
      if (cq != nullptr && cq->attributes().uar_page == heard.page) cq->hear_arm();
    }
  }
  return true;
}

void Device::hear_send(UarPage uar, std::uint32_t number) {
  auto* qp = rdma().find_listener(Qpn(number), uar);
  const bool has_news =
      qp == nullptr ? ethernet().has_news(Sqn(number)) : qp->send_ring().has_news(qp->record());
  if (has_news) ring_send_doorbell(uar, number);
}

/// Executes the doorbells of SQs. True if some are left because `work` is spent.
bool Device::run_send_doorbells() {
  if (rung_.empty()) return false;
  std::size_t done = 0;
  while (done != rung_.size() && !work().spent()) {
    const auto number = rung_[done++];
    work().charge(kDoorbellWork);
    is_rung_[number] = 0;
    if (ethernet().owns(Sqn(number))) ethernet().doorbell(Sqn(number));
  }
  if (done == rung_.size()) {
    rung_.clear();
    return false;
  }
  rung_.erase(rung_.begin(), rung_.begin() + static_cast<std::ptrdiff_t>(done));
  return true;
}

}  // namespace softhca::connectx
