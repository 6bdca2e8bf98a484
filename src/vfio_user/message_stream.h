// Messages over a UNIX stream socket, in both directions, with their file descriptors.
//
// One receive() may bring several messages, or a part of one; next() hands them out one by one and
// keeps the rest. Nothing waits for the peer but wait_readable() and drain(), which say so. Nothing
// is allocated per message: buffers grow to the largest message that came and stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "util/clock.h"
#include "vfio_user/outgoing.h"
#include "vfio_user/protocol.h"
#include "vfio_user/unique_fd.h"

struct msghdr;

namespace softhca::vfio_user {

/// The most data that one message moves (capability max_data_xfer_size).
inline constexpr std::uint32_t kMaxDataXferSize = 1u << 20;
/// The largest message either side may send: a REGION_WRITE of that.
inline constexpr std::uint32_t kMaxMessageSize =
    sizeof(protocol::Header) + sizeof(protocol::RegionAccess) + kMaxDataXferSize;
/// The most descriptors in one message (capability max_msg_fds). QEMU refuses a server that says
/// more.
inline constexpr std::size_t kMaxMsgFds = 16;

/// The most descriptors that wait for the rest of their message, or for their turn.
inline constexpr std::size_t kMaxWaitingFds = 64;

/// Valid until the next call of next() or receive().
struct Message {
  protocol::Header header;
  std::span<const std::byte> payload;  ///< what follows the header
  std::span<UniqueFd> fds;             ///< whoever wants one moves it away

  bool is_command() const { return (header.flags & protocol::kTypeMask) == protocol::kTypeCommand; }
  bool is_reply() const { return (header.flags & protocol::kTypeMask) == protocol::kTypeReply; }
};

class MessageStream {
 public:
  enum class Received : std::uint8_t {
    kData,
    kNothing,  ///< no data now
    kClosed,   ///< the peer is gone
    kBroken,   ///< the peer sent what cannot be understood, or the socket failed
  };

  /// Takes descriptors that nobody wants. Closing one may take any time: it may be of a file system
  /// or a socket of the peer's making.
  using Discard = std::function<void(UniqueFd)>;

  /// Without `discard` descriptors are closed, the socket at the end included.
  explicit MessageStream(UniqueFd socket, Discard discard = nullptr);
  ~MessageStream();
  MessageStream(MessageStream&&) noexcept = default;
  MessageStream& operator=(MessageStream&&) = delete;

  int fd() const { return socket_.get(); }

  /// Takes what the socket has, with one system call.
  Received receive();
  /// True if next() would hand out a message.
  bool has_message() { return !broken_ && message_end(begin_).has_value(); }
  /// The next whole message. Nothing if it is not there yet, or if broken().
  std::optional<Message> next();
  /// True if the byte stream cannot be followed any more: a header with an impossible size.
  bool broken() const { return broken_; }
  /// The whole reply with `message_id` that waits anywhere among the received messages. Those
  /// before it stay for next(). Valid until drop_reply().
  std::optional<Message> find_reply(std::uint16_t message_id);
  /// Forgets the reply that find_reply() returned.
  void drop_reply();

  /// Sends header and payload (in up to two parts), with `fds`, which stay open until they are out;
  /// what the socket does not take is kept. False if the peer is gone, and then the stream is at
  /// its end.
  bool send(const protocol::Header& header, std::span<const std::byte> first,
            std::span<const std::byte> second = {}, std::span<const int> fds = {}) {
    return outgoing_.send(fd(), header, first, second, fds);
  }
  /// Sends bytes as they are: for tests of the other side.
  bool send_raw(std::span<const std::byte> bytes, std::span<const int> fds = {});
  /// True while something is kept that the socket did not take.
  bool has_output() const { return !outgoing_.empty(); }
  /// Sends of that what the socket takes now. False if the peer is gone.
  bool flush() { return outgoing_.flush(fd()); }
  /// Waits until all of it is out. False if that is not so at `until`, or the peer is gone.
  bool drain(util::Time until);

  /// True if the socket has data (or its end) before `until`.
  bool wait_readable(util::Time until) const;
  /// Ends the connection in both directions; the next receive() says kClosed.
  void shutdown();

 private:
  /// Descriptors that came with the bytes that end before `end` of buffer_. They belong to the
  /// message that holds the last of those bytes: the kernel ends a read after data with
  /// descriptors.
  struct FdBatch {
    std::size_t end;
    std::size_t count;
  };

  bool make_room();
  bool accept_fds(const ::msghdr& message, std::size_t end);
  void take_fds(std::size_t message_end);
  void discard(std::span<UniqueFd> fds);
  void discard_message_fds();
  /// Where the message at `at` ends; nothing if it is not whole. Sets broken_ on a bad size.
  std::optional<std::size_t> message_end(std::size_t at);

  UniqueFd socket_;
  Discard discard_;
  Outgoing outgoing_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  ///< of what next() has not handed out
  std::size_t end_ = 0;    ///< of what was received
  std::vector<FdBatch> batches_;
  std::vector<UniqueFd> waiting_fds_;  ///< of batches_, in order
  std::vector<UniqueFd> message_fds_;  ///< of the message that next() handed out
  std::size_t reply_begin_ = 0;
  std::size_t reply_end_ = 0;
  std::uint16_t wanted_reply_ = 0;  ///< the message ID that find_reply() was last asked for
  std::size_t searched_ = 0;        ///< up to where it is not
  bool broken_ = false;
};

}  // namespace softhca::vfio_user
