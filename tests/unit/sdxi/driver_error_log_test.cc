// The limit of src/driver/sdxi on reads of the error log, for any values that the device reports
// (SDXI 3.4.3).
#include "sdxi/watched_driver.h"

namespace softhca::driver::sdxi::test {
namespace {

class DriverErrorLogTest : public WatchedDriverTest {
 protected:
  /// Number of records in the smallest log, which the driver uses.
  static constexpr std::size_t kLog = 64;

  DriverErrorLogTest() { bring_up(); }
};

// W-24: the device controls MMIO_ERR_WRT.
TEST_F(DriverErrorLogTest, AWriteIndexThatCannotBeTrueCostsNoMoreThanTheLogHolds) {
  Value<spec::mmio_err_sts> status;
  status.set(spec::mmio_err_sts::sts, 1);
  host_.answers[reg::MMIO_ERR_STS] = util::load_le64(status.raw.data());
  for (const auto beyond : {std::uint64_t{kLog + 1}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const auto index = read(reg::MMIO_ERR_RD) + beyond;
    host_.answers[reg::MMIO_ERR_WRT] = index;
    bool lost = false;
    EXPECT_TRUE(function_->take_errors(&lost).empty()) << "records with vl = 0, " << beyond;
    EXPECT_TRUE(lost) << beyond;
    EXPECT_EQ(read(reg::MMIO_ERR_RD), index) << beyond;
  }
  host_.answers[reg::MMIO_ERR_WRT] = read(reg::MMIO_ERR_RD);
  bool lost = true;
  EXPECT_TRUE(function_->take_errors(&lost).empty());
  EXPECT_FALSE(lost) << "a loss is reported once";
}

}  // namespace
}  // namespace softhca::driver::sdxi::test
