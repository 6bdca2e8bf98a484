// Messages over a UNIX stream socket, in both directions, with their file descriptors.
//
// One receive() may return several messages, or part of one; next() returns them one by one and
// keeps the rest. Only wait_readable() and drain() wait for the peer. Nothing is allocated per
// message: buffers grow to the largest message received, and stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "os/unique_fd.h"
#include "util/time_source.h"
#include "vfio_user/outgoing.h"
#include "vfio_user/protocol.h"

namespace softhca::vfio_user {

/// The most data that one message moves (capability max_data_xfer_size).
inline constexpr std::uint32_t kMaxDataXferSize = 1u << 20;
/// The largest message either side may send: a REGION_WRITE of that.
inline constexpr std::uint32_t kMaxMessageSize =
    sizeof(protocol::Header) + sizeof(protocol::RegionAccess) + kMaxDataXferSize;
/// The most descriptors in one message (capability max_msg_fds). QEMU refuses a server that offers
/// more.
inline constexpr std::size_t kMaxMsgFds = 16;

/// The most descriptors received whose message is incomplete or not yet returned.
inline constexpr std::size_t kMaxWaitingFds = 64;

/// Valid until the next call of next() or receive().
struct Message {
  protocol::Header header;
  std::span<const std::byte> payload;  ///< the bytes behind the header
  std::span<os::UniqueFd> fds;         ///< move out those to keep

  bool is_command() const { return (header.flags & protocol::kTypeMask) == protocol::kTypeCommand; }
  bool is_reply() const { return (header.flags & protocol::kTypeMask) == protocol::kTypeReply; }
};

class MessageStream {
 public:
  enum class Received : std::uint8_t {
    kData,
    kNothing,  ///< no data now
    kClosed,   ///< the peer is gone
    kBroken,   ///< the peer sent malformed data, or the socket failed
  };

  /// Receives unwanted descriptors. Closing one may take any time, because it may be of a file
  /// system or a socket that the peer made.
  using Discard = std::function<void(os::UniqueFd)>;

  /// Without `discard`, descriptors are closed, and at the end the socket.
  explicit MessageStream(os::UniqueFd socket, Discard discard = nullptr);
  ~MessageStream();
  MessageStream(MessageStream&&) noexcept = default;
  MessageStream& operator=(MessageStream&&) = delete;

  int fd() const { return socket_.get(); }

  /// Receives all data that the socket has, with one system call.
  Received receive();
  /// Bytes of the last receive().
  std::size_t last_received() const { return last_received_; }
  /// True if next() would return a message.
  bool has_message() { return !broken_ && message_end(begin_).has_value(); }
  /// Returns the next complete message. Nothing if it is incomplete, or if broken().
  std::optional<Message> next();
  /// True if a header had an impossible size, so that the byte stream cannot be parsed any more.
  bool broken() const { return broken_; }
  /// Finds the complete reply with `message_id` anywhere among the received messages. Messages
  /// before it stay for next(). Valid until drop_reply().
  std::optional<Message> find_reply(std::uint16_t message_id);
  /// Removes the reply that find_reply() returned.
  void drop_reply();

  /// Sends header and payload (in up to two parts) with `fds`, which must stay open until they are
  /// sent. Bytes that the socket does not accept are queued. If the peer is gone, returns false,
  /// and the stream is at its end.
  bool send(const protocol::Header& header, std::span<const std::byte> first,
            std::span<const std::byte> second = {}, std::span<const int> fds = {}) {
    return outgoing_.send(fd(), header, first, second, fds);
  }
  /// Sends the bytes unchanged, for tests of the other side.
  bool send_raw(std::span<const std::byte> bytes, std::span<const int> fds = {});
  /// True while output is queued.
  bool has_output() const { return !outgoing_.empty(); }
  /// Sends as much queued output as the socket accepts. False if the peer is gone.
  bool flush() { return outgoing_.flush(fd()); }
  /// Waits until all queued output is sent. False if some is left at `until`, or the peer is gone.
  bool drain(util::Time until, const util::TimeSource& clock = util::monotonic_now);

  /// True if the socket has data (or its end) before `until`.
  bool wait_readable(util::Time until, const util::TimeSource& clock = util::monotonic_now) const;
  /// Shuts the connection down in both directions; the next receive() returns kClosed.
  void shutdown();

 private:
  /// Descriptors received with the bytes up to `end` of buffer_. They belong to the message that
  /// contains the last of those bytes, because the kernel ends a read after data with descriptors.
  struct FdBatch {
    std::size_t end;
    std::size_t count;
  };

  bool make_room();
  void take_fds(std::size_t message_end);
  void discard(std::span<os::UniqueFd> fds);
  void discard_message_fds();
  /// End of the message at `at`; nothing if it is incomplete. Sets broken_ on an impossible size.
  std::optional<std::size_t> message_end(std::size_t at);

  os::UniqueFd socket_;
  Discard discard_;
  Outgoing outgoing_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  ///< start of the bytes that next() has not returned
  std::size_t end_ = 0;    ///< end of the received bytes
  std::size_t last_received_ = 0;
  std::vector<FdBatch> batches_;
  std::vector<os::UniqueFd> waiting_fds_;  ///< of batches_, in order
  std::vector<os::UniqueFd> message_fds_;  ///< of the message that next() returned
  std::size_t reply_begin_ = 0;
  std::size_t reply_end_ = 0;
  std::uint16_t wanted_reply_ = 0;  ///< the message ID of the last find_reply()
  std::size_t searched_ = 0;        ///< the reply is not before this offset
  bool broken_ = false;
};

}  // namespace softhca::vfio_user
