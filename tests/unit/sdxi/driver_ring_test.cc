// The order in which src/driver/sdxi writes descriptors to a ring (SDXI 5.2, W-13), observed store
// by store. The page with the valid bit that the function polls is write-protected. The first store
// to it traps, and memory then shows what the function would find.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "driver/sdxi/ring.h"

namespace softhca::driver::sdxi::test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlot = spec::kDescriptorSize;
constexpr std::size_t kHead = sizeof(std::uint64_t);

/// Two pages. The first is write-protected until the first store to it; the contents of the second
/// at that time are saved.
class ProtectedPages {
 public:
  ProtectedPages() {
    auto* mapped =
        ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    pages_ = static_cast<std::byte*>(mapped);
    caught_in_ = this;
    struct sigaction action{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    EXPECT_EQ(::sigaction(SIGSEGV, &action, &before_), 0);
  }
  ~ProtectedPages() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    caught_in_ = nullptr;
    ::munmap(pages_, 2 * kPage);
  }
  ProtectedPages(const ProtectedPages&) = delete;
  ProtectedPages& operator=(const ProtectedPages&) = delete;

  std::byte* second() { return pages_ + kPage; }
  void protect() { EXPECT_EQ(::mprotect(pages_, kPage, PROT_READ), 0); }
  /// Offset of the first store to the first page, counted back from the second page; 0: there was
  /// none.
  std::size_t stored_before_second() const { return stored_at_; }
  /// The second page as it was at that store.
  const std::array<std::byte, kPage>& second_then() const { return second_then_; }

 private:
  static void handle(int, siginfo_t* info, void*) {
    auto* at = static_cast<std::byte*>(info->si_addr);
    auto& pages = *caught_in_;
    if (at < pages.pages_ || at >= pages.second()) {
      ::signal(SIGSEGV, SIG_DFL);  // a fault outside these pages
      return;
    }
    pages.stored_at_ = static_cast<std::size_t>(pages.second() - at);
    std::memcpy(pages.second_then_.data(), pages.second(), kPage);
    ::mprotect(pages.pages_, kPage, PROT_READ | PROT_WRITE);
  }

  static inline ProtectedPages* caught_in_ = nullptr;
  std::byte* pages_ = nullptr;
  struct sigaction before_{};
  std::size_t stored_at_ = 0;
  std::array<std::byte, kPage> second_then_{};
};

/// A descriptor with nonzero bytes after the first 8.
Descriptor marked(std::uint8_t mark) {
  std::array<std::byte, 32> data;
  data.fill(std::byte{mark});
  return Descriptor::write({0x0101010101010101u * mark}, data);
}

bool is_valid(std::span<const std::byte> slot) {
  return util::View<spec::dsc_header>(slot).get(spec::dsc_header::vl) != 0;
}

/// Enqueues `count` descriptors. The head of the first ends at the end of the protected page.
/// Compares the memory at the first store to that page with the final memory.
void expect_head_is_last(std::size_t count) {
  constexpr std::size_t kEntries = 16;
  ProtectedPages pages;
  // Slot 3 begins 8 bytes before the second page.
  constexpr std::uint64_t kFirst = 3;
  const std::span slots(pages.second() - kHead - kFirst * kSlot, kEntries * kSlot);
  alignas(8) std::array<std::byte, 8> read{}, write{};
  util::store_le64(read.data(), kFirst);
  util::store_le64(write.data(), kFirst);
  const Ring ring(slots, read.data(), write.data());
  std::vector<Descriptor> descriptors;
  for (std::size_t i = 0; i < count; ++i) {
    descriptors.push_back(marked(static_cast<std::uint8_t>(i + 1)));
  }
  pages.protect();
  EXPECT_EQ(ring.enqueue(descriptors), kFirst + count);

  EXPECT_EQ(pages.stored_before_second(), kHead) << "the head of the first descriptor";
  EXPECT_TRUE(is_valid(slots.subspan(kFirst * kSlot)));
  const auto written = count * kSlot - kHead;
  const std::span now(pages.second(), written);
  EXPECT_TRUE(std::ranges::equal(std::span(pages.second_then()).first(written), now))
      << "all else was written before it";
  EXPECT_TRUE(std::ranges::any_of(now, [](std::byte b) { return b != std::byte{0}; }));
  for (std::size_t i = 1; i < count; ++i) {
    EXPECT_TRUE(is_valid(slots.subspan((kFirst + i) * kSlot))) << i;
  }
}

TEST(DriverRing, TheValidBitIsWrittenAfterTheRestOfItsDescriptor) { expect_head_is_last(1); }

// The function executes descriptors in ring order, and stops at the first invalid one.
TEST(DriverRing, TheValidBitOfTheFirstOfSeveralIsWrittenAfterAllOthers) {
  expect_head_is_last(2);
  expect_head_is_last(10);
}

}  // namespace
}  // namespace softhca::driver::sdxi::test
