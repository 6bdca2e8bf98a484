#include "os/shared_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

#include "os/file_size.h"

namespace softhca::os {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

struct RecordHead {
  std::uint32_t length = 0;  ///< bytes after the head
  std::uint32_t note = 0;
};
constexpr std::size_t kRecordHead = sizeof(RecordHead);
static_assert(kRecordHead == 8);

/// Bytes that a record with `size` data bytes occupies in the ring.
constexpr std::size_t room_of(std::size_t size) {
  return kRecordHead + (size + kRecordHead - 1) / kRecordHead * kRecordHead;
}
static_assert(room_of(SharedRing::kRecordMax) <= SharedRing::kCapacityMin);

bool map_at(std::byte* place, std::size_t size, int fd, std::size_t offset) {
  return ::mmap(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                static_cast<off_t>(offset)) != MAP_FAILED;
}

}  // namespace

util::Result<SharedRing> SharedRing::create(std::size_t capacity) {
  assert(std::has_single_bit(capacity) && capacity >= kCapacityMin);
  SharedRing ring;
  ring.fd_ = ::memfd_create("softhca-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (ring.fd_ < 0) return util::fail_errno("ring: memfd_create");
  if (auto sized = set_file_size(ring.fd_, kPage + capacity, "ring"); !sized) {
    return tl::unexpected(sized.error());
  }
  if (::fcntl(ring.fd_, F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0)
    return util::fail_errno("ring: seal");
  if (auto mapped = ring.map(ring.fd_); !mapped) return tl::unexpected(mapped.error());
  return ring;
}

util::Result<SharedRing> SharedRing::attach(int fd) {
  SharedRing ring;
  const auto seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return util::fail("ring: its size is not sealed");
  if (auto mapped = ring.map(fd); !mapped) return tl::unexpected(mapped.error());
  return ring;
}

util::Result<void> SharedRing::map(int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return util::fail_errno("ring: fstat");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < kPage + kCapacityMin || !std::has_single_bit(size - kPage)) {
    return util::fail("ring: a file of another size");
  }
  auto* place = ::mmap(nullptr, kPage + 2 * (size - kPage), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return util::fail_errno("ring: mmap");
  memory_ = static_cast<std::byte*>(place);
  capacity_ = size - kPage;
  if (!map_at(memory_, size, fd, 0) || !map_at(memory_ + size, capacity_, fd, kPage)) {
    return util::fail_errno("ring: mmap");
  }
  return {};
}

SharedRing::SharedRing(SharedRing&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      capacity_(other.capacity_),
      memory_(std::exchange(other.memory_, nullptr)) {}

SharedRing::~SharedRing() {
  if (memory_ != nullptr) ::munmap(memory_, kPage + 2 * capacity_);
  if (fd_ >= 0) ::close(fd_);
}

std::byte* SharedRing::at(std::uint64_t index) const {
  return memory_ + kPage + (index & (capacity_ - 1));
}

std::size_t RingProducer::room(std::size_t wanted) {
  const auto room = [&] { return ring_.capacity() - (written_ - read_); };
  if (broken_ || wanted <= room()) return room();
  const auto read = ring_.header().read.load(std::memory_order_acquire);
  broken_ = read < read_ || read > written_;
  if (!broken_) read_ = read;
  return room();
}

std::span<std::byte> RingProducer::reserve(std::size_t size, std::uint32_t note) {
  assert(size != 0 && size <= SharedRing::kRecordMax && reserved_ <= written_);
  if (room(room_of(size)) < room_of(size) || broken_) return {};
  auto* const head = ring_.at(written_);
  const RecordHead values{static_cast<std::uint32_t>(size), note};
  std::memcpy(head, &values, kRecordHead);
  reserved_ = written_ + room_of(size);
  return {head + kRecordHead, size};
}

void RingProducer::publish() {
  assert(reserved_ > written_);
  written_ = reserved_;
  ring_.header().written.store(written_, std::memory_order_release);
}

/// Frees whole unused pages: only the producer writes there, and the consumer reads only published
/// records.
void RingProducer::free_pages() {
  assert(reserved_ <= written_);
  (void)room(ring_.capacity());
  if (broken_) return;
  const auto begin = (written_ + kPage - 1) & ~std::uint64_t{kPage - 1};
  const auto end = (read_ + ring_.capacity()) & ~std::uint64_t{kPage - 1};
  if (begin < end) (void)::madvise(ring_.at(begin), end - begin, MADV_REMOVE);
}

bool RingProducer::must_wake() {
  // Either the producer sees here that the consumer sleeps, or the consumer sees the published
  // record.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto& sleeping = ring_.header().sleeping;
  if (sleeping.load(std::memory_order_relaxed) == 0) return false;
  sleeping.store(0, std::memory_order_relaxed);
  return true;
}

/// True if there is a record that next() has not returned yet.
bool RingConsumer::look() {
  if (broken_) return false;
  if (taken_ != written_) return true;
  const auto written = ring_.header().written.load(std::memory_order_acquire);
  if (written == written_) return false;
  broken_ =
      written < written_ || written - released_ > ring_.capacity() || written % kRecordHead != 0;
  if (broken_) return false;
  written_ = written;
  return true;
}

std::span<const std::byte> RingConsumer::next() {
  if (!look()) return {};
  const auto* const head = ring_.at(taken_);
  RecordHead values;
  std::memcpy(&values, head, kRecordHead);
  // From here on the length in memory is not read again, because it could change.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const auto length = values.length;
  broken_ = length == 0 || length > SharedRing::kRecordMax || room_of(length) > written_ - taken_;
  if (broken_) return {};
  before_ = std::exchange(taken_, taken_ + room_of(length));
  note_ = values.note;
  return {head + kRecordHead, length};
}

void RingConsumer::release(std::uint64_t position) {
  assert(position >= released_ && position <= taken_);
  if (position == released_) return;
  released_ = position;
  ring_.header().read.store(position, std::memory_order_release);
}

bool RingConsumer::prepare_to_sleep() {
  auto& sleeping = ring_.header().sleeping;
  sleeping.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!look()) return true;
  sleeping.store(0, std::memory_order_relaxed);
  return false;
}

}  // namespace softhca::os
