#include "door/own_address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
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

OwnAddresses OwnAddresses::take(const std::string& directory, unsigned number,
                                const std::string& given) {
  constexpr std::string_view kInterface = "if:";
  OwnAddresses own;
  own.directory_ = directory;
  own.number_ = number;
  remove_left(directory);
  std::uint8_t bytes[4];
  if (given.starts_with(kInterface)) {
    const auto name = given.substr(kInterface.size());
    own.interface_lock_ = lock(fmt::format("{}/interface-{}", directory, name));
    auto host = HostAddresses::follow(name);
    if (own.interface_lock_ && host) own.host_.emplace(*std::move(host));
  } else if (::inet_pton(AF_INET, given.c_str(), bytes) == 1) {
    const auto gid = driver::Gid::from_ipv4(bytes[0], bytes[1], bytes[2], bytes[3]);
    if (own.claim(gid)) own.all_.push_back(gid);
  }
  if (own.all_.empty()) own.read_host();
  return own;
}

bool OwnAddresses::claim(const driver::Gid& gid) {
  if (locks_.contains(gid)) return true;
  auto claimed = lock(path_of(directory_, gid));
  if (!claimed) return false;
  locks_[gid] = std::move(claimed);
  return true;
}

void OwnAddresses::read_host() {
  std::vector<driver::Gid> all;
  if (host_) all = host_->read();
  // Others are told of the end of a process by its IPv4 addresses, which it must have alone.
  std::erase_if(all, [this](const auto& gid) { return gid.is_ipv4() && !claim(gid); });
  if (all.empty() || !all.front().is_ipv4()) {
    const auto gid = ipv4_gid_of(number_);
    (void)claim(gid);
    all.insert(all.begin(), gid);
  }
  std::erase_if(locks_, [&all](const auto& entry) {
    return std::ranges::find(all, entry.first) == all.end();
  });
  all_ = std::move(all);
}

bool OwnAddresses::refresh() {
  if (!host_ || !host_->changed()) return false;
  const auto before = all_;
  read_host();
  return all_ != before;
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
