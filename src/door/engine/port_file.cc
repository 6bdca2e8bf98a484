#include "door/engine/port_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <span>

#include "door/card/own_address.h"
#include "os/file_size.h"
#include "os/kept_fd.h"

namespace softhca::door {
namespace {

constexpr off_t kPorts = 65536;
constexpr off_t kRecord = 32;

/// The records of a port space follow those of the previous one.
constexpr std::array<std::uint16_t, 4> kPortSpaces = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB,
                                                      RDMA_PS_IPOIB};

off_t place_of(std::uint16_t port_space) {
  return std::ranges::find(kPortSpaces, port_space) - kPortSpaces.begin();
}

off_t offset_of(std::uint16_t port_space, std::uint16_t port) {
  return (place_of(port_space) * kPorts + port) * kRecord;
}

/// A lock of one record, for fcntl(2), "Open file description locks".
struct flock lock_of(std::uint16_t port_space, std::uint16_t port, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset_of(port_space, port);
  lock.l_len = kRecord;
  return lock;
}

}  // namespace

util::Result<std::unique_ptr<PortFile>> PortFile::open(const std::string& directory) {
  const auto path = directory + "/ports";
  os::UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return util::fail_errno(path);
  return std::unique_ptr<PortFile>(new PortFile(directory, os::keep(std::move(file))));
}

bool PortFile::write(std::uint16_t port_space, std::uint16_t port, const Record& record) const {
  static_assert(sizeof record == kRecord);
  return os::write_at(file_.get(), std::as_bytes(std::span(&record, 1)),
                      offset_of(port_space, port));
}

std::optional<PortFile::Record> PortFile::read(std::uint16_t port_space, std::uint16_t port) const {
  Record record;
  const auto got = ::pread(file_.get(), &record, sizeof record, offset_of(port_space, port));
  return got == ssize_t{sizeof record} ? std::optional(record) : std::nullopt;
}

bool PortFile::lock(std::uint16_t port_space, std::uint16_t port, short type) const {
  auto lock = lock_of(port_space, port, type);
  return ::fcntl(file_.get(), F_OFD_SETLK, &lock) == 0;
}

bool PortFile::was_just_left(const Record& record) const {
  const util::Time left{util::Duration(record.left)};
  const auto now = util::monotonic_now();
  if (record.left == 0 || left > now || now - left >= kStays) return false;
  return !is_gone(run_, record.owner);
}

bool PortFile::is_taken(std::uint16_t port_space, std::uint16_t port) const {
  auto others = lock_of(port_space, port, F_WRLCK);
  return ::fcntl(file_.get(), F_OFD_GETLK, &others) == 0 && others.l_type != F_UNLCK;
}

rdma_cm::Errno PortFile::claim(std::uint16_t port_space, std::uint16_t port, const driver::Gid& own,
                               bool any) {
  if (claimed_.contains({port_space, port}) || !lock(port_space, port, F_WRLCK)) {
    const auto record = read(port_space, port);
    return any || !record || record->any != 0 ? EADDRNOTAVAIL : EADDRINUSE;
  }
  if (write(port_space, port, {.owner = own, .any = any ? 1u : 0u})) {
    claimed_[{port_space, port}] = own;
    return 0;
  }
  (void)lock(port_space, port, F_UNLCK);
  return EADDRNOTAVAIL;
}

void PortFile::release(std::uint16_t port_space, std::uint16_t port, bool returns) {
  const auto at = claimed_.find({port_space, port});
  if (at == claimed_.end()) return;
  const auto now = util::monotonic_now().time_since_epoch().count();
  (void)write(port_space, port, {.owner = at->second, .left = returns ? now : 0});
  // Explicitly, since a forked child may have a copy of the descriptor.
  (void)lock(port_space, port, F_UNLCK);
  claimed_.erase(at);
}

std::optional<driver::Gid> PortFile::own(std::uint16_t port_space, std::uint16_t port) const {
  const auto claimed = claimed_.find({port_space, port});
  return claimed == claimed_.end() ? std::nullopt : std::optional(claimed->second);
}

std::optional<driver::Gid> PortFile::find(std::uint16_t port_space, std::uint16_t port) {
  if (const auto claimed = own(port_space, port)) return claimed;
  const auto record = read(port_space, port);
  if (record && is_taken(port_space, port)) return record->owner;
  // perftest listens in one port space first, then in another.
  for (const auto space : kPortSpaces) {
    const auto left = read(space, port);
    if (left && was_just_left(*left)) return left->owner;
  }
  return std::nullopt;
}

/// As Linux, which asks the setting for each number.
rdma_cm::PortRange PortFile::free_numbers() const {
  return read_range("/proc/sys/net/ipv4/ip_local_port_range");
}

rdma_cm::PortRange PortFile::read_range(const char* path) {
  std::array<char, 32> text{};
  const os::UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  const auto got = file ? ::read(file.get(), text.data(), text.size()) : 0;
  if (got <= 0) return {};
  const auto* const end = text.data() + got;
  rdma_cm::PortRange range{.first = 0, .last = 0};
  const auto* const gap = std::from_chars(text.data(), end, range.first).ptr;
  const auto* const second = std::find_if(gap, end, [](char c) { return c != ' ' && c != '\t'; });
  (void)std::from_chars(second, end, range.last);
  return range.first != 0 && range.first <= range.last ? range : rdma_cm::PortRange{};
}

void PortFile::leave_to_parent() {
  claimed_.clear();
  file_.reset();
}

}  // namespace softhca::door
