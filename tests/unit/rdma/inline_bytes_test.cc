#include "rdma/inline_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace softhca::rdma {
namespace {

std::vector<std::byte> numbered(std::size_t size, unsigned first = 0) {
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = std::byte(++first);
  return bytes;
}

bool same(const InlineBytes& bytes, std::span<const std::byte> expected) {
  return std::ranges::equal(std::span<const std::byte>(bytes), expected);
}

constexpr std::size_t kShort = InlineBytes::kShort;

TEST(InlineBytes, AreWhatWasAssignedLast) {
  InlineBytes bytes;
  EXPECT_TRUE(bytes.empty());
  for (const std::size_t size : {std::size_t{1}, std::size_t{8}, std::size_t{16}, kShort,
                                 kShort + 1, std::size_t{400}, std::size_t{3}, std::size_t{0}}) {
    bytes.assign(numbered(size));
    EXPECT_EQ(bytes.size(), size);
    EXPECT_TRUE(same(bytes, numbered(size))) << size;
  }
  bytes.assign(numbered(40));
  bytes.clear();
  EXPECT_TRUE(bytes.empty());
}

TEST(InlineBytes, GrowByWhatIsAppendedWhereverTheyStand) {
  for (const auto& [first, second] : {std::pair<std::size_t, std::size_t>{0, 5},
                                      {5, 7},
                                      {kShort - 1, 1},
                                      {kShort, 1},
                                      {3, kShort},
                                      {kShort + 1, 2},
                                      {100, 300}}) {
    InlineBytes bytes;
    bytes.assign(numbered(first));
    bytes.append(numbered(second, static_cast<unsigned>(first)));
    EXPECT_TRUE(same(bytes, numbered(first + second))) << first << " and " << second;
  }
}

TEST(InlineBytes, NothingOfAnEarlierLongerWqeIsLeft) {
  InlineBytes bytes;
  bytes.assign(numbered(200));
  bytes.assign(numbered(100));
  bytes.append(numbered(50, 100));
  EXPECT_TRUE(same(bytes, numbered(150)));
  bytes.assign(numbered(5));
  bytes.append(numbered(60, 5));
  EXPECT_TRUE(same(bytes, numbered(65)));
}

TEST(InlineBytes, MoveAlongWithTheirRequest) {
  for (const std::size_t size : {std::size_t{8}, std::size_t{100}}) {
    InlineBytes bytes;
    bytes.assign(numbered(size));
    const InlineBytes copy = bytes;
    const InlineBytes moved = std::move(bytes);
    EXPECT_TRUE(same(copy, numbered(size)));
    EXPECT_TRUE(same(moved, numbered(size)));
  }
}

}  // namespace
}  // namespace softhca::rdma
