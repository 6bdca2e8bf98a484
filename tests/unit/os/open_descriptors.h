// Descriptors and maps of the process that a test runs in.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "eventually.h"
#include "os/unique_fd.h"
#include "returns_alone.h"

namespace softhca::test {

inline constexpr std::size_t kPage = 4096;

inline std::size_t open_fds() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

/// Waits until `wanted` descriptors are open, because another thread closes those of a client that
/// has left.
inline std::size_t open_fds_after(std::size_t wanted) {
  eventually([wanted] { return open_fds() <= wanted; });
  return open_fds();
}

/// Mappings of this process whose file's name contains `name`.
inline std::size_t mappings_of(std::string_view name) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) != std::string::npos) ++count;
  }
  return count;
}

inline os::UniqueFd memory_file(std::size_t size) {
  os::UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  return fd;
}

inline os::UniqueFd event() { return os::UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

/// True if `act` does not return until the full eventfd is read.
inline bool waits_until_read(int fd, const std::function<void()>& act) {
  return !returns_alone(act, [fd] {
    std::uint64_t count = 0;
    EXPECT_EQ(::read(fd, &count, sizeof count), 8);
  });
}

/// How often the eventfd was signaled since the last read.
inline std::uint64_t signals(const os::UniqueFd& fd) {
  std::uint64_t count = 0;
  return ::read(fd.get(), &count, sizeof count) == sizeof count ? count : 0;
}

}  // namespace softhca::test
