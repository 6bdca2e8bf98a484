// The directory of a run's sockets and files. No other user can access it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::run {

/// A new directory of a unique name in the best of run_bases(). Its owner removes it; if the owner
/// was killed, the next create() does.
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
  RunDirectory(std::string path, os::UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  os::UniqueFd lock_;  ///< locks the directory while its owner lives
};

/// The possible directories of fabric `name` of this user: one in each of run_bases(). Fails unless
/// `name` has 1 to 32 letters, digits, '-', '_' and '.', and does not begin with '.'.
util::Result<std::vector<std::string>> fabric_directories(const std::string& name);
/// Directories of this user's other fabrics beside `directory`.
std::vector<std::string> other_fabrics(const std::string& directory);
/// Creates the directory, after removing remains of an earlier one. @pre its lock is held
util::Result<void> make_fabric_directory(const std::string& path);
/// Removes the directory if it is the user's.
void remove_directory(const std::string& path) noexcept;

/// The lock beside a fabric's directory, held to find, create or remove the directory. All copies
/// of the descriptor that fork() makes share it; the end of these processes releases it.
class FabricLock {
 public:
  /// Waits for the lock.
  static util::Result<FabricLock> take(const std::string& directory);
  /// Nothing if another process has the lock, or an error occurs.
  static std::optional<FabricLock> try_to_take(const std::string& directory);

  int fd() const { return fd_.get(); }
  /// Removes the file. Processes that wait for the lock notice that, and create another file.
  void remove_file() const noexcept;

 private:
  FabricLock(std::string path, os::UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  static util::Result<FabricLock> take(const std::string& directory, int how);

  std::string path_;
  os::UniqueFd fd_;
};

}  // namespace softhca::run
