#include "pcie/function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "pcie/bus_master.h"
#include "util/endian.h"

namespace softhca::pcie {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Access {
  unsigned bar;
  std::uint64_t offset;
  std::size_t length;
  bool operator==(const Access&) const = default;
};

constexpr std::array<Bar, 3> kFunctionBars{
    {{.size = 0x4000, .is_64bit = true}, {}, {.size = 0x1000}}};

class RecordedFunction final : public Function {
 public:
  RecordedFunction()
      : Function("recorder", {}, kFunctionBars,
                 {.vectors = 3, .bar = 0, .table_offset = 0x2000, .pba_offset = 0x2030}) {}
  util::Time run_device(util::Time) override { return util::kNever; }
  std::vector<Access> reads, writes;
  unsigned resets = 0;

 protected:
  void read_register(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override {
    reads.push_back({bar, offset, out.size()});
    for (auto& byte : out) byte = std::byte{0xaa};
  }
  void write_register(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override {
    writes.push_back({bar, offset, in.size()});
  }
  void reset_device() override { ++resets; }
};

class FunctionTest : public ::testing::Test {
 protected:
  RecordedFunction function_;
  std::array<std::byte, 64> data_{};
};

TEST_F(FunctionTest, RegistersOfEveryBarReachTheDevice) {
  function_.read_bar(0, 0x10, std::span(data_).first(4));
  function_.write_bar(2, 0xff8, std::span(data_).first(8));
  EXPECT_THAT(function_.reads, ElementsAre(Access{0, 0x10, 4}));
  EXPECT_THAT(function_.writes, ElementsAre(Access{2, 0xff8, 8}));
}

TEST_F(FunctionTest, MsixStructuresDoNotReachTheDevice) {
  function_.read_bar(0, 0x200c, std::span(data_).first(4));
  EXPECT_EQ(util::load_le32(data_.data()), 1u) << "Vector Control after reset";
  function_.write_bar(0, 0x2000, std::span(data_).first(16));
  function_.read_bar(0, 0x2030, std::span(data_).first(8));
  EXPECT_EQ(util::load_le64(data_.data()), 0u);
  function_.write_bar(0, 0x2030, std::span(data_).first(8));
  EXPECT_THAT(function_.reads, IsEmpty());
  EXPECT_THAT(function_.writes, IsEmpty());
}

TEST_F(FunctionTest, AnAccessThatStraddlesAStructureIsSplit) {
  function_.read_bar(0, 0x1ff8, data_);  // 8 bytes before the table, 48 of table, 8 of PBA
  EXPECT_THAT(function_.reads, ElementsAre(Access{0, 0x1ff8, 8}));
  EXPECT_EQ(data_[7], std::byte{0xaa});
  EXPECT_EQ(data_[8], std::byte{0});
  function_.write_bar(0, 0x2034, std::span(data_).first(8));  // 4 bytes of PBA, 4 after it
  EXPECT_THAT(function_.writes, ElementsAre(Access{0, 0x2038, 4}));
  function_.write_bar(0, 0x1ffc, std::span(data_).first(8));  // 4 bytes before the table, 4 of it
  EXPECT_THAT(function_.writes, ElementsAre(Access{0, 0x2038, 4}, Access{0, 0x1ffc, 4}));
}

TEST_F(FunctionTest, MissingRegistersReadZeroAndDropWrites) {
  data_.fill(std::byte{0xff});
  function_.read_bar(2, 0xffc, std::span(data_).first(8));
  EXPECT_EQ(util::load_le64(data_.data()), 0u);
  function_.read_bar(1, 0, std::span(data_).first(4));
  function_.read_bar(9, 0, std::span(data_).first(4));
  function_.read_bar(0, UINT64_MAX, std::span(data_).first(4));
  function_.write_bar(1, 0, std::span(data_).first(4));
  function_.write_bar(9, 0, std::span(data_).first(4));
  function_.write_bar(0, UINT64_MAX - 1, std::span(data_).first(4));
  EXPECT_THAT(function_.reads, IsEmpty());
  EXPECT_THAT(function_.writes, IsEmpty());
}

TEST_F(FunctionTest, FunctionLevelResetResetsConfigMsixAndDevice) {
  std::array<std::byte, 2> value;
  util::store_le16(value.data(), 0x8000);
  function_.write_config(ConfigSpace::kMsixAt + 2, value);
  EXPECT_TRUE(function_.msix().enabled());
  function_.write_config(ConfigSpace::kExpressAt + 8, value);
  EXPECT_EQ(function_.resets, 1u);
  EXPECT_FALSE(function_.msix().enabled());
  EXPECT_FALSE(function_.config().msix_enabled());
}

TEST_F(FunctionTest, ResetKeepsTheHostsDmaMappings) {
  ASSERT_TRUE(function_.dma().map(0, 64, data_.data(), DmaAccess::kReadWrite));
  function_.reset();
  EXPECT_EQ(function_.dma().mappings().size(), 1u);
}

TEST_F(FunctionTest, BusMasterEnableRulesDma) {
  ASSERT_TRUE(function_.dma().map(0, 64, data_.data(), DmaAccess::kReadWrite));
  EXPECT_EQ(function_.dma().translate(0, 8, DmaAccess::kRead), nullptr) << "0 at power-on";
  set_bus_master(function_, true);
  EXPECT_EQ(function_.dma().translate(0, 8, DmaAccess::kRead), data_.data());
  set_bus_master(function_, false);
  EXPECT_EQ(function_.dma().translate(0, 8, DmaAccess::kRead), nullptr);
  set_bus_master(function_, true);
  function_.reset();
  EXPECT_EQ(function_.dma().translate(0, 8, DmaAccess::kRead), nullptr) << "0 after a reset";
}

TEST_F(FunctionTest, BusMasterEnableRulesInterrupts) {
  class Counter final : public InterruptSink {
   public:
    void raise(std::uint16_t) override { ++count; }
    unsigned count = 0;
  } sink;
  function_.msix().set_sink(&sink);
  function_.msix().set_control(true, false);
  const std::array<std::byte, 4> unmasked{};
  function_.write_bar(0, 0x2000 + 12, unmasked);
  function_.interrupts().raise(0);
  EXPECT_EQ(sink.count, 0u);
  set_bus_master(function_, true);
  EXPECT_EQ(sink.count, 1u) << "what was pending";
  function_.interrupts().raise(0);
  EXPECT_EQ(sink.count, 2u);
}

// PCIe 5.0 5.3.1.4.1: any request but a configuration request is an Unsupported Request, and the
// function sends none.
TEST_F(FunctionTest, InD3hotOnlyConfigurationSpaceIsReached) {
  ASSERT_TRUE(function_.dma().map(0, 64, data_.data(), DmaAccess::kReadWrite));
  set_bus_master(function_, true);
  const auto set_power = [this](std::uint16_t state) {
    std::array<std::byte, 2> value;
    util::store_le16(value.data(), state);
    function_.write_config(ConfigSpace::kPowerManagementAt + 4, value);
  };
  set_power(3);
  EXPECT_EQ(function_.dma().translate(0, 8, DmaAccess::kRead), nullptr);
  function_.read_bar(2, 0, std::span(data_).first(8));
  EXPECT_EQ(util::load_le64(data_.data()), ~std::uint64_t{0});
  function_.read_bar(0, 0x2000, std::span(data_).first(8));
  EXPECT_EQ(util::load_le64(data_.data()), ~std::uint64_t{0});
  function_.write_bar(2, 0, std::span(data_).first(8));
  EXPECT_THAT(function_.reads, IsEmpty());
  EXPECT_THAT(function_.writes, IsEmpty());
  set_power(0);
  EXPECT_EQ(function_.dma().translate(0, 8, DmaAccess::kRead), data_.data());
  function_.read_bar(2, 0, std::span(data_).first(8));
  EXPECT_THAT(function_.reads, ElementsAre(Access{2, 0, 8}));
}

TEST_F(FunctionTest, OffersNoSharedMemoryByDefault) { EXPECT_FALSE(function_.shared_memory(0)); }

}  // namespace
}  // namespace softhca::pcie
