#include "run/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "run/run_bases.h"

namespace softhca::run {
namespace {

constexpr std::size_t kNameMax = 32;
bool is_ours(const struct stat& status) { return status.st_uid == ::geteuid(); }

/// Name prefix of a run's directory.
constexpr const char* kPrefix = "softhca-run-";

/// Opens and locks the directory, if it exists, is the user's, and is not locked.
std::optional<os::UniqueFd> try_to_lock(const std::string& path) {
  os::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat ours, named;
  if (!fd || ::fstat(fd.get(), &ours) != 0 || !is_ours(ours)) return std::nullopt;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  const bool there = ::lstat(path.c_str(), &named) == 0 && named.st_ino == ours.st_ino;
  if (!there) return std::nullopt;
  return fd;
}

/// Removes directories of this user's killed runs.
void remove_leftovers(const std::string& where) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(where, ignored)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    if (const auto lock = try_to_lock(entry.path())) remove_directory(entry.path());
  }
}

std::string fabric_prefix() { return fmt::format("softhca-{}-fabric-", ::geteuid()); }

bool may_be_in_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
         c == '_' || c == '.';
}

}  // namespace

util::Result<RunDirectory> RunDirectory::create() {
  const auto bases = run_bases();
  if (!bases) return tl::unexpected(bases.error());
  const auto& where = bases->front();
  remove_leftovers(where);
  while (true) {
    auto path = where + "/" + kPrefix + "XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {  // mode 0700
      return util::fail_errno(fmt::format("'{}': mkdtemp", path));
    }
    // Another run may have removed it as a leftover meanwhile.
    if (auto lock = try_to_lock(path)) return RunDirectory(std::move(path), *std::move(lock));
  }
}

RunDirectory::~RunDirectory() {
  if (!path_.empty()) remove_directory(path_);
}

void remove_directory(const std::string& path) noexcept {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0 || !is_ours(status)) return;
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

util::Result<std::vector<std::string>> fabric_directories(const std::string& name) {
  if (name.empty() || name.size() > kNameMax || name.front() == '.' ||
      !std::ranges::all_of(name, may_be_in_name)) {
    return util::fail(fmt::format(
        "--fabric '{}': want a name of 1 to {} letters, digits, '-', '_' and '.'", name, kNameMax));
  }
  auto all = run_bases();
  if (!all) return all;
  for (auto& base : *all) base += "/" + fabric_prefix() + name;
  return all;
}

std::vector<std::string> other_fabrics(const std::string& directory) {
  constexpr std::string_view kLock = ".lock";
  std::vector<std::string> all;
  std::error_code ignored;
  const auto where = std::filesystem::path(directory).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(where, ignored)) {
    auto path = entry.path().string();
    if (!entry.path().filename().string().starts_with(fabric_prefix())) continue;
    if (!path.ends_with(kLock) && path != directory) all.push_back(std::move(path));
  }
  return all;
}

util::Result<void> make_fabric_directory(const std::string& path) {
  remove_directory(path);
  if (::mkdir(path.c_str(), 0700) != 0) return util::fail_errno(fmt::format("'{}': mkdir", path));
  return {};
}

util::Result<FabricLock> FabricLock::take(const std::string& directory, int how) {
  auto path = directory + ".lock";
  while (true) {
    os::UniqueFd fd(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
    if (!fd) return util::fail_errno(fmt::format("'{}'", path));
    struct stat ours, named;
    if (::fstat(fd.get(), &ours) != 0) return util::fail_errno(fmt::format("'{}'", path));
    if (!is_ours(ours))
      return util::fail(
          fmt::format("'{}' is another user's; set XDG_RUNTIME_DIR to a directory of yours", path));
    int locked;
    do {
      locked = ::flock(fd.get(), how);
    } while (locked != 0 && errno == EINTR);
    if (locked != 0) return util::fail_errno(fmt::format("'{}': flock", path));
    // The previous holder may have removed the file. The lock just taken is then meaningless.
    if (::lstat(path.c_str(), &named) == 0 && named.st_ino == ours.st_ino &&
        named.st_dev == ours.st_dev) {
      return FabricLock(std::move(path), std::move(fd));
    }
  }
}

util::Result<FabricLock> FabricLock::take(const std::string& directory) {
  return take(directory, LOCK_EX);
}

std::optional<FabricLock> FabricLock::try_to_take(const std::string& directory) {
  auto lock = take(directory, LOCK_EX | LOCK_NB);
  if (!lock) return std::nullopt;
  return *std::move(lock);
}

void FabricLock::remove_file() const noexcept { ::unlink(path_.c_str()); }

}  // namespace softhca::run
