#include "door/own_address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "door/addresses.h"

namespace softhca::door {
namespace {

std::string path_of(const std::string& directory, const driver::Gid& gid) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, gid.bytes.data() + 12, text.data(), text.size());
  return fmt::format("{}/address-{}", directory, text.data());
}

vfio_user::UniqueFd lock(const std::string& path) {
  for (;;) {
    vfio_user::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct stat ours, named;
    if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
    // Who removes what others have left may have been faster.
    if (::fstat(fd.get(), &ours) == 0 && ::lstat(path.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino) {
      return fd;
    }
  }
}

/// Files of processes that have gone.
void remove_left(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (!entry.path().filename().string().starts_with("address-198.18.")) continue;
    const vfio_user::UniqueFd fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    // Removed while it is locked: nobody can take it meanwhile.
    if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
  }
}

}  // namespace

OwnAddress take_address(const std::string& directory, unsigned number) {
  const char* const given = std::getenv("SOFTHCA_ADDRESS");
  std::uint8_t bytes[4];
  if (given != nullptr && ::inet_pton(AF_INET, given, bytes) == 1) {
    const auto gid = driver::Gid::from_ipv4(bytes[0], bytes[1], bytes[2], bytes[3]);
    if (auto own = lock(path_of(directory, gid))) return {gid, std::move(own)};
  }
  remove_left(directory);
  const auto gid = ipv4_gid_of(number);
  return {gid, lock(path_of(directory, gid))};
}

bool is_gone(const std::string& directory, const driver::Gid& gid) {
  if (!gid.is_ipv4()) return false;
  const auto path = path_of(directory, gid);
  // A process has its file from its first moment on; what is not one never has.
  if (::access(path.c_str(), F_OK) != 0) return is_process(gid);
  const vfio_user::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ::flock(fd.get(), LOCK_SH | LOCK_NB) == 0;
}

}  // namespace softhca::door
