// Client memory that was mapped without a file descriptor. DMA_READ and DMA_WRITE messages access
// it, and this class waits for their replies.
//
// Used only from Function::run(), never while a client's message is handled: QEMU answers under the
// same lock under which it waits for its own reply. Commands that arrive meanwhile are queued, and
// their owner is notified.
//
// An access has one deadline, however many messages it takes, and all accesses together have a
// budget of time, because everything else in the loop waits meanwhile.
#pragma once

#include <cstdint>
#include <functional>

#include "pcie/dma_space.h"
#include "vfio_user/capabilities.h"
#include "vfio_user/message_stream.h"

namespace softhca::vfio_user {

/// How long the clients of a server have made its loop wait. It belongs to the server: a client
/// that reconnects gets no new budget.
struct RemoteWaits {
  util::Time rest_until{};  ///< no request before this time; Time{}: there was no rest yet
  util::Time window_end{};
  util::Duration counted{};  ///< waits charged in the current window
};

class ClientRemoteMemory final : public pcie::RemoteMemory {
 public:
  struct Host {
    /// Called when messages may be queued in `stream` that a poll of the socket would not report.
    std::function<void()> queued;
    /// Called with the reason when the client gets no requests for a while.
    std::function<void(const char* why)> resting;
    RemoteWaits& waits;
  };

  /// `timeout`: limit of one access.
  ClientRemoteMemory(MessageStream& stream, Host host, util::Duration timeout,
                     util::TimeSource clock)
      : stream_(stream), host_(std::move(host)), timeout_(timeout), clock_(std::move(clock)) {}

  bool dma_read(pcie::Iova from, std::span<std::byte> out) override;
  bool dma_write(pcie::Iova to, std::span<const std::byte> in) override;

  void set_capabilities(const ClientCapabilities& client);
  /// While true, every access fails immediately.
  void set_handling(bool handling) { handling_ = handling; }

 private:
  /// After an access that timed out, and when the budget is used up, the client gets no request for
  /// this long: a wait blocks all functions of the loop.
  static constexpr auto kRest = std::chrono::seconds(5);
  /// The budget: time that accesses take away from the loop in a window.
  static constexpr util::Duration kBudget = std::chrono::milliseconds(500);
  static constexpr auto kWindow = std::chrono::seconds(5);
  /// Time of an access that is not charged, plus a nanosecond for each byte: an honest client takes
  /// less.
  static constexpr util::Duration kHonestAnswer = std::chrono::milliseconds(1);

  /// The limits of one access, for all its parts together.
  struct Patience {
    util::Time deadline;
    /// Polls of the socket left: replies in very small parts, and other messages of the client,
    /// take processor time.
    unsigned looks = kLooksMax;
  };
  /// Enough for 16 KiB in parts of 64 bytes.
  static constexpr unsigned kLooksMax = 256;

  bool usable() const;
  bool read_part(pcie::Iova from, std::span<std::byte> out, Patience& patience);
  bool write_part(pcie::Iova to, std::span<const std::byte> in, Patience& patience);
  bool send(protocol::Command command, const protocol::DmaAccess& access,
            std::span<const std::byte> data, util::Time deadline);
  /// Returns the reply to the last command, if it has no error. Nothing if no reply arrives.
  std::optional<Message> await_reply(protocol::Command command, Patience& patience);
  /// Called at the end of an access to `bytes` bytes.
  void count(const Patience& patience, std::size_t bytes);
  /// Called when an access has used up its limits.
  void rest();
  void rest(const char* why);

  MessageStream& stream_;
  Host host_;
  util::Duration timeout_;
  const util::TimeSource clock_;
  std::size_t part_max_ = kMaxDataXferSize;
  std::uint16_t message_id_ = 0;
  bool handling_ = false;
};

}  // namespace softhca::vfio_user
