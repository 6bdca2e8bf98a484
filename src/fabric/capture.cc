#include "fabric/capture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "util/log.h"

namespace softhca::fabric {
namespace {

constexpr std::size_t kBufferSize = 256 * 1024;

/// What guests say to each other is for the owner of the file alone, whatever the umask is and
/// whoever may read the file that is there already.
void make_private(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) return;  // opening it for good tells why
  struct stat status;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) (void)::fchmod(fd, 0600);
  ::close(fd);
}

}  // namespace

util::Result<std::unique_ptr<Capture>> Capture::create(const std::string& path, Clock clock) {
  std::unique_ptr<Capture> capture(new Capture(path, std::move(clock)));
  if (!capture->file_) return util::fail_errno("cannot create capture file " + path);
  return capture;
}

Capture::Capture(std::string path, Clock clock)
    : path_(std::move(path)), clock_(std::move(clock)), buffer_(kBufferSize) {
  file_.rdbuf()->pubsetbuf(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  make_private(path_);
  file_.open(path_, std::ios::binary | std::ios::trunc);
  if (!file_) return;
  writer_ = std::make_unique<wire::PcapngWriter>(file_);
  unflushed_ = true;
}

void Capture::handle_port(std::uint32_t port, std::string_view name) {
  if (interfaces_.size() <= port) interfaces_.resize(port + 1);
  interfaces_[port] = writer_->add_interface(name);
  unflushed_ = true;
}

void Capture::handle_frame(std::uint32_t ingress_port, const wire::Frame& frame) {
  if (failed_) return;
  const auto now = clock_();
  writer_->write({.interface_id = interfaces_[ingress_port],
                  .time_ns = now,
                  .direction = wire::PcapngWriter::Direction::kOutbound,
                  .comment = {}},
                 frame);
  ++frames_;
  unflushed_ = true;
  flush_if_due(now);
}

void Capture::flush_if_due(std::uint64_t now) {
  // A clock that was set back is due as well.
  if (now - flushed_at_ < kFlushIntervalNs) return;
  flushed_at_ = now;
  flush();
}

void Capture::flush() {
  if (!unflushed_ || failed_) return;
  unflushed_ = false;
  writer_->flush();
  if (file_) return;
  failed_ = true;
  util::log(util::LogLevel::kError, "capture {} ends: the file cannot be written (disk full?)",
            path_);
}

}  // namespace softhca::fabric
