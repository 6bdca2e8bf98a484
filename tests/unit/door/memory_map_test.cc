// The kernel's view of a process's mappings.
#include "door/memory/memory_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "door/memory/pages.h"

namespace softhca::door {
namespace {

/// Five pages; the third is of a file.
class MemoryMap : public testing::Test {
 protected:
  MemoryMap() {
    EXPECT_EQ(::ftruncate(file_, kPage), 0);
    EXPECT_EQ(::fstat(file_, &status_), 0);
    EXPECT_NE(
        ::mmap(area_ + 2 * kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, 0),
        MAP_FAILED);
    for (std::size_t i = 0; i != 5; ++i) area_[i * kPage] = std::byte{1};
  }
  ~MemoryMap() override {
    ::munmap(area_, 5 * kPage);
    ::close(file_);
  }
  std::uint64_t page(std::size_t number) const {
    return reinterpret_cast<std::uint64_t>(area_ + number * kPage);
  }

  const int file_ = ::memfd_create("pages", MFD_CLOEXEC);
  struct stat status_{};
  const IsFile is_wanted_ = [this](dev_t device, ino_t inode) {
    return device == status_.st_dev && inode == status_.st_ino;
  };
  std::byte* const area_ = static_cast<std::byte*>(
      ::mmap(nullptr, 5 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

/// `maps(begin, end)`: whether the file is mapped there.
template <class Maps>
void expect_in_third(const Maps& maps, std::uint64_t area) {
  for (std::size_t first = 0; first != 5; ++first) {
    for (std::size_t end = first + 1; end != 6; ++end) {
      EXPECT_EQ(maps(area + first * kPage, area + end * kPage), first <= 2 && end >= 3)
          << first << " to " << end;
    }
  }
  EXPECT_TRUE(maps(area + 2 * kPage + 8, area + 2 * kPage + 9));
  EXPECT_FALSE(maps(area + 2 * kPage - 8, area + 2 * kPage));
}

TEST_F(MemoryMap, AFileIsFoundInEachRangeThatHasAPageOfIt) {
  bool found = false;
  if (maps_file_by_query(page(0), page(1), is_wanted_, found) != 0) {
    GTEST_SKIP() << "before Linux 6.11";
  }
  expect_in_third([this](auto begin, auto end) { return maps_file(begin, end, is_wanted_); },
                  page(0));
}

TEST_F(MemoryMap, AFileIsFoundWhereARangeBeginsOrEnds) {
  EXPECT_TRUE(maps_file(page(2), page(3), is_wanted_));
  EXPECT_TRUE(maps_file(page(0), page(3), is_wanted_));
  EXPECT_TRUE(maps_file(page(2), page(5), is_wanted_));
  EXPECT_FALSE(maps_file(page(0), page(2), is_wanted_));
}

TEST_F(MemoryMap, TheOldWayFindsItAsWell) {
  expect_in_third(
      [this](auto begin, auto end) { return maps_file_by_reading(begin, end, is_wanted_); },
      page(0));
}

TEST_F(MemoryMap, AnotherFileIsNotFound) {
  const IsFile none = [](dev_t, ino_t) { return false; };
  EXPECT_FALSE(maps_file(page(0), page(5), none));
  EXPECT_FALSE(maps_file_by_reading(page(0), page(5), none));
}

TEST_F(MemoryMap, APageOfAFileIsDistinguishedFromOneOfTheProgramsOwn) {
  EXPECT_FALSE(may_be_of_file(page(1) + 8));
  EXPECT_TRUE(may_be_of_file(page(2) + 8));
}

}  // namespace
}  // namespace softhca::door
