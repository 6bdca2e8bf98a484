#include "rdma_cm/channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

namespace softhca::rdma_cm {

util::Result<std::unique_ptr<Channel>> Channel::create() {
  std::unique_ptr<Channel> channel(new Channel);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return util::fail_errno("pipe for events");
  channel->reader_.reset(ends[0]);
  channel->writer_.reset(ends[1]);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  struct stat status{};
  if (::fstat(ends[0], &status) != 0) return util::fail_errno("fstat");
  channel->device_ = status.st_dev;
  channel->inode_ = status.st_ino;
  return channel;
}

/// A pipe without readers. We have none of our own but while we read.
bool Channel::closed() const {
  if (reader_) return false;
  pollfd at{.fd = writer_.get(), .events = 0, .revents = 0};
  return ::poll(&at, 1, 0) == 1 && (at.revents & POLLERR) != 0;
}

void Channel::push(const Event& event) {
  events_.push_back(event);
  (void)!::write(writer_.get(), "", 1);
}

std::optional<Event> Channel::pop() {
  if (events_.empty()) return std::nullopt;
  const auto event = events_.front();
  events_.pop_front();
  const auto name = fmt::format("/proc/self/fd/{}", writer_.get());
  const vfio_user::UniqueFd reader(::open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  char byte;
  (void)!::read(reader.get(), &byte, 1);
  return event;
}

}  // namespace softhca::rdma_cm
