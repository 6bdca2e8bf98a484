// Block guards (T10 SBC-3, RFC 1071, FC-PH) against values from public tables.

#include "rdma/guard.h"

#include <gtest/gtest.h>

#include <string_view>

namespace softhca::rdma {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Guards, TheCrcOfT10DifOfNineDigitsIsD0DB) {
  EXPECT_EQ(add_to_guard(Guard::kCrcT10Dif, 0, bytes_of("123456789"), 0), 0xD0DBu);
}

// Ethernet complements this CRC at the end; the guard does not.
TEST(Guards, TheCrc32OfNineDigitsIsTheComplementOfCBF43926) {
  EXPECT_EQ(add_to_guard(Guard::kCrc32, 0xFFFFFFFF, bytes_of("123456789"), 0), ~0xCBF43926u);
  EXPECT_EQ(guard_value(Guard::kCrc32, 0x1234), 0x1234u);
}

TEST(Guards, TheIpChecksumIsTheComplementOfTheSumOfWords) {
  // RFC 1071 3: its sum is ddf2.
  const auto sum =
      add_to_guard(Guard::kIpChecksum, 0, bytes_of({"\x00\x01\xf2\x03\xf4\xf5\xf6\xf7", 8}), 0);
  EXPECT_EQ(sum, 0xDDF2u);
  EXPECT_EQ(guard_value(Guard::kIpChecksum, sum), 0x220Du);
}

TEST(Guards, InPartsTheyAreAsInOne) {
  const std::string_view text = "thirty-four bytes, cut at each place";
  for (const auto guard : {Guard::kCrcT10Dif, Guard::kIpChecksum, Guard::kCrc32}) {
    const auto whole = add_to_guard(guard, guard_ones(guard), bytes_of(text), 0);
    for (std::size_t cut = 0; cut != text.size(); ++cut) {
      const auto first = add_to_guard(guard, guard_ones(guard), bytes_of(text.substr(0, cut)), 0);
      EXPECT_EQ(add_to_guard(guard, first, bytes_of(text.substr(cut)), cut), whole) << cut;
    }
  }
}

}  // namespace
}  // namespace softhca::rdma
