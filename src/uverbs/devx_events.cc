#include "uverbs/devx_events.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "spec/connectx/eq.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;

namespace {

/// Adds 1 to the program's eventfd. A write to a full counter would wait for the program to read,
/// with all devices of the process; as in eventfd_signal() of Linux, the counter stays full. Its
/// O_NONBLOCK is the program's choice, so poll() asks first.
void raise_counter(int eventfd) {
  pollfd counter{.fd = eventfd, .events = POLLOUT, .revents = 0};
  if (::poll(&counter, 1, 0) != 1 || (counter.revents & POLLOUT) == 0) return;
  const std::uint64_t one = 1;
  (void)!::write(eventfd, &one, sizeof one);
}

}  // namespace

void DevxSubscription::handle_event(std::span<const std::byte> eqe) {
  if (eventfd_) return raise_counter(eventfd_->get());
  std::array<std::byte, sizeof cookie_ + spec::eqe::kSize> record;
  std::memcpy(record.data(), &cookie_, sizeof cookie_);
  std::memcpy(record.data() + sizeof cookie_, eqe.data(), spec::eqe::kSize);
  if (!channel_->omits_data) return channel_->pipe.write(record);
  // With omitted data a record is only a hint that something happened. Queue one, and the next only
  // after the program has read it.
  const auto read = channel_->records - channel_->pipe.unread();
  if (last_record_ > read) return;
  channel_->pipe.write(std::span(record).first(sizeof cookie_));
  last_record_ = ++channel_->records;
}

util::Result<DevxAnswers> DevxAnswers::create() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return util::fail_errno("socket for answers");
  }
  DevxAnswers answers;
  answers.reader_.reset(ends[0]);
  answers.writer_.reset(ends[1]);
  return answers;
}

bool DevxAnswers::try_write(std::span<const std::byte> record) {
  const auto sent =
      ::send(writer_.get(), record.data(), record.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(record.size());
}

void DevxAnswers::write(std::span<const std::byte> record) {
  if (waiting_.empty() && try_write(record)) return;
  waiting_.emplace_back(record.begin(), record.end());
  waiting_size_ += record.size();
}

bool DevxAnswers::closed() const {
  if (reader_) return false;
  pollfd at{.fd = writer_.get(), .events = 0, .revents = 0};
  return ::poll(&at, 1, 0) == 1 && (at.revents & POLLHUP) != 0;
}

void DevxAnswers::flush() {
  while (!waiting_.empty() && try_write(waiting_.front())) {
    waiting_size_ -= waiting_.front().size();
    waiting_.pop_front();
  }
}

}  // namespace softhca::uverbs
