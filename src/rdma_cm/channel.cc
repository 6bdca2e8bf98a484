#include "rdma_cm/channel.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "os/kept_fd.h"
#include "os/open_file.h"

namespace softhca::rdma_cm {

util::Result<std::unique_ptr<Channel>> Channel::create() {
  std::unique_ptr<Channel> channel(new Channel);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return util::fail_errno("pipe for events");
  channel->reader_.reset(ends[0]);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  channel->writer_ = os::keep(os::UniqueFd(ends[1]));
  // Mark the open file that the program reads. own_reader_ is a second one: it keeps the pipe
  // open, so writes succeed even after the program has closed its end.
  if (auto marked = os::mark_open(ends[0]); !marked) return tl::unexpected(marked.error());
  channel->own_reader_ = os::keep(os::UniqueFd(os::reopen(ends[0], O_RDONLY | O_NONBLOCK)));
  if (!channel->own_reader_) return util::fail_errno("open a pipe a second time");
  struct stat status{};
  if (::fstat(ends[0], &status) != 0) return util::fail_errno("fstat");
  channel->device_ = status.st_dev;
  channel->inode_ = status.st_ino;
  return channel;
}

bool Channel::closed() const { return !os::is_marked_open(own_reader_.get()); }

void Channel::push(const Event& event) {
  events_.push_back(event);
  settle();
}

std::optional<Event> Channel::pop() {
  if (events_.empty()) return std::nullopt;
  const auto event = events_.front();
  events_.pop_front();
  settle();
  return event;
}

void Channel::settle() {
  int bytes = 0;
  if (::ioctl(own_reader_.get(), FIONREAD, &bytes) != 0) bytes = 0;
  if (!events_.empty() && bytes == 0) (void)!::write(writer_.get(), "", 1);
  char byte;
  if (events_.empty() && bytes != 0) (void)!::read(own_reader_.get(), &byte, 1);
}

}  // namespace softhca::rdma_cm
