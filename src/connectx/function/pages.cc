#include "connectx/function/pages.h"

#include <algorithm>

#include "util/endian.h"

namespace softhca::connectx {

namespace {

constexpr std::string_view kPagesSection = "PRM 12.3.2";
constexpr pcie::Iova kPageOffsetMask = 0xFFF;
constexpr std::size_t kAddressSize = sizeof(pcie::Iova);

}  // namespace

CommandResult PageManager::give(std::span<const std::byte> addresses) {
  event_outstanding_ = false;
  const auto count = addresses.size() / kAddressSize;
  if (count > kMaxPages - held()) {
    return refuse(Status::EXCEED_LIM, kPagesSection, "more pages than the device ever asks for");
  }
  const auto before = held();
  for (std::size_t i = 0; i < count; ++i) {
    const auto page = util::load_be64(addresses.data() + i * kAddressSize);
    const bool aligned = (page & kPageOffsetMask) == 0;
    if (aligned && known_.insert(page).second) {
      pages_.push_back(page);
      continue;
    }
    for (auto undo = before; undo < pages_.size(); ++undo) known_.erase(pages_[undo]);
    pages_.resize(before);
    if (!aligned) {
      return refuse(Status::BAD_PARAM, kPagesSection, "page address is not 4 KiB aligned");
    }
    return refuse(Status::BAD_PARAM, kPagesSection, "the device has this page already");
  }
  if (wanted_ > 0) {
    wanted_ -= std::min(wanted_, static_cast<std::int32_t>(count));
    // The pool has grown as requested. Now offer some pages back, as a shrinking pool does.
    if (wanted_ == 0) request(-kSparePages);
    retry_delay_ = kFirstRetry;
  }
  return {};
}

std::uint32_t PageManager::take(std::uint32_t count, std::span<std::byte> addresses) {
  event_outstanding_ = false;
  const auto n = static_cast<std::uint32_t>(
      std::min({std::size_t{count}, held(), addresses.size() / kAddressSize}));
  for (std::uint32_t i = 0; i < n; ++i) {
    util::store_be64(addresses.data() + i * kAddressSize, pages_.back());
    known_.erase(pages_.back());
    pages_.pop_back();
  }
  if (wanted_ < 0) wanted_ += std::min(-wanted_, static_cast<std::int32_t>(n));
  return n;
}

void PageManager::cannot_give(util::Time now) {
  event_outstanding_ = false;
  retry_at_ = now + retry_delay_;
  retry_delay_ = std::min(retry_delay_ * 2, kLastRetry);
}

util::Time PageManager::run(util::Time now, EventQueues& event_queues) {
  using spec::connectx::event_type;
  if (!event_queues.mapped(event_type::PAGE_REQUEST)) return util::kNever;
  if (!requested_regular_ && held() + kRegularPages <= kMaxPages) {
    requested_regular_ = true;
    request(kRegularPages);
  }
  // "No second event until MANAGE_PAGES ran" (PRM 7.13.10.2).
  if (wanted_ == 0 || event_outstanding_) return util::kNever;
  if (now < retry_at_) return retry_at_;
  // The device cannot offer more pages than it holds.
  const auto pages = std::max(wanted_, -static_cast<std::int32_t>(held()));
  if (pages == 0) {
    wanted_ = 0;
    return util::kNever;
  }
  event_outstanding_ = true;
  EventData data{};
  using Data = spec::connectx::event_data_page_request;
  util::MutableView<Data>(data).set(Data::num_pages, static_cast<std::uint32_t>(pages));
  event_queues.post(event_type::PAGE_REQUEST, 0, data);
  return util::kNever;
}

void PageManager::stop_requests() {
  wanted_ = 0;
  requested_regular_ = false;
  event_outstanding_ = false;
  retry_at_ = util::Time::min();
  retry_delay_ = kFirstRetry;
}

void PageManager::forget_all() {
  stop_requests();
  pages_.clear();
  known_.clear();
}

}  // namespace softhca::connectx
