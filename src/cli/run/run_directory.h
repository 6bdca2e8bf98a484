// Where a run has its sockets and its files: a directory that is the user's alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "util/result.h"
#include "vfio_user/unique_fd.h"

namespace softhca::cli {

/// A new one of a name that nobody else has, in the best of run_bases(). It goes with its owner; if
/// that was killed, with the next one that is made.
class RunDirectory {
 public:
  static util::Result<RunDirectory> create();
  RunDirectory(RunDirectory&& other) noexcept
      : path_(std::move(other.path_)), lock_(std::move(other.lock_)) {
    other.path_.clear();
  }
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }

 private:
  RunDirectory(std::string path, vfio_user::UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  vfio_user::UniqueFd lock_;  ///< the directory, locked while its owner lives
};

/// Where the runs of this user that share fabric `name` may have their directory: in each of
/// run_bases(). Fails if `name` is not made of 1 to 32 letters, digits, '-', '_' and '.', the first
/// one no '.'.
util::Result<std::vector<std::string>> fabric_directories(const std::string& name);
/// Directories of other fabrics of this user beside `directory`.
std::vector<std::string> other_fabrics(const std::string& directory);
/// Makes it anew: what is left of another one is gone. @pre its lock is held
util::Result<void> make_fabric_directory(const std::string& path);
/// Removes what is there, if it is the user's.
void remove_directory(const std::string& path) noexcept;

/// Who finds, makes or removes the directory of a fabric has its lock, beside it. Released at the
/// latest by the end of the process, and by all copies of the descriptor that fork() makes.
class FabricLock {
 public:
  /// Waits for it.
  static util::Result<FabricLock> take(const std::string& directory);
  /// Nothing if another process has it, or it cannot be had.
  static std::optional<FabricLock> try_to_take(const std::string& directory);

  int fd() const { return fd_.get(); }
  /// Its file goes. Who waits for it notices, and makes another one.
  void remove_file() const noexcept;

 private:
  FabricLock(std::string path, vfio_user::UniqueFd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}
  static util::Result<FabricLock> take(const std::string& directory, int how);

  std::string path_;
  vfio_user::UniqueFd fd_;
};

}  // namespace softhca::cli
