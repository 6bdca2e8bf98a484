// Pages opened for the device, and stand-ins where nothing is mapped.
#include "door/memory/stand_ins.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "door/memory/memory_map.h"
#include "door/memory/pages.h"

namespace {

/// How mremap() behaves.
struct Moves {
  int refused = 0;              ///< these flags give EINVAL, as in older kernels
  std::function<void()> after;  ///< what another thread does once the mapping has moved
};
Moves moves;

}  // namespace

// Replaces libc's in this program.
extern "C" void* mremap(void* from, std::size_t size, std::size_t new_size, int flags,
                        ...) noexcept {
  va_list more;
  va_start(more, flags);
  void* const to = va_arg(more, void*);
  va_end(more);
  if ((flags & moves.refused) != 0) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  const auto got = ::syscall(SYS_mremap, from, size, new_size, flags, to);
  if (got != -1) {
    if (const auto after = std::exchange(moves.after, nullptr)) after();
  }
  return reinterpret_cast<void*>(got);
}

namespace softhca::door {
namespace {

class DoorStandIns : public testing::Test {
 protected:
  DoorStandIns() { StandIns::prepare(); }
  ~DoorStandIns() override {
    moves = {};
    OpenedPages::close();
    StandIns::release();
    ::munmap(area_, kSize);
  }
  static constexpr std::size_t kSize = 16 * kPage;

  std::byte* page(std::size_t i) const { return area_ + i * kPage; }
  static std::uint64_t number(const std::byte* place) {
    return reinterpret_cast<std::uint64_t>(place);
  }
  void protect(std::size_t i, int how) { ASSERT_EQ(::mprotect(page(i), kPage, how), 0); }
  /// Maps a page with a 9 in it, as another thread does. False: something else is there.
  bool map_another(std::size_t i, int how) const {
    void* const got =
        ::mmap(page(i), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0);
    if (got == MAP_FAILED) return false;
    *static_cast<std::byte*>(got) = std::byte{9};
    return true;
  }
  std::optional<int> protection(std::size_t i) const { return protection_of(number(page(i))); }

