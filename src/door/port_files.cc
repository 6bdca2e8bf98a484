#include "door/port_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "door/own_address.h"

namespace softhca::door {
namespace {

constexpr unsigned kTries = 5;
constexpr useconds_t kPauseUs = 100;

}  // namespace

PortFiles::PortFiles(const std::string& directory)
    : run_(directory), directory_(directory + "/ports") {
  ::mkdir(directory_.c_str(), 0700);
}

std::string PortFiles::path_of(std::uint16_t port_space, std::uint16_t port) const {
  return fmt::format("{}/{:x}-{}", directory_, port_space, port);
}

bool PortFiles::was_just_left(int fd, const driver::Gid& owner) const {
  struct stat status;
  if (::fstat(fd, &status) != 0 || is_gone(run_, owner)) return false;
  const auto& left = status.st_mtim;
  const auto age = std::chrono::system_clock::now().time_since_epoch() -
                   std::chrono::seconds(left.tv_sec) - std::chrono::nanoseconds(left.tv_nsec);
  return age < kStays;
}

bool PortFiles::claim(std::uint16_t port_space, std::uint16_t port, const driver::Gid& own) {
  const auto path = path_of(port_space, port);
  vfio_user::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return false;
  // Who looks whether it is free has it for a moment.
  for (unsigned tries = 0; ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (tries == kTries) return false;
    ::usleep(kPauseUs);
  }
  const auto& gid = own.bytes;
  const auto size = static_cast<ssize_t>(gid.size());
  if (::pwrite(fd.get(), gid.data(), gid.size(), 0) != size) return false;
  claimed_[{port_space, port}] = {std::move(fd), own};
  return true;
}

void PortFiles::release(std::uint16_t port_space, std::uint16_t port) {
  const auto at = claimed_.find({port_space, port});
  if (at == claimed_.end()) return;
  (void)::futimens(at->second.lock.get(), nullptr);
  claimed_.erase(at);
}

std::optional<driver::Gid> PortFiles::find(std::uint16_t port_space, std::uint16_t port) {
  const auto claimed = claimed_.find({port_space, port});
  if (claimed != claimed_.end()) return claimed->second.own;
  const auto path = path_of(port_space, port);
  const vfio_user::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  driver::Gid gid;
  const auto size = static_cast<ssize_t>(gid.bytes.size());
  if (!fd || ::pread(fd.get(), gid.bytes.data(), gid.bytes.size(), 0) != size) return std::nullopt;
  // Who can lock it has found what somebody has left.
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0 && !was_just_left(fd.get(), gid)) {
    return std::nullopt;
  }
  return gid;
}

}  // namespace softhca::door
