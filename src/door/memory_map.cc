#include "door/memory_map.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace softhca::door {
namespace {

/// struct procmap_query of the kernel's include/uapi/linux/fs.h, which older headers lack.
struct MappingQuery {
  std::uint64_t size = sizeof(MappingQuery);
  std::uint64_t query_flags = 0;  ///< 0: the mapping that holds the address
  std::uint64_t address = 0;
  std::uint64_t begin = 0, end = 0, flags = 0, page_size = 0, offset = 0, inode = 0;
  std::uint32_t device_major = 0, device_minor = 0, name_size = 0, build_id_size = 0;
  std::uint64_t name = 0, build_id = 0;
};
static_assert(sizeof(MappingQuery) == 104);
/// PROCMAP_QUERY, and its flags.
constexpr unsigned long kQueryMapping = _IOWR('f', 17, MappingQuery);
constexpr std::uint64_t kReadable = 1, kWritable = 2, kExecutable = 4;

/// Reads /proc/self/maps byte by byte.
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

  /// Returns '\0' at the end.
  char next() {
    if (at_ == size_) {
      const auto got = fd_ < 0 ? 0 : ::syscall(SYS_read, fd_, bytes_.data(), bytes_.size());
      if (got <= 0) return '\0';
      size_ = static_cast<std::size_t>(got);
      at_ = 0;
    }
    return bytes_[at_++];
  }
  /// Reads a number, and the character that ends it.
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

int protection_by_query(std::uint64_t address, std::optional<int>& protection) {
  protection.reset();
  const auto fd =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return -1;
  MappingQuery query;
  query.address = address;
  const int error = ::syscall(SYS_ioctl, fd, kQueryMapping, &query) == 0 ? 0 : errno;
  ::syscall(SYS_close, fd);
  if (error == ENOENT) return 0;
  if (error != 0) return -1;
  int how = PROT_NONE;
  if ((query.flags & kReadable) != 0) how |= PROT_READ;
  if ((query.flags & kWritable) != 0) how |= PROT_WRITE;
  if ((query.flags & kExecutable) != 0) how |= PROT_EXEC;
  protection = how;
  return 0;
}

std::optional<int> protection_of(std::uint64_t address) {
  std::optional<int> protection;
  if (protection_by_query(address, protection) == 0) return protection;
  return protection_by_reading(address);
}

std::optional<int> protection_by_reading(std::uint64_t address) {
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
