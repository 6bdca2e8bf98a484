// Doorbell pages (PRM 7.4.4, Table 13): 4 KiB each, mapped into processes of the guest. A process
// can write anything to its own page at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "connectx/base/numbers.h"
#include "connectx/base/queue_numbers.h"
#include "hca/doorbell_halves.h"
#include "util/clock.h"
#include "util/inspect.h"
#include "util/trace.h"
#include "util/work_budget.h"

namespace softhca::connectx {

class BlueFlame;
class CompletionQueues;
class Ethernet;
class EventQueues;
class Rdma;
class SharedDoorbells;
struct Objects;

/// A doorbell of a QP reaches the QP immediately. A doorbell of an SQ is only noted: run_sends()
/// executes it.
class DoorbellPages {
 public:
  /// `work` is charged. `attention` is set when other parts than RDMA get work. `numbers`: of SQs.
  DoorbellPages(util::WorkBudget& work, bool& attention, const QueueNumbers& numbers);

  /// Continues with the queues of `objects`. Drops what is noted of the earlier ones. `shared`:
  /// null if all doorbells are messages.
  void connect(const Objects& objects, SharedDoorbells* shared, util::Trace* trace);

  /// A register access to a page.
  void write(UarPage uar, std::uint32_t offset, std::span<const std::byte> in);
  /// Polls the pages that processes have mapped. Returns when to poll again. @pre `shared` is set
  util::Time poll(util::Time now);
  /// Executes the doorbells of SQs. True if some are left because the work budget is spent.
  bool run_sends();
  /// The next doorbell counts even if its queue was the last to ring.
  void forget_last() { last_rung_ = kNoDoorbell; }

  void inspect(util::InspectNode& out) const;

 private:
  /// The queues that have doorbells.
  struct Parts {
    Rdma& rdma;
    Ethernet& ethernet;
    CompletionQueues& completion_queues;
    EventQueues& event_queues;
    BlueFlame& blue_flame;
    SharedDoorbells* shared;
    util::Trace* trace;
  };

  void write_dwords(UarPage uar, std::uint32_t offset, std::span<const std::byte> in);
  void arm_cq(UarPage uar, std::uint32_t arm_dword, Cqn cqn);
  void update_eq(UarPage uar, std::uint32_t dword, bool arm);
  void ring_send(UarPage uar, std::uint32_t number);
  void note_send(UarPage uar, std::uint32_t number);
  void write_blue_flame(UarPage uar, std::uint32_t offset, std::span<const std::byte> in);
  bool poll_page(std::size_t index);
  void poll_send(UarPage uar, std::uint32_t number);

  /// Identifies a send doorbell.
  static constexpr std::uint64_t key_of(UarPage uar, std::uint32_t number) {
    return std::uint64_t{uar.value()} << 32 | number;  // no format: two numbers in one
  }
  static constexpr std::uint64_t kNoDoorbell = UINT64_MAX;

  util::WorkBudget& work_;
  bool& attention_;
  std::optional<Parts> parts_;
  std::uint64_t last_rung_ = kNoDoorbell;  ///< the last doorbell since the last run()
  /// Send doorbells of SQs since the last run_sends(), each number once.
  std::vector<std::uint32_t> rung_;
  const std::uint32_t first_number_;
  std::vector<std::uint8_t> is_rung_;  ///< by number, from first_number_ on: 1 if it is in rung_
  hca::DoorbellHalves half_cq_doorbells_;
  /// Number of doorbells that arrived as messages since the device was created: to pages of the
  /// kernel, and to pages that `doorbells=mapped` shares.
  std::uint64_t kernel_doorbells_ = 0;
  std::uint64_t mapped_doorbells_ = 0;
};

}  // namespace softhca::connectx
