#include "wire/checksum.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "hex.h"

namespace softhca::wire {
namespace {

/// RFC 1071 4.1, as literally as possible.
std::uint16_t reference(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    sum += std::to_integer<unsigned>(bytes[i]) << 8;
    if (i + 1 < bytes.size()) sum += std::to_integer<unsigned>(bytes[i + 1]);
  }
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

TEST(Checksum, SumOfTheExampleOfRfc1071Section3) {
  ChecksumSum sum;
  sum.add(from_hex("0001f203f4f5f6f7"));
  EXPECT_EQ(sum.value(), 0xddf2);
  EXPECT_EQ(sum.checksum(), 0x220d);
}

TEST(Checksum, AgreesWithTheReferenceForEveryLengthAndCut) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(300);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    for (auto& byte : bytes) byte = std::byte(random());
    const auto part = std::span<const std::byte>(bytes).first(size);
    const auto expected = reference(part);
    for (std::size_t cut = 0; cut <= size; cut += 1 + size / 16) {
      const auto second_cut = cut + (size - cut) / 3;
      ChecksumSum sum;
      sum.add(part.first(cut));
      sum.add(part.subspan(cut, second_cut - cut));
      sum.add(part.subspan(second_cut));
      ASSERT_EQ(sum.value(), expected) << size << " " << cut;
    }
  }
}

TEST(Checksum, OfOnePieceEqualsTheReference) {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(1600);
  for (auto& byte : bytes) byte = std::byte(random());
  for (std::size_t size = 0; size <= 1560; ++size) {
    const auto part = std::span<const std::byte>(bytes).subspan(size % 37, size);
    ASSERT_EQ(ChecksumSum::of(part), reference(part)) << size;
  }
}

TEST(Checksum, OfACopyEqualsThatOfTheSource) {
  std::mt19937 random(4);
  std::vector<std::byte> bytes(1600);
  for (auto& byte : bytes) byte = std::byte(random());
  for (std::size_t size = 0; size <= 1560; ++size) {
    const auto part = std::span<const std::byte>(bytes).subspan(size % 37, size);
    std::vector<std::byte> to(size + 80, std::byte{0xA5});
    auto expected = to;
    const auto at = static_cast<std::ptrdiff_t>(size % 33);
    std::ranges::copy(part, expected.begin() + at);
    ASSERT_EQ(ChecksumSum::copy(to.data() + at, part), reference(part)) << size;
    ASSERT_EQ(to, expected) << size;
  }
}

TEST(Checksum, AllOnesDoNotOverflow) {
  const std::vector<std::byte> ones(1 << 20, std::byte{0xff});
  ChecksumSum sum;
  for (int i = 0; i != 8; ++i) sum.add(ones);
  EXPECT_EQ(sum.value(), 0xffff);
}

TEST(Checksum, AgreesWithTheReferenceForLongPieces) {
  std::mt19937 random(2);
  std::vector<std::byte> bytes(5 << 20);
  for (auto& byte : bytes) byte = std::byte(random());
  for (const std::size_t size : {256, 257, 383, 384, 1500, 9000, 65535, (1 << 19) + 129, 5 << 20}) {
    // At any alignment.
    const auto part = std::span<const std::byte>(bytes).subspan(random() % 16).first(size - 15);
    ChecksumSum sum;
    sum.add(part);
    EXPECT_EQ(sum.value(), reference(part)) << size;
  }
  for (const auto fill : {std::byte{0}, std::byte{0x7f}, std::byte{0x80}}) {
    std::ranges::fill(bytes, fill);
    ChecksumSum sum;
    sum.add(bytes);
    EXPECT_EQ(sum.value(), reference(bytes));
  }
}

TEST(Checksum, NumbersCountAsTheirBytes) {
  ChecksumSum numbers, bytes;
  numbers.add_u32(0x01020304);
  numbers.add_u16(0xfffe);
  bytes.add(from_hex("01020304fffe"));
  EXPECT_EQ(numbers.value(), bytes.value());
}

}  // namespace
}  // namespace softhca::wire
