// Client memory that came without a file descriptor: reached by DMA_READ and DMA_WRITE messages,
// whose replies are waited for here.
//
// Only from Function::run(), never while a client's message is handled: QEMU answers us from the
// same lock under which it waits for its own reply. Commands that arrive meanwhile are kept for
// later, and their owner is told.
//
// An access has one deadline in all, however many messages it takes: everybody else waits
// meanwhile.
#pragma once

#include <cstdint>
#include <functional>

#include "pcie/dma_space.h"
#include "vfio_user/capabilities.h"
#include "vfio_user/message_stream.h"

namespace softhca::vfio_user {

class ClientRemoteMemory final : public pcie::RemoteMemory {
 public:
  /// `queued` is called when messages may wait in `stream` that no poll of the socket would tell
  /// of. `timeout`: of an access.
  ClientRemoteMemory(MessageStream& stream, std::function<void()> queued, util::Duration timeout)
      : stream_(stream), queued_(std::move(queued)), timeout_(timeout) {}

  bool dma_read(pcie::Iova from, std::span<std::byte> out) override;
  bool dma_write(pcie::Iova to, std::span<const std::byte> in) override;

  void set_capabilities(const ClientCapabilities& client);
  /// While true, every access fails at once.
  void set_handling(bool handling) { handling_ = handling; }

 private:
  /// A client that lets one access time out is not asked again for this long: waiting holds up all
  /// functions of the loop.
  static constexpr auto kRestAfterTimeout = std::chrono::seconds(5);

  /// What an access may take, all of its parts together.
  struct Patience {
    util::Time deadline;
    /// Looks at the socket: replies in very small parts, and whatever else the client sends
    /// meanwhile, take processor time.
    unsigned looks = kLooksMax;
  };
  /// With parts of 64 bytes enough for 16 KiB.
  static constexpr unsigned kLooksMax = 256;

  bool usable() const;
  bool read_part(pcie::Iova from, std::span<std::byte> out, Patience& patience);
  bool write_part(pcie::Iova to, std::span<const std::byte> in, Patience& patience);
  bool send(protocol::Command command, const protocol::DmaAccess& access,
            std::span<const std::byte> data, util::Time deadline);
  /// The reply to the command sent last, without errors. Nothing if it does not come.
  std::optional<Message> await_reply(protocol::Command command, Patience& patience);
  /// Its patience was used up.
  void rest();

  MessageStream& stream_;
  std::function<void()> queued_;
  util::Duration timeout_;
  std::size_t part_max_ = kMaxDataXferSize;
  std::uint16_t message_id_ = 0;
  bool handling_ = false;
  util::Time rest_until_{};
};

}  // namespace softhca::vfio_user
