// MSI as a host sees it: through the capability's registers in config space.
#include "pcie/msi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "pcie/bus_master.h"
#include "pcie/function.h"
#include "pcie/raised_vectors.h"
#include "util/endian.h"

namespace softhca::pcie {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t kAt = ConfigSpace::kMsiAt;
constexpr std::array<Bar, 1> kMsiBars{{{.size = 0x4000}}};

class MsiFunction final : public Function {
 public:
  MsiFunction()
      : Function("msi", {}, kMsiBars,
                 {.vectors = 16, .bar = 0, .table_offset = 0x2000, .pba_offset = 0x3000}) {
    add_msi(8);
    msix().set_sink(&msix_sink);
    interrupts().msi()->set_sink(&sink, Masking::kRegisters);
  }
  util::Time run_device(util::Time) override { return util::kNever; }
  RaisedVectors sink, msix_sink;

 protected:
  void read_register(unsigned, std::uint64_t, std::span<std::byte>) override {}
  void write_register(unsigned, std::uint64_t, std::span<const std::byte>) override {}
  void reset_device() override {}
};

class MsiTest : public ::testing::Test {
 protected:
  MsiTest() { set_bus_master(function_, true); }
  std::uint32_t read(std::uint32_t offset) {
    std::array<std::byte, 4> bytes{};
    function_.read_config(kAt + offset, bytes);
    return util::load_le32(bytes.data());
  }
  void write(std::uint32_t offset, std::uint32_t value, std::size_t size = 4) {
    std::array<std::byte, 4> bytes{};
    util::store_le32(bytes.data(), value);
    function_.write_config(kAt + offset, std::span(bytes).first(size));
  }
  /// Message Control with Multiple Message Enable.
  void enable(unsigned log2_vectors) { write(2, 1u | log2_vectors << 4, 2); }
  void raise(std::uint16_t vector) { function_.interrupts().raise(vector); }

  MsiFunction function_;
  RaisedVectors& sink_ = function_.sink;
};

TEST_F(MsiTest, TheCapabilityHas64BitAddressesPerVectorMaskingAndItsVectors) {
  EXPECT_EQ(read(0) & 0xff, 0x05u);
  const auto control = read(0) >> 16;
  EXPECT_EQ(control, 1u << 8 | 1u << 7 | 3u << 1) << "masking, 64 bits, 2^3 vectors, disabled";
}

TEST_F(MsiTest, AddressDataAndMaskAreWritableAndCapabilitiesAreNot) {
  write(4, 0xffffffff);
  write(8, 0xffffffff);
  write(0x0c, 0xffffffff);
  write(0x10, 0xffffffff);
  write(0x14, 0xffffffff);
  write(2, 0xfffe, 2);
  EXPECT_EQ(read(4), 0xfffffffcu);
  EXPECT_EQ(read(8), 0xffffffffu);
  EXPECT_EQ(read(0x0c), 0xffffu);
  EXPECT_EQ(read(0x10), 0xffu) << "eight vectors";
  EXPECT_EQ(read(0x14), 0u);
  EXPECT_EQ(read(0) >> 16, 1u << 8 | 1u << 7 | 7u << 4 | 3u << 1);
}

TEST_F(MsiTest, SendsNothingWhileDisabled) {
  raise(0);
  EXPECT_THAT(sink_.raised, IsEmpty());
  EXPECT_EQ(read(0x14), 0u);
}

TEST_F(MsiTest, SendsTheVectorsThatSoftwareAllocatedAndNoOthers) {
  enable(1);
  EXPECT_EQ(function_.interrupts().vectors(), 2);
  raise(0);
  raise(1);
  raise(2);
  EXPECT_THAT(sink_.raised, ElementsAre(0, 1));
}

TEST_F(MsiTest, MoreThanTheFunctionHasCannotBeAllocated) {
  enable(7);  // a reserved encoding
  EXPECT_EQ(function_.interrupts().vectors(), 8);
  raise(7);
  raise(8);
  raise(0xffff);
  EXPECT_THAT(sink_.raised, ElementsAre(7));
}

TEST_F(MsiTest, WithoutBusMasteringAMessageIsPendingAndSentOnceLater) {
  enable(2);
  set_bus_master(function_, false);
  raise(3);
  raise(3);
  EXPECT_THAT(sink_.raised, IsEmpty());
  EXPECT_EQ(read(0x14), 1u << 3) << "Pending Bits";
  set_bus_master(function_, true);
  EXPECT_THAT(sink_.raised, ElementsAre(3));
  EXPECT_EQ(read(0x14), 0u);
}

TEST_F(MsiTest, AMaskedVectorIsPendingAndSentOnceWhenUnmasked) {
  enable(3);
  write(0x10, 1u << 5);
  raise(5);
  raise(5);
  raise(4);
  EXPECT_THAT(sink_.raised, ElementsAre(4));
  EXPECT_EQ(read(0x14), 1u << 5);
  write(0x10, 0);
  EXPECT_THAT(sink_.raised, ElementsAre(4, 5));
  EXPECT_EQ(read(0x14), 0u);
}

TEST_F(MsiTest, PendingVectorsAreClearedBeforeTheNextDriver) {
  enable(3);
  write(0x10, 1);
  raise(0);
  write(2, 0, 2);
  write(0x10, 0);
  enable(3);
  EXPECT_THAT(sink_.raised, IsEmpty());
}

TEST_F(MsiTest, InterruptsGoByTheMechanismThatSoftwareEnabled) {
  enable(3);
  raise(1);
  EXPECT_THAT(sink_.raised, ElementsAre(1));
  EXPECT_THAT(function_.msix_sink.raised, IsEmpty());

  write(2, 0, 2);
  const std::uint16_t msix_enable = 0x8000;
  function_.write_config(ConfigSpace::kMsixAt + 2, std::as_bytes(std::span(&msix_enable, 1)));
  const std::uint32_t unmasked = 0;
  function_.write_bar(0, 0x2000 + 9 * 16 + 12, std::as_bytes(std::span(&unmasked, 1)));
  EXPECT_EQ(function_.interrupts().vectors(), 16);
  raise(9);
  EXPECT_THAT(sink_.raised, ElementsAre(1));
  EXPECT_THAT(function_.msix_sink.raised, ElementsAre(9));
}

TEST_F(MsiTest, ResetDisablesItAndForgetsWhatIsPending) {
  enable(3);
  write(0x10, 1);
  raise(0);
  function_.reset();
  EXPECT_EQ(read(0) >> 16 & 1, 0u);
  EXPECT_EQ(read(0x10), 0u);
  EXPECT_EQ(read(0x14), 0u);
  enable(0);
  EXPECT_THAT(sink_.raised, IsEmpty());
}

TEST_F(MsiTest, AnExternalMaskerStandsBesideTheMaskBits) {
  RaisedVectors client;
  auto& msi = *function_.interrupts().msi();
  msi.set_sink(&client, Masking::kExternal);
  enable(3);
  raise(2);
  EXPECT_THAT(client.raised, IsEmpty());
  write(0x10, 1u << 2);
  msi.set_vector_masked(2, false);
  EXPECT_THAT(client.raised, IsEmpty());
  EXPECT_EQ(read(0x14), 1u << 2);
  write(0x10, 0);
  EXPECT_THAT(client.raised, ElementsAre(2));
}

}  // namespace
}  // namespace softhca::pcie
