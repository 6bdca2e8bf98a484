#include "uverbs/event_pipe.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>

#include "os/kept_fd.h"
#include "os/open_file.h"

namespace softhca::uverbs {

os::KnownFiles& EventPipe::known() {
  static constinit os::KnownFiles all;
  return all;
}

EventPipe::Entry::Entry(int fd, std::size_t size) {
  if (::fstat(fd, &status_) == 0)
    known().add(status_.st_dev, status_.st_ino, static_cast<unsigned>(size));
}

EventPipe::Entry::~Entry() { known().remove(status_.st_dev, status_.st_ino); }

util::Result<EventPipe> EventPipe::create(std::size_t size, Reads reads, Waits waits) {
  EventPipe pipe(size, std::move(waits));
  int ends[2];
  const int how = reads == Reads::kOne ? O_DIRECT : 0;  // packet mode: one record a read
  if (::pipe2(ends, O_CLOEXEC | how) != 0) return util::fail_errno("pipe for events");
  pipe.reader_.reset(ends[0]);
  const os::UniqueFd writer(ends[1]);
  // Mark the open file that the program reads. own_ is a second one, opened for both directions: it
  // keeps the pipe alive, so writes succeed even after the program has closed its end.
  if (auto marked = os::mark_open(ends[0]); !marked) return tl::unexpected(marked.error());
  pipe.own_.reset(os::reopen(ends[0], O_RDWR | O_NONBLOCK));
  if (!pipe.own_) return util::fail_errno("reopen a pipe");
  ::fcntl(pipe.own_.get(), F_SETFL, O_NONBLOCK | how);
  pipe.own_ = os::keep(std::move(pipe.own_));
  pipe.entry_ = std::make_unique<Entry>(ends[0], size);
  return pipe;
}

/// A record is shorter than PIPE_BUF, so a write is all or nothing.
bool EventPipe::try_write(std::span<const std::byte> record) {
  return ::write(own_.get(), record.data(), record.size()) == static_cast<ssize_t>(record.size());
}

void EventPipe::write(std::span<const std::byte> record) {
  if (waiting_.empty() && try_write(record)) return;
  waiting_.emplace_back(record.begin(), record.end());
  *waits_ = true;
}

void EventPipe::flush() {
  while (!waiting_.empty() && try_write(waiting_.front())) waiting_.pop_front();
  if (!waiting_.empty()) *waits_ = true;
}

std::size_t EventPipe::unread() const {
  int bytes = 0;
  if (::ioctl(own_.get(), FIONREAD, &bytes) != 0) bytes = 0;
  return static_cast<std::size_t>(bytes) / size_ + waiting_.size();
}

bool EventPipe::closed() const { return !os::is_marked_open(own_.get()); }

std::size_t EventPipe::take_back(std::uint64_t element) {
  std::deque<std::vector<std::byte>> all;
  std::vector<std::byte> record(size_);
  while (::read(own_.get(), record.data(), size_) == static_cast<ssize_t>(size_)) {
    all.push_back(record);
  }
  for (auto& one : waiting_) all.push_back(std::move(one));
  waiting_.clear();
  const auto taken = std::erase_if(all, [&](const auto& one) {
    std::uint64_t of;
    std::memcpy(&of, one.data(), sizeof of);
    return of == element;
  });
  for (const auto& one : all) write(one);
  return taken;
}

}  // namespace softhca::uverbs
