#include "vfio_user/message_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "os/receive_fds.h"

namespace softhca::vfio_user {
namespace {

using protocol::Header;

constexpr std::size_t kInitialBuffer = 64 * 1024;
/// Room for messages queued behind an awaited reply, and for one incomplete message.
constexpr std::size_t kBufferMax = 4 * std::size_t{kMaxMessageSize};

/// Waits for `events` until `until`, which may have passed.
bool poll_until(int fd, short events, util::Time until, const util::TimeSource& clock) {
  for (;;) {
    const auto left = until - clock();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd wanted{.fd = fd, .events = events, .revents = 0};
    const auto ready =
        ::poll(&wanted, 1, static_cast<int>(std::clamp<std::int64_t>(ms, 0, INT32_MAX)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

MessageStream::MessageStream(os::UniqueFd socket, Discard discard)
    : socket_(std::move(socket)), discard_(std::move(discard)), buffer_(kInitialBuffer) {
  // Reserved, so that received descriptors always have an owner.
  batches_.reserve(kMaxWaitingFds + 1);
  waiting_fds_.reserve(kMaxWaitingFds + os::kScmMaxFds);
  message_fds_.reserve(kMaxWaitingFds + os::kScmMaxFds);
}

MessageStream::~MessageStream() {
  if (!socket_) return;
  discard_message_fds();
  discard(waiting_fds_);
  if (!discard_) return;
  // The peer must see the end immediately. Its last data may contain descriptors that were never
  // received.
  shutdown();
  discard_(std::move(socket_));
}

void MessageStream::discard(std::span<os::UniqueFd> fds) {
  for (auto& fd : fds) {
    if (discard_ && fd) {
      discard_(std::move(fd));
    } else {
      fd.reset();
    }
  }
}

void MessageStream::discard_message_fds() {
  if (message_fds_.empty()) return;
  discard(message_fds_);
  message_fds_.clear();
}

bool MessageStream::make_room() {
  if (begin_ == end_) {
    begin_ = end_ = searched_ = 0;
    return true;
  }
  auto wanted = std::size_t{sizeof(Header)};
  if (end_ - begin_ >= sizeof(Header)) {
    const auto size = protocol::load<Header>(buffer_, begin_).message_size;
    // The message is complete: the caller waits for a reply behind it. Leave room for that one.
    wanted = std::max<std::size_t>(size, end_ - begin_ + kInitialBuffer / 2);
  }
  if (buffer_.size() - begin_ >= wanted && end_ < buffer_.size()) return true;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  for (auto& batch : batches_) batch.end -= begin_;
  end_ -= begin_;
  searched_ -= std::min(searched_, begin_);
  begin_ = 0;
  if (buffer_.size() < wanted) {
    if (wanted > kBufferMax) return false;
    buffer_.resize(std::min(kBufferMax, std::max(wanted, 2 * buffer_.size())));
  }
  return true;
}

MessageStream::Received MessageStream::receive() {
  discard_message_fds();
  if (!make_room()) {
    broken_ = true;
    return Received::kBroken;
  }
  std::size_t fds = 0;
  const auto [length, truncated] = os::receive_with_fds(fd(), std::span(buffer_).subspan(end_),
                                                        MSG_DONTWAIT, [&](os::UniqueFd fd) {
                                                          waiting_fds_.push_back(std::move(fd));
                                                          ++fds;
                                                        });
  last_received_ = length > 0 ? static_cast<std::size_t>(length) : 0;
  if (length < 0) {
    if (errno == EAGAIN || errno == EINTR) return Received::kNothing;
    return errno == ECONNRESET ? Received::kClosed : Received::kBroken;
  }
  end_ += static_cast<std::size_t>(length);
  if (fds != 0) batches_.push_back({.end = end_, .count = fds});
  if (length == 0) return Received::kClosed;
  // The second limit is for a peer that sends descriptors with every byte of one message.
  if (truncated || fds > kMaxMsgFds || waiting_fds_.size() > kMaxWaitingFds) {
    broken_ = true;
    return Received::kBroken;
  }
  return Received::kData;
}

std::optional<std::size_t> MessageStream::message_end(std::size_t at) {
  if (end_ - at < sizeof(Header)) return std::nullopt;
  const auto size = protocol::load<Header>(buffer_, at).message_size;
  if (size < sizeof(Header) || size > kMaxMessageSize) {
    broken_ = true;
    return std::nullopt;
  }
  if (end_ - at < size) return std::nullopt;
  return at + size;
}

/// Moves the descriptors of the batches that end inside the message before `end` to message_fds_.
void MessageStream::take_fds(std::size_t end) {
  std::size_t batches = 0;
  std::size_t count = 0;
  while (batches < batches_.size() && batches_[batches].end <= end)
    count += batches_[batches++].count;
  if (count == 0) return;
  const auto last = waiting_fds_.begin() + static_cast<std::ptrdiff_t>(count);
  std::move(waiting_fds_.begin(), last, std::back_inserter(message_fds_));
  waiting_fds_.erase(waiting_fds_.begin(), last);
  batches_.erase(batches_.begin(), batches_.begin() + static_cast<std::ptrdiff_t>(batches));
}

std::optional<Message> MessageStream::next() {
  discard_message_fds();
  if (broken_) return std::nullopt;
  const auto end = message_end(begin_);
  if (!end) return std::nullopt;
  const auto at = begin_;
  begin_ = *end;
  if (!batches_.empty()) take_fds(*end);
  return Message{.header = protocol::load<Header>(buffer_, at),
                 .payload = std::span<const std::byte>(buffer_).subspan(at + sizeof(Header),
                                                                        *end - at - sizeof(Header)),
                 .fds = message_fds_};
}

std::optional<Message> MessageStream::find_reply(std::uint16_t message_id) {
  if (message_id != wanted_reply_) searched_ = 0;
  wanted_reply_ = message_id;
  auto at = std::max(begin_, searched_);
  while (const auto end = message_end(at)) {
    const auto header = protocol::load<Header>(buffer_, at);
    if ((header.flags & protocol::kTypeMask) == protocol::kTypeReply &&
        header.message_id == message_id) {
      reply_begin_ = at;
      reply_end_ = *end;
      return Message{.header = header,
                     .payload = std::span<const std::byte>(buffer_).subspan(
                         at + sizeof(Header), *end - at - sizeof(Header)),
                     .fds = {}};
    }
    at = *end;
    searched_ = at;
  }
  return std::nullopt;
}

void MessageStream::drop_reply() {
  const auto length = reply_end_ - reply_begin_;
  // Awaited replies carry no descriptors, so any that came with this one are discarded.
  std::size_t first = 0;
  for (std::size_t i = 0; i < batches_.size();) {
    if (batches_[i].end > reply_begin_ && batches_[i].end <= reply_end_) {
      const auto from = waiting_fds_.begin() + static_cast<std::ptrdiff_t>(first);
      discard(std::span(waiting_fds_).subspan(first, batches_[i].count));
      waiting_fds_.erase(from, from + static_cast<std::ptrdiff_t>(batches_[i].count));
      batches_.erase(batches_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (batches_[i].end > reply_end_) batches_[i].end -= length;
    first += batches_[i++].count;
  }
  std::memmove(buffer_.data() + reply_begin_, buffer_.data() + reply_end_, end_ - reply_end_);
  end_ -= length;
  reply_begin_ = reply_end_ = 0;
}

bool MessageStream::send_raw(std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.size() < sizeof(Header)) {
    const auto sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(bytes.size());
  }
  return send(protocol::load<Header>(bytes), bytes.subspan(sizeof(Header)), {}, fds);
}

bool MessageStream::drain(util::Time until, const util::TimeSource& clock) {
  while (has_output()) {
    if (!poll_until(fd(), POLLOUT, until, clock) || !flush()) return false;
  }
  return true;
}

bool MessageStream::wait_readable(util::Time until, const util::TimeSource& clock) const {
  return poll_until(fd(), POLLIN, until, clock);
}

void MessageStream::shutdown() { ::shutdown(fd(), SHUT_RDWR); }

}  // namespace softhca::vfio_user
