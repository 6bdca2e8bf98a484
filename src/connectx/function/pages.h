// Host pages that the driver gives to the device (PRM 5.1, 12.3.1, 12.3.2).
//
// The device keeps its state in its own memory and needs none of them. It still requests a few at
// boot, at INIT_HCA and by event, to exercise a driver's page handling as hardware does. It returns
// every page exactly once.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "connectx/command/command.h"
#include "connectx/event/event_queue.h"
#include "pcie/dma_space.h"
#include "util/clock.h"

namespace softhca::connectx {

class PageManager {
 public:
  static constexpr std::uint32_t kBootPages = 64;
  static constexpr std::uint32_t kInitPages = 256;
  /// Pages that the device requests by event after INIT_HCA, and pages that it then offers back.
  static constexpr std::int32_t kRegularPages = 16;
  static constexpr std::int32_t kSparePages = 8;
  /// Limit on the pages that the device requests, however often a driver initializes it.
  static constexpr std::size_t kMaxPages = 2048;
  /// Cost of accepting or returning a page (util::WorkBudget).
  static constexpr std::int64_t kPageWork = 100;

  std::size_t held() const { return pages_.size(); }
  /// Pages still missing for boot, or for INIT_HCA.
  std::uint32_t missing_for_boot() const { return missing(kBootPages); }
  std::uint32_t missing_for_init() const { return missing(kBootPages + kInitPages); }
  /// Pages that the next event requests. Negative: pages that it offers back.
  std::int32_t wanted() const { return wanted_; }

  /// MANAGE_PAGES, give. `addresses` are big-endian. If one is refused, accepts none.
  CommandResult give(std::span<const std::byte> addresses);
  /// MANAGE_PAGES, take: writes the addresses of up to `count` pages to `addresses`, big-endian,
  /// and returns how many.
  std::uint32_t take(std::uint32_t count, std::span<std::byte> addresses);
  /// MANAGE_PAGES, cannot give. The device requests the pages again later.
  void cannot_give(util::Time now);

  /// Requests `count` more pages by event. If it is negative, offers -count back.
  void request(std::int32_t count) { wanted_ += count; }
  /// If an event is due, posts it to `event_queues`. Returns when to call again. @pre the driver
  /// has initialized the device
  util::Time run(util::Time now, EventQueues& event_queues);

  // Called when the driver leaves. After TEARDOWN_HCA, the device keeps the pages, so only
  // stop_requests() is called. A new driver has given none, so forget_all() is.
  void stop_requests();
  void forget_all();

 private:
  static constexpr util::Duration kFirstRetry = std::chrono::seconds(1);
  static constexpr util::Duration kLastRetry = std::chrono::seconds(64);

  std::uint32_t missing(std::uint32_t needed) const {
    return held() < needed ? needed - static_cast<std::uint32_t>(held()) : 0;
  }

  std::vector<pcie::Iova> pages_;
  std::unordered_set<pcie::Iova> known_;
  std::int32_t wanted_ = 0;
  bool requested_regular_ = false;
  bool event_outstanding_ = false;  ///< until the next MANAGE_PAGES (PRM 7.13.10.2)
  util::Time retry_at_ = util::Time::min();
  util::Duration retry_delay_ = kFirstRetry;
};

}  // namespace softhca::connectx