  std::byte* const area_ = static_cast<std::byte*>(
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

TEST_F(DoorStandIns, TheKernelReportsTheProtectionOfAPage) {
  protect(1, PROT_READ | PROT_EXEC);
  protect(2, PROT_NONE);
  EXPECT_EQ(protection(0), PROT_READ | PROT_WRITE);
  EXPECT_EQ(protection(1), PROT_READ | PROT_EXEC);
  EXPECT_EQ(protection(2), PROT_NONE);
  ASSERT_EQ(::munmap(page(3), kPage), 0);
  EXPECT_EQ(protection(3), std::nullopt);
  EXPECT_EQ(protection(4), PROT_READ | PROT_WRITE);
}

// Linux before 6.11 has no query.
TEST_F(DoorStandIns, TheListOfMappingsReportsTheProtectionOfAPage) {
  protect(1, PROT_READ | PROT_EXEC);
  protect(2, PROT_NONE);
  ASSERT_EQ(::munmap(page(3), kPage), 0);
  const auto listed = [&](std::size_t i) { return protection_by_reading(number(page(i))); };
  EXPECT_EQ(listed(0), PROT_READ | PROT_WRITE);
  EXPECT_EQ(listed(1), PROT_READ | PROT_EXEC);
  EXPECT_EQ(listed(2), PROT_NONE);
  EXPECT_EQ(listed(3), std::nullopt);
}

// The query for a single mapping and the reading of all mappings.
TEST_F(DoorStandIns, BothWaysToAskForAProtectionAgree) {
  protect(1, PROT_READ | PROT_EXEC);
  protect(2, PROT_NONE);
  ASSERT_EQ(::munmap(page(3), kPage), 0);
  std::optional<int> queried;
  if (protection_by_query(number(page(0)), queried) != 0) GTEST_SKIP() << "before Linux 6.11";
  for (std::size_t i = 0; i != 5; ++i) {
    EXPECT_EQ(protection_by_query(number(page(i)), queried), 0);
    EXPECT_EQ(queried, protection_by_reading(number(page(i)))) << i;
  }
}

TEST_F(DoorStandIns, APageIsOpenAndThenAsItWas) {
  protect(0, PROT_READ | PROT_EXEC);
  protect(1, PROT_NONE);
  ASSERT_TRUE(OpenedPages::open(number(page(0)), true));
  ASSERT_TRUE(OpenedPages::open(number(page(1)), false));
  EXPECT_TRUE(OpenedPages::any());
  EXPECT_EQ(protection(0), PROT_READ | PROT_WRITE | PROT_EXEC);
  EXPECT_EQ(protection(1), PROT_READ);
  OpenedPages::close();
  EXPECT_FALSE(OpenedPages::any());
  EXPECT_EQ(protection(0), PROT_READ | PROT_EXEC);
  EXPECT_EQ(protection(1), PROT_NONE);
}

TEST_F(DoorStandIns, APageThatIsOpenedTwiceIsAsItWasBeforeTheFirstTime) {
  protect(0, PROT_NONE);
  ASSERT_TRUE(OpenedPages::open(number(page(0)), false));
  ASSERT_TRUE(OpenedPages::open(number(page(0)), true));
  OpenedPages::close();
  EXPECT_EQ(protection(0), PROT_NONE);
}

TEST_F(DoorStandIns, AFewPagesAreOpenAtATime) {
  for (std::size_t i = 0; i != 16; ++i) {
    protect(i, PROT_READ);
    ASSERT_TRUE(OpenedPages::open(number(page(i)), true));
  }
  EXPECT_EQ(protection(0), PROT_READ);
  EXPECT_EQ(protection(15), PROT_READ | PROT_WRITE);
  OpenedPages::close();
  for (std::size_t i = 0; i != 16; ++i) EXPECT_EQ(protection(i), PROT_READ) << i;
}

TEST_F(DoorStandIns, AFileThatMayNotBeWrittenIsNotOpened) {
  const int writable = ::memfd_create("file", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(writable, kPage), 0);
  const auto name = "/proc/self/fd/" + std::to_string(writable);
  const int file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_NE(::mmap(page(0), kPage, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0), MAP_FAILED);
  EXPECT_FALSE(OpenedPages::open(number(page(0)), true));
  EXPECT_EQ(protection(0), PROT_READ);
  ::close(file);
  ::close(writable);
}

TEST_F(DoorStandIns, AMissingPageIsReplacedByAnEmptyOneForAWhile) {
  ASSERT_EQ(::munmap(page(0), kPage), 0);
  ASSERT_EQ(StandIns::place(number(page(0))), StandIns::Placed::kPlaced);
  EXPECT_EQ(*page(0), std::byte{0});
  StandIns::release();
  EXPECT_EQ(protection(0), std::nullopt);
}

TEST_F(DoorStandIns, APageThatAnotherThreadHasMappedStays) {
  *page(0) = std::byte{7};
  EXPECT_EQ(StandIns::place(number(page(0))), StandIns::Placed::kTaken);
  StandIns::release();
  EXPECT_EQ(*page(0), std::byte{7});
}

TEST_F(DoorStandIns, APageWaitsElsewhereAndReturns) {
  *page(3) = std::byte{7};
  protect(3, PROT_READ);
  ASSERT_EQ(StandIns::replace(number(page(3))), StandIns::Placed::kPlaced);
  EXPECT_EQ(*page(3), std::byte{0});
  *page(3) = std::byte{9};
  StandIns::release();
  EXPECT_EQ(*page(3), std::byte{7});
  EXPECT_EQ(protection(3), PROT_READ);
  EXPECT_EQ(protection(2), PROT_READ | PROT_WRITE);
}

// mmap() with MAP_FIXED or munmap(), in the middle of a turn.
TEST_F(DoorStandIns, APageThatAnotherThreadMapsOverAStandInStays) {
  ASSERT_EQ(::munmap(page(0), kPage), 0);
  ASSERT_EQ(StandIns::place(number(page(0))), StandIns::Placed::kPlaced);
  ASSERT_TRUE(map_another(0, MAP_FIXED));
  StandIns::release();
  ASSERT_TRUE(protection(0));
  EXPECT_EQ(*page(0), std::byte{9});
}

TEST_F(DoorStandIns, APageDoesNotReturnOverWhatAnotherThreadHasMapped) {
  *page(3) = std::byte{7};
  ASSERT_EQ(StandIns::replace(number(page(3))), StandIns::Placed::kPlaced);
  ASSERT_TRUE(map_another(3, MAP_FIXED));
  StandIns::release();
  EXPECT_EQ(*page(3), std::byte{9});
}

TEST_F(DoorStandIns, APageThatIsUnmappedDuringTheTurnDoesNotReturn) {
  ASSERT_EQ(StandIns::replace(number(page(3))), StandIns::Placed::kPlaced);
  ASSERT_EQ(::munmap(page(3), kPage), 0);
  StandIns::release();
  EXPECT_EQ(protection(3), std::nullopt);
}

TEST_F(DoorStandIns, NoHoleIsLeftWhileAPageIsReplaced) {
  *page(3) = std::byte{7};
  bool landed = true;
  moves.after = [&] {
    landed = map_another(3, MAP_FIXED_NOREPLACE);
    if (landed) ::munmap(page(3), kPage);
  };
  EXPECT_EQ(StandIns::replace(number(page(3))), StandIns::Placed::kPlaced);
  EXPECT_FALSE(landed);
  StandIns::release();
  EXPECT_EQ(*page(3), std::byte{7});
}

// Huge pages, and Linux before 5.13.
TEST_F(DoorStandIns, APageThatMustMoveFirstWaitsUntilItsPlaceIsFree) {
  *page(3) = std::byte{7};
  moves.refused = MREMAP_DONTUNMAP;
  moves.after = [&] { EXPECT_TRUE(map_another(3, MAP_FIXED_NOREPLACE)); };
  EXPECT_EQ(StandIns::replace(number(page(3))), StandIns::Placed::kTaken);
  StandIns::release();
  EXPECT_EQ(*page(3), std::byte{9});
  ASSERT_EQ(::munmap(page(3), kPage), 0);
  StandIns::release();
  ASSERT_TRUE(protection(3));
  EXPECT_EQ(*page(3), std::byte{7});
}

TEST_F(DoorStandIns, APageThatMustMoveFirstReturns) {
  *page(3) = std::byte{7};
  moves.refused = MREMAP_DONTUNMAP;
  ASSERT_EQ(StandIns::replace(number(page(3))), StandIns::Placed::kPlaced);
  EXPECT_EQ(*page(3), std::byte{0});
  StandIns::release();
  EXPECT_EQ(*page(3), std::byte{7});
}

// A neighbor of the page must not be moved instead.
TEST_F(DoorStandIns, NothingMovesForAPageThatIsGone) {
  ASSERT_EQ(::munmap(page(3), kPage), 0);
  for (const int refused : {0, MREMAP_DONTUNMAP}) {
    moves.refused = refused;
    EXPECT_EQ(StandIns::replace(number(page(3))), StandIns::Placed::kTaken);
    EXPECT_EQ(protection(3), std::nullopt);
  }
}

TEST_F(DoorStandIns, AFileIsFoundWhereItAloneIsMapped) {
  const int file = ::memfd_create("file", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, kPage), 0);
  struct stat status{};
  ASSERT_EQ(::fstat(file, &status), 0);
  for (const std::size_t i : {2, 3}) {
    ASSERT_NE(::mmap(page(i), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0),
              MAP_FAILED);
  }
  *page(2) = std::byte{7};
  ASSERT_EQ(::munmap(page(5), kPage), 0);
  for (const auto& ask : {maps_only, maps_only_by_reading}) {
    const auto only = [&](std::size_t first, std::size_t end) {
      return ask(number(page(first)), number(page(end)), status.st_dev, status.st_ino);
    };
    EXPECT_EQ(only(2, 4), true);
    EXPECT_EQ(only(1, 4), false);
    EXPECT_EQ(only(2, 5), false);
    EXPECT_EQ(only(5, 6), false) << "a hole";
  }
  ::close(file);
}

}  // namespace
}  // namespace softhca::door
