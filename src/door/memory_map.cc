#include "door/memory_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace softhca::door {
namespace {

/// /proc/self/maps, a byte at a time.
class Maps {
 public:
  Maps()
      : fd_(static_cast<int>(
            ::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC))) {}
  ~Maps() {
    if (fd_ >= 0) ::syscall(SYS_close, fd_);
  }
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;

  /// '\0' behind the last one.
  char next() {
    if (at_ == size_) {
      const auto got = fd_ < 0 ? 0 : ::syscall(SYS_read, fd_, bytes_.data(), bytes_.size());
      if (got <= 0) return '\0';
      size_ = static_cast<std::size_t>(got);
      at_ = 0;
    }
    return bytes_[at_++];
  }
  /// Up to the character behind it, which is taken as well.
  std::uint64_t hex() {
    std::uint64_t value = 0;
    for (char c = next(); c != '\0'; c = next()) {
      if (c >= '0' && c <= '9') {
        value = value << 4 | static_cast<std::uint64_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value << 4 | static_cast<std::uint64_t>(c - 'a' + 10);
      } else {
        break;
      }
    }
    return value;
  }
  /// False: there is no further line.
  bool skip_line() {
    char c = next();
    while (c != '\n' && c != '\0') c = next();
    return c == '\n';
  }

 private:
  int fd_;
  std::array<char, 1024> bytes_{};
  std::size_t at_ = 0;
  std::size_t size_ = 0;
};

}  // namespace

std::optional<int> protection_of(std::uint64_t address) {
  Maps maps;
  do {
    const auto begin = maps.hex();
    const auto end = maps.hex();
    if (address < begin) return std::nullopt;
    if (address >= end) continue;
    int how = PROT_NONE;
    if (maps.next() == 'r') how |= PROT_READ;
    if (maps.next() == 'w') how |= PROT_WRITE;
    if (maps.next() == 'x') how |= PROT_EXEC;
    return how;
  } while (maps.skip_line());
  return std::nullopt;
}

}  // namespace softhca::door
