// The engine's support for librdmacm.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "door/addresses.h"
#include "door/engine.h"
#include "door/fault_guard.h"
#include "door/tree/tree.h"
#include "util/log.h"

namespace softhca::door {
namespace {

constexpr std::uint8_t kMtu1024 = 3, kMtu4096 = 5;
/// Whether a socket can be bound to the address, so that it is this machine's.
bool is_local(const rdma_cm::SocketAddress& address) {
  auto copy = address;
  copy.set_port(0);
  const vfio_user::UniqueFd fd(::socket(copy.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&copy.storage), copy.size()) == 0;
}

/// The descriptor of a call that waits. close() is a cancellation point, and a destructor must not
/// be cancelled.
class HeldOpen {
 public:
  ~HeldOpen() {
    const CancelGuard guard;
    fd_.reset();
  }
  void hold(int fd) { fd_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  int get() const { return fd_.get(); }

 private:
  vfio_user::UniqueFd fd_;
};

}  // namespace

/// The path MTU as ib_mtu. Processes are connected by shared memory; for other hosts the MTU fits
/// an Ethernet of 1500 bytes, Linux's default.
std::uint8_t Engine::path_mtu(const driver::Gid& to) {
  bool is_own = false;
  for_each_card([&](const Card& card) { is_own = is_own || card.has_address(to); });
  return is_own || is_process(to) ? kMtu4096 : kMtu1024;
}

util::Result<void> Engine::set_up_rdma_cm() {
  auto file = PortFile::open(options_.directory);
  if (!file) return tl::unexpected(file.error());
  port_file_ = *std::move(file);
  // Any of the devices may have the address that a program asks for.
  std::vector<rdma_cm::Manager::Port> ports;
  for (unsigned place = 0; place != cards_.size(); ++place) {
    ports.push_back({cards_[place]->device(), cards_[place]->node_guid()});
  }
  auto manager = rdma_cm::Manager::create(
      ports, memory_,
      {.port_numbers = *port_file_,
       .is_member =
           [this](const driver::Gid& gid) {
             driver::Mac mac;
             return find_present(gid, mac);
           },
       .is_local = is_local,
       .ask = [this](const driver::Gid& gid) { cards_.front()->ask(gid); },
       .on_unresolved = [this](const driver::Gid& gid) { strangers_.look_at(gid); },
       .path_mtu = [this](const driver::Gid& gid) { return path_mtu(gid); },
       .is_gone = [this](const driver::Gid& gid) { return is_gone(options_.directory, gid); }});
  if (!manager) return tl::unexpected(manager.error());
  rdma_cm_ = *std::move(manager);
  return {};
}

int Engine::open_rdma_cm() {
  for (unsigned place = 0; place != cards_.size(); ++place) {
    if (!make_card(place)) return -EIO;
  }
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  if (rdma_cm_ == nullptr) {
    if (auto good = set_up_rdma_cm(); !good) {
      util::log(util::LogLevel::kError, "rdma_cm: {}", good.error().message);
      return -EIO;
    }
  }
  auto channel = rdma_cm_->open();
  if (!channel) {
    util::log(util::LogLevel::kError, "rdma_cm: {} (ulimit -n?)", channel.error().message);
    return -EMFILE;
  }
  const auto reader = (*channel)->take_reader();
  const int fd = ::fcntl(reader.get(), F_DUPFD_CLOEXEC, 0);
  return fd < 0 ? -errno : fd;
}

bool Engine::owns_channel(dev_t device, ino_t inode) {
  const std::lock_guard held(lock_);
  return rdma_cm_ != nullptr && rdma_cm_->find_channel(device, inode) != nullptr;
}

bool Engine::serve_rdma_cm(int fd, const void* bytes, std::size_t size, ssize_t& result) {
  struct stat status{};
  if (::fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode)) return false;
  const auto channel_of = [this](int other) -> rdma_cm::Channel* {
    struct stat its{};
    if (::fstat(other, &its) != 0) return nullptr;
    return rdma_cm_->find_channel(its.st_dev, its.st_ino);
  };
  // A call that waits holds the open file, as the kernel's does: another thread may close `fd`.
  HeldOpen held;
  for (;;) {
    int wrong;
    {
      const std::lock_guard guarded(lock_);
      const FaultGuard guard;
      if (rdma_cm_ == nullptr) return false;
      auto* const channel = rdma_cm_->find_channel(status.st_dev, status.st_ino);
      if (channel == nullptr) return false;
      (void)turn();
      wrong = rdma_cm_->serve(*channel, reinterpret_cast<std::uint64_t>(bytes), size, channel_of,
                              util::monotonic_now());
      (void)turn();
      poke();
    }
    result = wrong == 0 ? static_cast<ssize_t>(size) : -wrong;
    if (wrong != EAGAIN) return true;
    if (!held) {
      struct stat same{};
      held.hold(fd);
      if (!held || ::fstat(held.get(), &same) != 0 || same.st_ino != status.st_ino) break;
    }
    if ((::fcntl(held.get(), F_GETFL) & O_NONBLOCK) != 0) return true;
    // Waits by read(), because the kernel restarts it after a signal like the original call. poll()
    // is never restarted.
    char byte;
    if (::read(held.get(), &byte, 1) < 0) {
      result = -errno;
      return true;
    }
  }
  // The channel was closed before the wait began. The kernel's call would keep waiting: so does
  // rping's while its process ends.
  (void)::pause();
  result = -EINTR;
  return true;
}

}  // namespace softhca::door
