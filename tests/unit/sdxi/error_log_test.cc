// SDXI 3.4: the error log.
#include <gtest/gtest.h>

#include <algorithm>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::cxtv;

class ErrorLogTest : public ::testing::Test {
 protected:
  ErrorLogTest() {
    m_.activate();
    c_ = m_.start_context(5);
  }
  /// Causes descriptor errors.
  void fail(std::uint64_t times = 1) {
    for (std::uint64_t i = 0; i < times; ++i) {
      m_.submit(c_, copy(0x1000, 0x2000, 8));
      m_.run();
      EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
      m_.set_state(c_, cxtv::CXTV_RUN);
    }
  }
  bool status(auto field) { return m_.field<spec::mmio_err_sts>(reg::MMIO_ERR_STS, field) != 0; }
  FunctionGroup group_;
  Machine m_{group_};
  Machine::Context c_;
};

using sts = spec::mmio_err_sts;

// D-198 D-199 D-201 D-039
TEST_F(ErrorLogTest, EachErrorIsARecordWithItsPlace) {
  m_.submit(c_, nop());
  m_.run();
  fail();
  ASSERT_EQ(m_.records(), 1u);
  const auto r = m_.record(0);
  EXPECT_EQ(r.get(ent::vl), 1u);
  EXPECT_EQ(r.get(ent::type), 0x7f7u);
  EXPECT_EQ(r.get(ent::step), 10u);
  EXPECT_EQ(r.get(ent::re), 1u);
  EXPECT_EQ(r.get(ent::cv), 1u);
  EXPECT_EQ(r.get(ent::cxt_num), 5u);
  EXPECT_EQ(r.get(ent::div), 1u);
  EXPECT_EQ(r.get(ent::dsc_index), 1u);
  EXPECT_EQ(r.get(ent::bv), 1u);
  fail(3);
  EXPECT_EQ(m_.records(), 4u);
}

// D-199, SDXI Table 3-9: re = 1 means that a context has stopped, and cxt_num names it.
TEST_F(ErrorLogTest, TheRecordOfAFailedStartNamesTheContextThatStopped) {
  m_.make_context(4, 16, cxtv::CXTV_ERR_FN);
  const auto index = m_.write_index(m_.context(0));
  EXPECT_TRUE(m_.admin(start(4, 4)).er);
  EXPECT_EQ(m_.state(m_.context(0)), cxtv::CXTV_ERR_FN);
  ASSERT_EQ(m_.records(), 1u);
  const auto r = m_.record(0);
  EXPECT_EQ(r.get(ent::re), 1u);
  EXPECT_EQ(r.get(ent::cxt_num), 0u);
  EXPECT_EQ(r.get(ent::step), 7u);
  EXPECT_EQ(r.get(ent::div), 1u);
  EXPECT_EQ(r.get(ent::dsc_index), index);
  // The vendor's part holds the cause and the context.
  EXPECT_EQ(r.get(ent::target_valid), 1u);
  EXPECT_EQ(r.get(ent::target_cxt_num), 4u);
  EXPECT_EQ(r.get(ent::target_step), 5u);
}

// SDXI 4.3.3 step 8
TEST_F(ErrorLogTest, ADoorbellThatFindsBrokenStructuresStopsNothingAndItsRecordSaysSo) {
  auto& c = m_.make_context(4, 16, cxtv::CXTV_RUN);
  m_.at<spec::cxt_ctl>(c.ctl).set(spec::cxt_ctl::ds_ring_sz, 0);
  m_.doorbell(4, 1);
  m_.run();
  m_.at<spec::cxt_ctl>(c.ctl).set(spec::cxt_ctl::ds_ring_sz, 16);
  spec::set_address(m_.at<spec::cxt_ctl>(c.ctl), spec::cxt_ctl::cxt_sts_ptr, 0x1000);
  m_.doorbell(4, 1);
  m_.run();
  ASSERT_EQ(m_.records(), 2u);
  for (std::uint64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(m_.record(i).get(ent::re), 0u);
    EXPECT_EQ(m_.record(i).get(ent::cxt_num), 4u);
  }
  EXPECT_EQ(m_.record(0).get(ent::step), 4u);
  EXPECT_EQ(m_.record(1).get(ent::step), 5u);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
}

// D-202: when software handles the message, the record, the index and the status are visible.
TEST_F(ErrorLogTest, TheRecordIsThereWhenTheInterruptComes) {
  int heard = 0;
  m_.on_interrupt = [&](unsigned vector) {
    EXPECT_EQ(vector, 0u);
    ++heard;
    EXPECT_EQ(m_.records(), 1u);
    EXPECT_EQ(m_.record(0).get(ent::vl), 1u);
    EXPECT_EQ(m_.record(0).get(ent::step), 10u);
    EXPECT_EQ(m_.record(0).get(ent::cxt_num), 5u);
    EXPECT_TRUE(status(sts::sts));
  };
  fail();
  EXPECT_EQ(heard, 1);
}

// D-203 D-204
TEST_F(ErrorLogTest, TheInterruptComesOnTheFirstErrorAfterClearing) {
  fail();
  EXPECT_EQ(m_.interrupts(0), 1u);
  EXPECT_TRUE(status(sts::sts));
  fail();
  EXPECT_EQ(m_.interrupts(0), 1u);
  m_.write(reg::MMIO_ERR_STS, 1);
  EXPECT_FALSE(status(sts::sts));
  fail();
  EXPECT_EQ(m_.interrupts(0), 2u);
  EXPECT_EQ(m_.records(), 3u);
}

