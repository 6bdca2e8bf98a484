#include "door/port_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace softhca::door {

PortFiles::PortFiles(const std::string& directory, const driver::Gid& own)
    : directory_(directory + "/ports"), own_(own) {
  ::mkdir(directory_.c_str(), 0700);
}

std::string PortFiles::path_of(std::uint16_t port_space, std::uint16_t port) const {
  return fmt::format("{}/{:x}-{}", directory_, port_space, port);
}

bool PortFiles::claim(std::uint16_t port_space, std::uint16_t port) {
  const auto path = path_of(port_space, port);
  vfio_user::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
  const auto& gid = own_.bytes;
  const auto size = static_cast<ssize_t>(gid.size());
  if (::pwrite(fd.get(), gid.data(), gid.size(), 0) != size) return false;
  claimed_[{port_space, port}] = std::move(fd);
  return true;
}

void PortFiles::release(std::uint16_t port_space, std::uint16_t port) {
  claimed_.erase({port_space, port});
}

std::optional<driver::Gid> PortFiles::find(std::uint16_t port_space, std::uint16_t port) {
  if (claimed_.contains({port_space, port})) return own_;
  const auto path = path_of(port_space, port);
  const vfio_user::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  driver::Gid gid;
  // Who could lock it has found what somebody has left.
  if (!fd || ::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) return std::nullopt;
  const auto size = static_cast<ssize_t>(gid.bytes.size());
  if (::pread(fd.get(), gid.bytes.data(), gid.bytes.size(), 0) != size) return std::nullopt;
  return gid;
}

}  // namespace softhca::door
