#include "util/field.h"

#include <gtest/gtest.h>

#include <array>

namespace softhca::util {
namespace {

struct Sample {
  static constexpr std::size_t kSize = 16;
  static constexpr Field<Sample, ByteOrder::kBig, 0x0, 31, 24> top{};
  static constexpr Field<Sample, ByteOrder::kBig, 0x0, 23, 0> number{};
  static constexpr Field<Sample, ByteOrder::kBig, 0x8, 63, 0> address{};
  static constexpr Field<Sample, ByteOrder::kBig, 0x4, 31, 31> flag{};
  static constexpr ByteField<Sample, 0x4, 4> raw{};
};

struct LittleSample {
  static constexpr std::size_t kSize = 8;
  static constexpr Field<LittleSample, ByteOrder::kLittle, 0x0, 40, 33> middle{};
};

TEST(Field, BigEndianBit31IsTheTopBitOfTheByteAtTheLowestAddress) {
  std::array<std::byte, 16> bytes{};
  MutableView<Sample> view(bytes);
  view.set(Sample::top, 0xAB);
  view.set(Sample::number, 0x123456);
  view.set(Sample::flag, 1);
  EXPECT_EQ(bytes[0], std::byte{0xAB});
  EXPECT_EQ(bytes[3], std::byte{0x56});
  EXPECT_EQ(bytes[4], std::byte{0x80});
}

TEST(Field, WritingOneFieldLeavesItsNeighboursAlone) {
  Struct<Sample> s;
  s.set(Sample::top, 0xFF);
  s.set(Sample::number, 0xFFFFFF);
  s.set(Sample::top, 0);
  EXPECT_EQ(s.get(Sample::number), 0xFFFFFFu);
  EXPECT_EQ(s.get(Sample::top), 0u);
}

TEST(Field, A64BitFieldHasItsHighDwordFirst) {
  Struct<Sample> s;
  s.set(Sample::address, 0x0102030405060708ull);
  EXPECT_EQ(s.bytes()[8], std::byte{1});
  EXPECT_EQ(s.bytes()[15], std::byte{8});
  EXPECT_EQ(s.get(Sample::address), 0x0102030405060708ull);
}

TEST(Field, LittleEndianBitsCountFromTheLowestByte) {
  Struct<LittleSample> s;
  s.set(LittleSample::middle, 0xFF);
  EXPECT_EQ(s.bytes()[4], std::byte{0xFE});
  EXPECT_EQ(s.bytes()[5], std::byte{0x01});
}

TEST(Field, UninterpretedBytesAreASpanOfTheStructure) {
  Struct<Sample> s;
  s.sub(Sample::raw)[3] = std::byte{7};
  EXPECT_EQ(s.bytes()[7], std::byte{7});
  EXPECT_EQ(s.get(Sample::raw).size(), 4u);
}

// Optimized builds leave these assertions out (util/hot_assert.h).
#ifdef SOFTHCA_HOT_ASSERTS
TEST(FieldDeathTest, AValueThatDoesNotFitIsABugOfTheCaller) {
  Struct<Sample> s;
  EXPECT_DEATH(s.set(Sample::top, 0x100), "does not fit");
}

TEST(ViewDeathTest, AViewNeedsAllBytesOfItsStructure) {
  std::array<std::byte, 15> bytes{};
  EXPECT_DEATH(View<Sample>{bytes}, "size");
}
#endif

}  // namespace
}  // namespace softhca::util
