#include "uverbs/record_scan.h"

#include <array>

#include "driver/connectx/uar.h"
#include "spec/connectx/init_segment.h"
#include "spec/connectx/wqe.h"
#include "util/bits.h"
#include "util/endian.h"

namespace softhca::uverbs {
namespace {

using Page = softhca::spec::connectx::uar_page;
using Doorbell = softhca::spec::connectx::send_doorbell_register;

std::uint32_t load(const std::uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

}  // namespace

void RecordScan::add_send_queue(std::uint32_t qpn, std::uint32_t uar, const std::uint32_t* record) {
  remove_send_queue(qpn);
  send_queues_.push_back(
      {.qpn = qpn,
       .record = record,
       .doorbell = driver::connectx::uar_offset(uar) + Page::db_blueflame_buffer0_even.kOffset,
       .last = 0});
}

void RecordScan::remove_send_queue(std::uint32_t qpn) {
  std::erase_if(send_queues_, [&](const SendQueue& queue) { return queue.qpn == qpn; });
}

void RecordScan::reset_send_queue(std::uint32_t qpn, std::uint32_t* record) {
  remove_send_queue(qpn);
  __atomic_store_n(record, 0, __ATOMIC_RELEASE);
}

void RecordScan::add_completion_queue(std::uint32_t cqn, std::uint32_t uar, std::uint32_t* arm) {
  __atomic_store_n(arm, kNotArmed, __ATOMIC_RELEASE);
  completion_queues_.push_back(
      {.cqn = cqn,
       .arm = arm,
       .doorbell = driver::connectx::uar_offset(uar) + Page::cq_ci.kOffset});
}

void RecordScan::remove_completion_queue(std::uint32_t cqn) {
  std::erase_if(completion_queues_, [&](const CompletionQueue& cq) { return cq.cqn == cqn; });
}

void RecordScan::ring(std::uint64_t doorbell, std::uint32_t first, std::uint32_t second) {
  std::array<std::byte, 8> bytes;
  util::store_be32(bytes.data(), first);
  util::store_be32(bytes.data() + 4, second);
  host_.write_bar(driver::connectx::kUarBar, doorbell, bytes);
}

bool RecordScan::scan() {
  bool any = false;
  for (auto& queue : send_queues_) {
    const auto now = load(queue.record);
    if (now == queue.last) continue;
    queue.last = now;
    ring(queue.doorbell, 0, util::in_place(Doorbell::sq_number, queue.qpn));
    any = true;
  }
  for (auto& cq : completion_queues_) {
    auto arm = load(cq.arm);
    if (arm == kNotArmed) continue;
    // Rule A2: if the program stores a newer arm word meanwhile, the loop takes that one.
    while (!__atomic_compare_exchange_n(cq.arm, &arm, kNotArmed, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_ACQUIRE)) {
    }
    ring(cq.doorbell, util::load_be32(reinterpret_cast<const std::byte*>(&arm)), cq.cqn);
    any = true;
  }
  return any;
}

}  // namespace softhca::uverbs
