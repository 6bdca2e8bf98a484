// Descriptors that DevX programs read: event channels, and completions of asynchronous queries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "os/unique_fd.h"
#include "util/result.h"
#include "uverbs/event_pipe.h"
#include "uverbs/event_subscriptions.h"

namespace softhca::uverbs {

/// A channel of subscribed events. A record is the subscription's cookie, then the event queue
/// entry unless the program omits data.
struct DevxEventChannel {
  EventPipe pipe;
  bool omits_data;
  std::uint64_t records = 0;  ///< records written so far
};

/// One subscription of a program.
class DevxSubscription final : public EventSubscriber {
 public:
  DevxSubscription(std::shared_ptr<DevxEventChannel> channel, std::uint64_t cookie)
      : channel_(std::move(channel)), cookie_(cookie) {}
  /// A subscription that signals an eventfd instead of the channel.
  DevxSubscription(std::shared_ptr<DevxEventChannel> channel,
                   std::shared_ptr<const os::UniqueFd> eventfd)
      : channel_(std::move(channel)), eventfd_(std::move(eventfd)) {}
  void handle_event(std::span<const std::byte> eqe) override;
  bool is_of(const DevxEventChannel& channel) const { return channel_.get() == &channel; }

 private:
  std::shared_ptr<DevxEventChannel> channel_;
  std::uint64_t cookie_ = 0;
  std::uint64_t last_record_ = 0;  ///< number of its last record in the channel; 0: none
  std::shared_ptr<const os::UniqueFd> eventfd_;
};

/// Query results, one a read, of up to 64 KiB each.
class DevxAnswers {
 public:
  static util::Result<DevxAnswers> create();
  /// The end that the program reads; can be taken once.
  os::UniqueFd take_reader() { return std::move(reader_); }
  /// False: too many bytes wait for the program to read them.
  bool has_room(std::size_t size) const { return waiting_size_ + size <= kWaitingMax; }
  void write(std::span<const std::byte> record);
  void flush();
  /// Whether the program has closed its end and all copies of it.
  bool closed() const;

 private:
  /// The kernel's limit, in bytes.
  static constexpr std::size_t kWaitingMax = std::size_t{1} << 20;
  DevxAnswers() = default;
  bool try_write(std::span<const std::byte> record);

  os::UniqueFd reader_;
  os::UniqueFd writer_;
  std::deque<std::vector<std::byte>> waiting_;
  std::size_t waiting_size_ = 0;
};

}  // namespace softhca::uverbs