// D-037
TEST_F(ErrorLogTest, ErrCtlGatesTheInterrupt) {
  m_.write(reg::MMIO_ERR_CTL, 0);
  fail();
  EXPECT_TRUE(status(sts::sts));
  EXPECT_EQ(m_.interrupts(0), 0u);
}

// D-038
TEST_F(ErrorLogTest, StatusBitsAreClearedByWritingOne) {
  fail();
  m_.write(reg::MMIO_ERR_STS, 0);
  EXPECT_TRUE(status(sts::sts));
  m_.write(reg::MMIO_ERR_STS, 8);
  EXPECT_TRUE(status(sts::sts));
  m_.write(reg::MMIO_ERR_STS, 1);
  EXPECT_EQ(m_.read(reg::MMIO_ERR_STS), 0u);
}

// D-205 D-206 D-207 D-040
TEST_F(ErrorLogTest, AFullLogOverflowsAndStopsLoggingButNoContext) {
  fail(64);
  EXPECT_FALSE(status(sts::ovf));
  EXPECT_EQ(m_.records(), 64u);
  fail();
  EXPECT_TRUE(status(sts::ovf));
  EXPECT_TRUE(status(sts::err));
  EXPECT_EQ(m_.records(), 64u);
  m_.submit(c_, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c_), m_.write_index(c_));
  // Until software clears err, nothing is logged, even with room.
  m_.write(reg::MMIO_ERR_RD, 64);
  fail();
  EXPECT_EQ(m_.records(), 64u);
  m_.write(reg::MMIO_ERR_STS, ~std::uint64_t{0});
  fail();
  EXPECT_EQ(m_.records(), 65u);
  EXPECT_EQ(m_.record(64).get(ent::dsc_index), m_.write_index(c_) - 1);
}

// D-211
TEST_F(ErrorLogTest, RecordNIsAtItsIndexModuloTheSize) {
  for (int i = 0; i < 100; ++i) {
    fail();
    m_.write(reg::MMIO_ERR_RD, m_.records());
    EXPECT_EQ(m_.record(m_.records() - 1).get(ent::dsc_index), static_cast<std::uint64_t>(i));
  }
}

// D-039
TEST_F(ErrorLogTest, SoftwareWritesErrWrtOnlyWhileLoggingIsOff) {
  fail();
  m_.write(reg::MMIO_ERR_WRT, 0);
  EXPECT_EQ(m_.records(), 1u);
  m_.set_field<spec::mmio_err_cfg>(reg::MMIO_ERR_CFG, spec::mmio_err_cfg::en, 0);
  m_.write(reg::MMIO_ERR_WRT, 0);
  EXPECT_EQ(m_.records(), 0u);
}

// D-198: with logging off, errors are still contained.
TEST_F(ErrorLogTest, WithoutALogErrorsOnlyStopTheContext) {
  m_.set_field<spec::mmio_err_cfg>(reg::MMIO_ERR_CFG, spec::mmio_err_cfg::en, 0);
  fail();
  EXPECT_EQ(m_.read(reg::MMIO_ERR_STS), 0u);
  EXPECT_EQ(m_.interrupts(0), 0u);
}

// D-226 D-207
TEST_F(ErrorLogTest, ALogThatCannotBeWrittenSetsErr) {
  m_.set_field<spec::mmio_err_cfg>(reg::MMIO_ERR_CFG, spec::mmio_err_cfg::ptr, 1);
  fail();
  EXPECT_TRUE(status(sts::err));
  EXPECT_FALSE(status(sts::ovf));
  EXPECT_EQ(m_.records(), 0u);
  EXPECT_EQ(m_.gsv(), spec::fn_gsv::GSV_ACTIVE);
}

// D-208
TEST_F(ErrorLogTest, TheWordWithTheValidBitIsWrittenLast) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const auto log = spec::address(m.device->registers().err_cfg, spec::mmio_err_cfg::ptr);
  m.submit(c, copy(0x1000, 0x2000, 8));
  m.run();
  EXPECT_GE(m.trace.write_of(log + 8), 0);
  EXPECT_LT(m.trace.write_of(log + 8), m.trace.write_of(log));
  EXPECT_LT(m.trace.write_of(log), m.trace.write_of(c.sts, m.trace.write_of(log)));
}

// D-226
TEST_F(ErrorLogTest, AFailedWriteIsReported) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const auto from = m.allocate(64), to = m.allocate(64);
  m.trace.refuse_writes_at = to;
  EXPECT_TRUE(m.execute(c, copy(from, to, 8)).er);
  EXPECT_EQ(m.record(0).get(ent::step), 10u);
  EXPECT_EQ(m.record(0).get(ent::buf), 1u);
}

TEST_F(ErrorLogTest, EveryRefusalLeavesItsReasonInWords) {
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel, std::string_view line) { lines.emplace_back(line); });
  fail();
  util::set_log_sink([](util::LogLevel, std::string_view) {});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("context 5 descriptor 0 buffer 0"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("the source cannot be read"), std::string::npos);
  EXPECT_NE(lines[0].find("SDXI 6.2"), std::string::npos);
}

}  // namespace
}  // namespace softhca::sdxi::test
