#include "door/memory/memory_map.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
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
constexpr std::uint64_t kThisOrNext = 0x10;  ///< in query_flags: the mapping, or the next

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

  bool is_open() const { return fd_ >= 0; }
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
  /// Up to the character behind it, which is taken as well.
  std::uint64_t number(unsigned base) {
    std::uint64_t value = 0;
    for (char c = next(); c != '\0'; c = next()) {
      if (c >= '0' && c <= '9') {
        value = value * base + static_cast<std::uint64_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * base + static_cast<std::uint64_t>(c - 'a' + 10);
      } else {
        break;
      }
    }
    return value;
  }
  std::uint64_t hex() { return number(16); }
  void skip(unsigned characters) {
    for (; characters != 0; --characters) (void)next();
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

bool maps_file(std::uint64_t begin, std::uint64_t end, const IsFile& is_wanted) {
  bool found = false;
  if (maps_file_by_query(begin, end, is_wanted, found) == 0) return found;
  // Reading all mappings takes long if there are many, so first check the ends.
  return (may_be_of_file(begin) || may_be_of_file(end - 1)) &&
         maps_file_by_reading(begin, end, is_wanted);
}

int maps_file_by_query(std::uint64_t begin, std::uint64_t end, const IsFile& is_wanted,
                       bool& found) {
  found = false;
  const auto fd =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return -1;
  int error = 0;
  for (auto at = begin; at < end && !found;) {
    MappingQuery query;
    query.query_flags = kThisOrNext;
    query.address = at;
    error = ::syscall(SYS_ioctl, fd, kQueryMapping, &query) == 0 ? 0 : errno;
    if (error != 0 || query.begin >= end) break;
    found = query.inode != 0 &&
            is_wanted(::makedev(query.device_major, query.device_minor), query.inode);
    at = query.end;
  }
  ::syscall(SYS_close, fd);
  return error == 0 || error == ENOENT ? 0 : -1;
}

bool maps_file_by_reading(std::uint64_t begin, std::uint64_t end, const IsFile& is_wanted) {
  constexpr unsigned kRightsAndSpace = 5;
  Maps maps;
  do {
    const auto from = maps.hex();
    const auto to = maps.hex();
    if (from >= end) return false;
    if (to <= begin) continue;
    maps.skip(kRightsAndSpace);
    (void)maps.hex();  // the offset
    const auto major = static_cast<unsigned>(maps.hex());
    const auto minor = static_cast<unsigned>(maps.hex());
    const auto inode = maps.number(10);
    if (inode != 0 && is_wanted(::makedev(major, minor), inode)) return true;
  } while (maps.skip_line());
  return false;
}

std::optional<bool> maps_only(std::uint64_t begin, std::uint64_t end, dev_t device, ino_t inode) {
  const auto fd =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return std::nullopt;
  int error = 0;
  auto at = begin;
  while (at < end) {
    MappingQuery query;
    query.address = at;
    error = ::syscall(SYS_ioctl, fd, kQueryMapping, &query) == 0 ? 0 : errno;
    if (error != 0 || query.inode != inode ||
        ::makedev(query.device_major, query.device_minor) != device) {
      break;
    }
    at = query.end;
  }
  ::syscall(SYS_close, fd);
  if (error == 0 || error == ENOENT) return at >= end;
  return maps_only_by_reading(begin, end, device, inode);
}

std::optional<bool> maps_only_by_reading(std::uint64_t begin, std::uint64_t end, dev_t device,
                                         ino_t inode) {
  constexpr unsigned kRightsAndSpace = 5;
  Maps maps;
  if (!maps.is_open()) return std::nullopt;
  auto at = begin;
  do {
    const auto from = maps.hex();
    const auto to = maps.hex();
    if (from > at) return false;
    if (to <= at) continue;
    maps.skip(kRightsAndSpace);
    (void)maps.hex();  // the offset
    const auto major = static_cast<unsigned>(maps.hex());
    const auto minor = static_cast<unsigned>(maps.hex());
    if (maps.number(10) != inode || ::makedev(major, minor) != device) return false;
    at = to;
  } while (at < end && maps.skip_line());
  return at >= end;
}

bool may_be_of_file(std::uint64_t address) {
  constexpr std::uint64_t kPageSize = 4096;
  constexpr std::uint64_t kFileOrShared = std::uint64_t{1} << 61;  // of an entry of pagemap
  const auto fd =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return true;
  std::uint64_t entry = 0;
  const auto at = address / kPageSize * sizeof entry;
  const auto got = ::syscall(SYS_pread64, fd, &entry, sizeof entry, at);
  ::syscall(SYS_close, fd);
  return got != sizeof entry || (entry & kFileOrShared) != 0;
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
