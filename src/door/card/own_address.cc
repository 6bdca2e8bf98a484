#include "door/card/own_address.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "door/card/addresses.h"
#include "hub/far_members.h"
#include "os/kept_fd.h"
#include "os/open_file.h"
#include "util/log.h"
#include "wire/address_text.h"

namespace softhca::door {
namespace {

constexpr std::string_view kInterface = "if:";

/// Interval between attempts to get a turn.
constexpr std::chrono::milliseconds kBetweenTries{1};

constexpr int kOwnFile = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;

/// @pre gid.is_ipv4()
std::string name_of(const driver::Gid& gid) {
  return fmt::format("address-{}", wire::text_of(gid));
}

std::string path_of(const std::string& directory, const driver::Gid& gid) {
  return directory + "/" + name_of(gid);
}

/// A lock by which the processes of a run take turns to create and remove the files of addresses.
/// Reading them needs no turn. Invalid: another process, which must be stopped, has kept its turn
/// for `patience`.
os::UniqueFd take_turn(const std::string& directory, util::Duration patience) {
  const auto path = directory + "/addresses.lock";
  os::UniqueFd fd(::open(path.c_str(), kOwnFile, 0600));
  const auto end = util::monotonic_now() + patience;
  while (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR && util::monotonic_now() >= end) return {};
    std::this_thread::sleep_for(kBetweenTries);
  }
  return fd;
}

/// True also if descriptors run out: a live process must not be reported as gone. Never blocks,
/// whatever kind of file another process has put there.
bool is_held(const std::string& path) {
  constexpr int kOthersFile = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const os::UniqueFd fd(::open(path.c_str(), kOthersFile));
  return fd ? os::is_marked_open(fd.get()) : errno != ENOENT;
}

/// Creates a file and locks it before it gets its name. Invalid: another process holds the name
/// alone, or at all unless `shares`, or this failed. Each address has a temporary name of its own,
/// since a process that gets no turn goes on without one.
os::UniqueFd hold(const std::string& directory, const std::string& name, bool shares) {
  const auto path = directory + "/" + name;
  if (is_held(path)) {
    if (!shares) return {};
    os::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd || !os::mark_open(fd.get())) return {};
    return os::keep(std::move(fd));
  }
  const auto unnamed = directory + "/new-" + name;
  ::unlink(unnamed.c_str());
  os::UniqueFd fd(::open(unnamed.c_str(), kOwnFile | O_EXCL, 0600));
  if (!fd || !(shares ? os::mark_open(fd.get()).has_value() : os::mark_alone(fd.get()))) return {};
  if (::rename(unnamed.c_str(), path.c_str()) != 0) return {};
  return os::keep(std::move(fd));
}

/// Removes the files of ended processes. Call in this process's turn.
void remove_left(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const auto& path = entry.path();
    if (!path.filename().string().starts_with("address-198.18.")) continue;
    if (!is_held(path)) ::unlink(path.c_str());
  }
}

}  // namespace

OwnAddresses OwnAddresses::take(const std::string& directory, unsigned number,
                                const std::string& given, util::Duration patience) {
  OwnAddresses own;
  own.directory_ = directory;
  own.number_ = number;
  const auto turn = take_turn(directory, patience);
  if (turn) {
    remove_left(directory);
  } else {
    util::log(util::LogLevel::kWarning,
              "{}/addresses.lock cannot be locked (is a process of this run stopped?): addresses "
              "are taken without the lock",
              directory);
  }
  if (names_interface(given)) {
    auto host = HostAddresses::follow(given.substr(kInterface.size()));
    if (host) own.host_.emplace(*std::move(host));
  } else if (const auto gid = wire::parse_ipv4(given); gid && own.claim(*gid, Claim::kAlone)) {
    own.all_.push_back(*gid);
  }
  if (own.all_.empty()) own.read_host();
  return own;
}

bool OwnAddresses::claim(const driver::Gid& gid, Claim how) {
  if (locks_.contains(gid)) return true;
  auto claimed = hold(directory_, name_of(gid), how == Claim::kShared);
  if (!claimed) return false;
  locks_[gid] = std::move(claimed);
  return true;
}

void OwnAddresses::read_host() {
  std::vector<driver::Gid> all;
  if (host_) all = host_->read();
  std::erase_if(all,
                [this](const auto& gid) { return gid.is_ipv4() && !claim(gid, Claim::kShared); });
  if (all.empty() || !all.front().is_ipv4()) {
    const auto gid = ipv4_gid_of(number_);
    if (!claim(gid, Claim::kAlone)) {
      util::log(util::LogLevel::kWarning,
                "{} cannot be locked: connections to this process may be reported as ended",
                path_of(directory_, gid));
    }
    all.insert(all.begin(), gid);
  }
  std::erase_if(locks_, [&all](const auto& entry) {
    return std::ranges::find(all, entry.first) == all.end();
  });
  all_ = std::move(all);
}

bool OwnAddresses::refresh() {
  if (!host_) return false;
  has_changed_ = host_->changed() || has_changed_;
  if (!has_changed_) return false;
  const auto turn = take_turn(directory_, util::Duration::zero());
  if (!turn) return false;
  has_changed_ = false;
  const auto before = all_;
  read_host();
  return all_ != before;
}

bool names_interface(const std::string& given) { return given.starts_with(kInterface); }

bool may_have(const std::string& given, const driver::Gid& gid) {
  return names_interface(given) || wire::parse_ipv4(given) == gid;
}

bool is_of_run(const std::string& directory, const driver::Gid& gid) {
  return gid.is_ipv4() && is_held(path_of(directory, gid));
}

bool is_gone(const std::string& directory, const driver::Gid& gid) {
  if (!gid.is_ipv4()) return false;
  const auto path = path_of(directory, gid);
  // A process holds its file from the start. An address outside the run has none.
  const bool was_here = ::access(path.c_str(), F_OK) == 0;
  if (was_here ? is_held(path) : errno != ENOENT) return false;
  // The process with the address may be on another machine. The hub knows those whose address
  // follows from their number.
  if (hub::has_far_members(directory)) {
    return is_process(gid) && !hub::is_far_member(directory, number_of(gid));
  }
  return was_here || is_process(gid);
}

}  // namespace softhca::door
