#include "connectx/queue/shared_doorbells.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "connectx/queue/send_doorbell.h"
#include "os/file_size.h"
#include "spec/connectx/init_segment.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

using UarLayout = spec::connectx::uar_page;

constexpr std::size_t kSize = kSharedUars * kUarPageSize;
constexpr std::uint64_t kFirst = kFirstSharedUar * kUarPageSize;
static_assert(kFirstSendRegister + 8 * kSendRegisterSize == kUarPageSize);
constexpr auto kSpin = std::chrono::microseconds(50);
/// A pause that is shorter than any sleep, so that the caller polls again immediately.
constexpr auto kSpinPause = std::chrono::microseconds(1);
constexpr auto kShortestWait = std::chrono::microseconds(10);

/// Returns and clears the dword that software stored. 0 if it stored nothing.
std::uint32_t take(std::byte* at) {
  auto* word = reinterpret_cast<std::uint32_t*>(at);
  if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0) return 0;
  const std::uint32_t raw = __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST);
  return util::load_be32(reinterpret_cast<const std::byte*>(&raw));
}

bool has_processors_to_spare() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 1;
}

}  // namespace

util::Result<std::unique_ptr<SharedDoorbells>> SharedDoorbells::create() {
  // Byte n of the file is byte n of the BAR. Only the shared pages have memory.
  const int file = ::memfd_create("softhca-doorbells", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return util::fail_errno("doorbell pages: memfd_create");
  const auto give_up = [file](const char* what) {
    auto error = util::fail_errno(what);
    ::close(file);
    return error;
  };
  if (auto sized = os::set_file_size(file, kBarSize, "doorbell pages"); !sized) {
    ::close(file);
    return tl::unexpected(sized.error());
  }
  if (::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return give_up("doorbell pages: seal");
  }
  auto* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file, kFirst);
  if (memory == MAP_FAILED) return give_up("doorbell pages: mmap");
  return std::unique_ptr<SharedDoorbells>(
      new SharedDoorbells(file, static_cast<std::byte*>(memory)));
}

SharedDoorbells::SharedDoorbells(int file, std::byte* memory)
    : file_(file), memory_(memory), spins_(has_processors_to_spare()), pages_(kSharedUars) {}

SharedDoorbells::~SharedDoorbells() {
  ::munmap(memory_, kSize);
  ::close(file_);
}

SharedDoorbells::Listener SharedDoorbells::listen(UarPage page, Queue queue) {
  if (!contains(page)) return {};
  const auto index = page.value() - kFirstSharedUar;
  auto& listened = pages_[index];
  if (listened.queues.size() == listened.unused.size()) {
    listened_.push_back(index);
    listened.listened = listened_.size() - 1;
  }
  if (listened.unused.empty()) {
    listened.unused.push_back(static_cast<std::uint32_t>(listened.queues.size()));
    listened.queues.emplace_back();
  }
  const auto place = listened.unused.back();
  listened.unused.pop_back();
  listened.queues[place] = queue;
  return {*this, index, place};
}

void SharedDoorbells::remove(std::uint32_t page, std::uint32_t place) {
  auto& listened = pages_[page];
  listened.queues[place] = {};
  listened.unused.push_back(place);
  if (listened.queues.size() != listened.unused.size()) return;
  const auto last = listened_.back();
  listened_[listened.listened] = last;
  pages_[last].listened = listened.listened;
  listened_.pop_back();
  listened.queues.clear();
  listened.unused.clear();
}

void SharedDoorbells::clear(UarPage page) {
  if (contains(page)) std::memset(at(page.value() - kFirstSharedUar), 0, kUarPageSize);
}

void SharedDoorbells::clear_all() {
  // A hole reads as zeros, also in the guest's mapping.
  if (::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBarSize) != 0) {
    std::memset(memory_, 0, kSize);
  }
}

SharedDoorbells::Stores SharedDoorbells::poll(std::size_t index) {
  assert(index < listened_.size());
  const auto page = listened_[index];
  auto* const registers = at(page);
  Stores stores{.page = UarPage(page + kFirstSharedUar)};
  for (std::size_t i = 0; i != stores.senders.size(); ++i) {
    const auto dword = take(registers + kFirstSendRegister + i * kSendRegisterSize + kSendNumber);
    if (dword == 0) continue;
    stores.senders[i] = queue_of_doorbell(dword);
    stores.sends = true;
  }
  stores.arms = take(registers + kCqNumber) != 0;
  return stores;
}

util::Time SharedDoorbells::next_poll(util::Time now, bool found) {
  ++polls_;
  if (found) {
    ++polls_with_stores_;
    last_store_ = now;
  }
  const auto silence = now - last_store_;
  if (spins_ && silence < kSpin) return now + kSpinPause;
  return now + std::clamp<util::Duration>(silence / kPatience, kShortestWait, kLongestWait);
}

}  // namespace softhca::connectx
