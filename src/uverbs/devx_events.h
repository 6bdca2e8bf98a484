// What programs that have DevX read from: channels of events, and of answers to questions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "util/result.h"
#include "uverbs/event_pipe.h"
#include "uverbs/event_subscriptions.h"
#include "vfio_user/unique_fd.h"

namespace softhca::uverbs {

/// Events that a program has subscribed to, as records: its cookie, and the entry of the event
/// queue unless the program has said that it wants none.
struct DevxEventChannel {
  EventPipe pipe;
  bool omits_data;
  std::uint64_t told = 0;  ///< records so far
};

/// One subscription.
class DevxSubscription final : public EventSubscriber {
 public:
  DevxSubscription(std::shared_ptr<DevxEventChannel> channel, std::uint64_t cookie)
      : channel_(std::move(channel)), cookie_(cookie) {}
  /// To an eventfd instead.
  DevxSubscription(std::shared_ptr<DevxEventChannel> channel,
                   std::shared_ptr<const vfio_user::UniqueFd> eventfd)
      : channel_(std::move(channel)), eventfd_(std::move(eventfd)) {}
  void handle_event(std::span<const std::byte> eqe) override;
  bool is_of(const DevxEventChannel& channel) const { return channel_.get() == &channel; }

 private:
  std::shared_ptr<DevxEventChannel> channel_;
  std::uint64_t cookie_ = 0;
  std::uint64_t told_as_ = 0;  ///< which record of the channel was its last one; 0: none
  std::shared_ptr<const vfio_user::UniqueFd> eventfd_;
};

/// Answers, one to a read, of any length up to 64 KiB.
class DevxAnswers {
 public:
  static util::Result<DevxAnswers> create();
  /// What the program reads from; to be given out once.
  vfio_user::UniqueFd take_reader() { return std::move(reader_); }
  /// False: too many answers wait to be read.
  bool has_room(std::size_t size) const { return waiting_size_ + size <= kWaitingMax; }
  void write(std::span<const std::byte> record);
  void flush();
  /// The program has closed its end, and all copies of it.
  bool closed() const;

 private:
  /// As the kernel has it.
  static constexpr std::size_t kWaitingMax = std::size_t{1} << 20;
  DevxAnswers() = default;
  bool try_write(std::span<const std::byte> record);

  vfio_user::UniqueFd reader_;
  vfio_user::UniqueFd writer_;
  std::deque<std::vector<std::byte>> waiting_;
  std::size_t waiting_size_ = 0;
};

}  // namespace softhca::uverbs
