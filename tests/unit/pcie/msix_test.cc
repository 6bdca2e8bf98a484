#include "pcie/msix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "pcie/raised_vectors.h"
#include "util/endian.h"

namespace softhca::pcie {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MsixTest : public ::testing::Test {
 protected:
  MsixTest() : msix_({.vectors = 70, .bar = 0, .table_offset = 0x2000, .pba_offset = 0x3000}) {
    msix_.set_sink(&sink_);
  }
  void set_table_mask(std::uint16_t vector, bool masked) {
    std::array<std::byte, 4> control{};
    util::store_le32(control.data(), masked);
    msix_.write_table(vector * 16u + 12, control);
  }
  std::uint32_t table_word(std::uint32_t offset) const {
    std::array<std::byte, 4> word;
    msix_.read_table(offset, word);
    return util::load_le32(word.data());
  }
  RaisedVectors sink_;
  Msix msix_;
};

TEST_F(MsixTest, EveryVectorIsMaskedAfterReset) {
  for (std::uint16_t v = 0; v < 70; ++v) {
    EXPECT_EQ(table_word(v * 16u + 12), 1u);
    EXPECT_TRUE(msix_.masked(v));
  }
}

TEST_F(MsixTest, SendsNothingWhileDisabled) {
  set_table_mask(3, false);
  msix_.raise(3);
  EXPECT_THAT(sink_.raised, IsEmpty());
  EXPECT_FALSE(msix_.pending(3));
}

TEST_F(MsixTest, SendsAnUnmaskedVectorWhenEnabled) {
  msix_.set_control(true, false);
  set_table_mask(3, false);
  msix_.raise(3);
  EXPECT_THAT(sink_.raised, ElementsAre(3));
  EXPECT_FALSE(msix_.pending(3));
}

TEST_F(MsixTest, MaskedVectorIsPendingAndSentOnceWhenUnmasked) {
  msix_.set_control(true, false);
  msix_.raise(65);
  msix_.raise(65);
  EXPECT_THAT(sink_.raised, IsEmpty());
  std::array<std::byte, 16> pba;
  msix_.read_pba(0, pba);
  EXPECT_EQ(util::load_le64(&pba[8]), 1u << 1);
  set_table_mask(65, false);
  EXPECT_THAT(sink_.raised, ElementsAre(65));
  msix_.read_pba(0, pba);
  EXPECT_EQ(util::load_le64(&pba[8]), 0u);
}

TEST_F(MsixTest, FunctionMaskHoldsAllVectorsBack) {
  msix_.set_control(true, true);
  set_table_mask(1, false);
  set_table_mask(2, false);
  msix_.raise(2);
  msix_.raise(1);
  EXPECT_THAT(sink_.raised, IsEmpty());
  msix_.set_control(true, false);
  EXPECT_THAT(sink_.raised, ElementsAre(1, 2));
}

TEST_F(MsixTest, DisablingForgetsWhatWasPending) {
  msix_.set_control(true, false);
  msix_.raise(5);
  msix_.set_control(false, false);
  EXPECT_FALSE(msix_.pending(5));
  msix_.set_control(true, false);
  set_table_mask(5, false);
  EXPECT_THAT(sink_.raised, IsEmpty());
}

TEST_F(MsixTest, DropsVectorsBeyondTheTable) {
  msix_.set_control(true, false);
  msix_.raise(70);
  msix_.raise(0xffff);
  EXPECT_THAT(sink_.raised, IsEmpty());
}

TEST_F(MsixTest, TableKeepsAddressAndDataButNoReservedBits) {
  std::array<std::byte, 16> entry;
  entry.fill(std::byte{0xff});
  msix_.write_table(16, entry);
  EXPECT_EQ(table_word(16), 0xfffffffcu);
  EXPECT_EQ(table_word(20), 0xffffffffu);
  EXPECT_EQ(table_word(24), 0xffffffffu);
  EXPECT_EQ(table_word(28), 1u);
}

TEST_F(MsixTest, ExternalMaskerDecidesAlone) {
  RaisedVectors client;
  msix_.set_sink(&client, Masking::kExternal);
  msix_.set_control(true, true);
  msix_.raise(4);
  EXPECT_TRUE(msix_.pending(4));
  set_table_mask(4, false);
  EXPECT_THAT(client.raised, IsEmpty());
  msix_.set_vector_masked(4, false);
  EXPECT_THAT(client.raised, ElementsAre(4));
  msix_.raise(4);
  EXPECT_THAT(client.raised, ElementsAre(4, 4));
  msix_.set_vector_masked(4, true);
  msix_.raise(4);
  EXPECT_THAT(client.raised, ElementsAre(4, 4));
  EXPECT_TRUE(msix_.pending(4));
}

TEST_F(MsixTest, WithoutBusMasteringAMessageIsPendingAndSentOnceLater) {
  msix_.set_control(true, false);
  set_table_mask(3, false);
  msix_.set_bus_master(false);
  msix_.raise(3);
  msix_.raise(3);
  EXPECT_THAT(sink_.raised, IsEmpty());
  EXPECT_TRUE(msix_.pending(3));
  set_table_mask(3, true);
  set_table_mask(3, false);
  EXPECT_THAT(sink_.raised, IsEmpty()) << "unmasking sends nothing either";
  msix_.set_bus_master(true);
  EXPECT_THAT(sink_.raised, ElementsAre(3));
  EXPECT_FALSE(msix_.pending(3));
}

TEST_F(MsixTest, WithoutBusMasteringAnExternalMaskerCannotLetAMessageOut) {
  RaisedVectors client;
  msix_.set_sink(&client, Masking::kExternal);
  msix_.set_control(true, false);
  msix_.set_bus_master(false);
  msix_.raise(4);
  msix_.set_vector_masked(4, false);
  msix_.raise(4);
  EXPECT_THAT(client.raised, IsEmpty());
  EXPECT_TRUE(msix_.pending(4));
  msix_.set_bus_master(true);
  EXPECT_THAT(client.raised, ElementsAre(4));
}

TEST_F(MsixTest, ResetKeepsTheSinkAndItsMasks) {
  RaisedVectors client;
  msix_.set_sink(&client, Masking::kExternal);
  msix_.set_control(true, false);
  msix_.set_vector_masked(4, false);
  msix_.raise(6);
  msix_.reset();
  EXPECT_FALSE(msix_.enabled());
  EXPECT_FALSE(msix_.pending(6));
  EXPECT_FALSE(msix_.masked(4));
  EXPECT_TRUE(msix_.masked(6));
}

TEST_F(MsixTest, WithoutASinkInterruptsAreDropped) {
  msix_.set_sink(nullptr);
  msix_.set_control(true, false);
  msix_.raise(1);
  EXPECT_FALSE(msix_.pending(1));
}

}  // namespace
}  // namespace softhca::pcie
