// The register and memory accesses of the public Linux driver (AMDESE/linux-sdxi, the series after
// v3), step by step. The device must behave as the driver expects of hardware.
#include <gtest/gtest.h>

#include "sdxi/faults.h"
#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::cxtv;
using spec::fn_gsr;
using spec::fn_gsv;

class LinuxContractTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kAllErrorBits = 0xb;

  /// The driver's activation. It clears MMIO_CTL0 first, enables the error log and the interrupts
  /// of vector 0 before the function, and jump starts context 0 with a doorbell of 0.
  void probe() {
    m_.write(reg::MMIO_CTL0, 0);
    ASSERT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
    m_.make_tables();
    m_.write(reg::MMIO_ERR_CFG, 0);
    m_.write(reg::MMIO_ERR_STS, kAllErrorBits);
    m_.write(reg::MMIO_ERR_CTL, m_.read(reg::MMIO_ERR_CTL) | 1);
    m_.write(reg::MMIO_CTL0, m_.read(reg::MMIO_CTL0) | 1u << 4);  // fn_err_intr_en
    m_.make_error_log();
    m_.make_context(0, 1024);
    m_.set_state(m_.context(0), cxtv::CXTV_RUN);
    m_.request(fn_gsr::GSRV_ACTIVE);
    m_.run();
    ASSERT_EQ(m_.gsv(), fn_gsv::GSV_ACTIVE);
    m_.doorbell(0, 0);
    m_.run();
  }
  /// Submits several descriptors, and waits for the completion of the last.
  bool administer(std::vector<Descriptor> descriptors) {
    const auto& admin = m_.context(0);
    const auto block = m_.attach_completion(descriptors.back());
    for (const auto& d : descriptors) m_.push(admin, d);
    m_.doorbell(0, m_.write_index(admin));
    m_.run();
    return m_.signal(block) == 0 && !m_.er(block);
  }
  /// DSC_CXT_UPD.L1 and DSC_SYNC.CXT, sent after an entry was written and after one was cleared.
  bool tell_of_entry(ContextNumber number) {
    return administer({update_contexts(number, number, spec::tgt_pcd::UPD_L1),
                       sync(spec::sync_filter::SYNC_CXT, number, number)});
  }
  /// Writes the entry, updates, writes the keys (AKey 1 interrupts, AKey 0 copies), then starts.
  Machine::Context& open_channel(ContextNumber number) {
    auto& c = m_.make_context(number, 1024);
    m_.at<spec::cxt_ctl>(c.ctl).set(spec::cxt_ctl::se, 1);
    m_.at<spec::cxt_ctl>(c.ctl).set(spec::cxt_ctl::csa, 1);
    m_.akey(c, 0).set(spec::akey_ent::vl, 0);
    m_.akey(c, 1).set(spec::akey_ent::vl, 0);
    EXPECT_TRUE(tell_of_entry(number));
    m_.akey(c, 1).set(spec::akey_ent::intr_num, number);
    m_.akey(c, 1).set(spec::akey_ent::vl, 1);
    m_.akey(c, 0).set(spec::akey_ent::vl, 1);
    EXPECT_TRUE(administer({start(number, number)}));
    EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
    return c;
  }
  bool stop_context(ContextNumber number) {
    return administer({stop(number, number), sync(spec::sync_filter::SYNC_STOP, number, number)});
  }
  void close_channel(const Machine::Context& c) {
    EXPECT_TRUE(stop_context(c.number));
    m_.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::vl, 0);
    std::memset(m_.host(c.l1), 0, 32);
    EXPECT_TRUE(tell_of_entry(c.number));
  }
  /// The records that the handler of vector 0 reads. Nothing if it returns without reading the log.
  /// If the error bit is set, the handler does not clear the status.
  std::optional<std::vector<std::uint64_t>> handle_vector_0() {
    const auto status = m_.read(reg::MMIO_ERR_STS);
    if ((status & 1) == 0 || (status & 8) != 0) return std::nullopt;
    auto index = m_.read(reg::MMIO_ERR_RD);
    m_.write(reg::MMIO_ERR_STS, kAllErrorBits);
    const auto end = m_.read(reg::MMIO_ERR_WRT);
    std::vector<std::uint64_t> contexts;
    for (; index < end; ++index) {
      const auto record = m_.record(index);
      EXPECT_EQ(record.get(ent::vl), 1u);
      EXPECT_EQ(record.get(ent::type), 0x7f7u);
      contexts.push_back(record.get(ent::cxt_num));
    }
    m_.write(reg::MMIO_ERR_RD, index);
    return contexts;
  }
  /// Submits a copy that fails.
  void fail(const Machine::Context& c) {
    auto d = copy(0x1000, 0x2000, 64);
    header(d).set(spec::dsc_header::fe, 1);
    const auto block = m_.attach_completion(d);
    m_.submit(c, d);
    m_.run();
    EXPECT_EQ(m_.signal(block), 0u);
    EXPECT_TRUE(m_.er(block)) << "its completion says so to the handler of the channel";
    EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
  }
  FunctionGroup group_;
  Machine m_{group_};
};

// Early driver versions send no update.
TEST_F(LinuxContractTest, ContextsStartAfterAnL1EntryAppearsWithoutAnUpdateOperation) {
  probe();
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_CXT, 1, 1)).done);
  auto& c = m_.make_context(1, 1024);
  EXPECT_FALSE(m_.admin(start(1, 1)).er);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
}

// A fenced copy in atomic completion mode, then a fenced interrupt with the same AKey. Both are
// reserved long before their valid bits are set, and a later reservation may become valid first.
TEST_F(LinuxContractTest, ReservedDescriptorsBecomeValidLateAndOutOfOrder) {
  probe();
  auto& c = m_.start_context(1, 1024);
  m_.akey(c, 0).set(spec::akey_ent::iv, 1);
  m_.akey(c, 0).set(spec::akey_ent::intr_num, 5);
  const auto from = m_.allocate(4096), to = m_.allocate(2 * 4096);
  m_.fill(from, 4096, 1);
  const auto reserve = [&](Descriptor d) {
    header(d).set(spec::dsc_header::vl, 0);
    header(d).set(spec::dsc_header::csr, 0);
    header(d).set(spec::dsc_header::fe, 1);
    return m_.push(c, d);
  };
  std::array<std::uint64_t, 4> slots{};
  std::array<Iova, 2> blocks{};
  for (unsigned i = 0; i < 2; ++i) {
    auto d = copy(from, to + i * 4096, 4096);
    blocks[i] = m_.attach_completion(d);
    slots[2 * i] = reserve(d);
    slots[2 * i + 1] = reserve(interrupt(0));
  }
  const auto publish = [&](unsigned first) {
    for (unsigned i = first; i < first + 2; ++i) {
      m_.at<spec::dsc_header>(m_.slot(c, slots[i])).set(spec::dsc_header::vl, 1);
    }
    m_.doorbell(1, slots[first + 1] + 1);
    m_.run();
  };
  publish(2);
  EXPECT_EQ(m_.interrupts(5), 0u);
  publish(0);  // with a smaller doorbell value than before
  EXPECT_EQ(m_.interrupts(5), 2u);
  for (const auto block : blocks) EXPECT_EQ(m_.signal(block), 0u);
  EXPECT_TRUE(m_.equal(from, to + 4096, 4096));
  EXPECT_EQ(m_.read_index(c), 4u);
}

TEST_F(LinuxContractTest, ContextsArePublishedAndRescindedWithAnUpdateEach) {
  probe();
  const auto from = m_.allocate(4096), to = m_.allocate(4096);
  for (unsigned round = 1; round <= 3; ++round) {
    // The memory differs each time.
    auto& c = open_channel(7);
    m_.fill(from, 4096, round);
    auto d = copy(from, to, 4096, 0, 0);
    header(d).set(spec::dsc_header::fe, 1);
    header(d).set(spec::dsc_header::csr, 0);
    const auto block = m_.attach_completion(d);
    auto raise = interrupt(1);
    header(raise).set(spec::dsc_header::fe, 1);
    m_.push(c, d);
    m_.submit(c, raise);
    m_.run();
    EXPECT_EQ(m_.signal(block), 0u);
    EXPECT_TRUE(m_.equal(from, to, 4096));
    EXPECT_EQ(m_.interrupts(7), round);
    close_channel(c);
    m_.submit(c, nop());
    m_.run();
    EXPECT_EQ(m_.read_index(c), 2u) << "it is not valid any more";
  }
  EXPECT_EQ(m_.records(), 0u);
}

TEST_F(LinuxContractTest, ErrorsComeByVector0AndAreReadInTheDriversOrder) {
  probe();
  EXPECT_EQ(handle_vector_0(), std::nullopt);
  auto& a = open_channel(3);
  auto& b = open_channel(4);
  fail(a);
  EXPECT_EQ(m_.interrupts(0), 1u);
  fail(b);
  EXPECT_EQ(m_.interrupts(0), 1u) << "one until the handler clears the status";
  EXPECT_EQ(handle_vector_0(), (std::vector<std::uint64_t>{3, 4}));
  EXPECT_EQ(handle_vector_0(), std::nullopt);
  close_channel(a);
  close_channel(b);
  fail(open_channel(3));
  EXPECT_EQ(m_.interrupts(0), 2u);
  EXPECT_EQ(handle_vector_0(), (std::vector<std::uint64_t>{3}));
}

// The driver's handler takes the error bit for a broken log, and does not clear it. An overflow
// sets that bit, too (SDXI 9.3).
TEST_F(LinuxContractTest, AfterAnOverflowTheDriversLogStaysSilent) {
  probe();
  const auto fail_once = [this] {
    auto& c = open_channel(3);
    fail(c);
    close_channel(c);
  };
  for (int i = 0; i < 65; ++i) fail_once();
  EXPECT_EQ(m_.interrupts(0), 1u);
  EXPECT_EQ(m_.read(reg::MMIO_ERR_STS), kAllErrorBits);
  EXPECT_EQ(handle_vector_0(), std::nullopt);
  fail_once();
  EXPECT_EQ(m_.interrupts(0), 1u);
  EXPECT_EQ(m_.records(), 64u);
}

TEST_F(LinuxContractTest, AFunctionErrorRaisesVector0) {
  probe();
  m_.request(fn_gsr::GSRV_RESET);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
  EXPECT_GE(m_.interrupts(0), 1u);
  EXPECT_EQ(m_.record(0).get(ent::re), 2u);
}

// device_terminate_all turns reserved, unissued descriptors into NOPs. device_synchronize adds one
// more NOP and waits for it.
TEST_F(LinuxContractTest, TerminatedDescriptorsBecomeNopsAndSynchronizeWaitsBehindThem) {
  probe();
  auto& c = open_channel(3);
  const auto from = m_.allocate(4096), to = m_.allocate(4096);
  m_.fill(from, 4096, 1);
  std::vector<std::uint64_t> slots;
  for (int i = 0; i < 4; ++i) {
    auto d = copy(from, to, 4096);
    header(d).set(spec::dsc_header::vl, 0);
    slots.push_back(m_.push(c, d));
  }
  for (const auto slot : slots) {
    auto d = nop();
    header(d).set(spec::dsc_header::vl, 0);
    std::ranges::copy(d, m_.host(m_.slot(c, slot)));
    m_.at<spec::dsc_header>(m_.slot(c, slot)).set(spec::dsc_header::vl, 1);
  }
  m_.doorbell(3, slots.back() + 1);
  auto last = nop();
  header(last).set(spec::dsc_header::fe, 1);
  EXPECT_TRUE(m_.execute(c, last).done);
  EXPECT_EQ(m_.read_index(c), 5u);
  EXPECT_FALSE(m_.equal(from, to, 4096));
}

// device_synchronize stops a context that does not drain. After the stop the client owns the
// transfer's memory again.
TEST_F(LinuxContractTest, AContextThatDoesNotDrainIsStoppedAndLeavesItsBuffersAlone) {
  probe();
  auto& c = open_channel(3);
  group_.faults().add(*parse_fault("context=3,operation=DSC_DMAB_COPY,do=stall"));
  const auto from = m_.allocate(4096), to = m_.allocate(4096);
  m_.fill(from, 4096, 1);
  auto d = copy(from, to, 4096);
  const auto block = m_.attach_completion(d);
  m_.submit(c, d);
  m_.run();
  EXPECT_EQ(m_.signal(block), 1u);
  auto waits = sync(spec::sync_filter::SYNC_STOP, 3, 3);
  const auto stopped = m_.attach_completion(waits);
  m_.push(m_.context(0), stop(3, 3));
  m_.submit(m_.context(0), waits);
  for (int ms = 0; ms < 1000 && m_.signal(stopped) != 0; ++ms) {
    m_.advance(std::chrono::milliseconds(1));
    m_.step();
  }
  EXPECT_EQ(m_.signal(stopped), 0u) << "within the driver's second";
  EXPECT_TRUE(m_.er(block));
  EXPECT_EQ(handle_vector_0(), (std::vector<std::uint64_t>{3}));
  group_.faults().clear();
  m_.run();
  EXPECT_FALSE(m_.equal(from, to, 4096));
}

TEST_F(LinuxContractTest, AContextIsStoppedTwiceItsEntryClearedAndMadeAgain) {
  probe();
  for (int round = 0; round < 3; ++round) {
    auto& c = m_.start_context(1, 1024);
    EXPECT_TRUE(m_.execute(c, nop()).done);
    for (int twice = 0; twice < 2; ++twice) {
      m_.submit(m_.context(0), stop(1, 1));
      EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_STOP, 1, 1)).done);
      EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_SW);
    }
    std::memset(m_.host(c.l1), 0, 32);
  }
}

TEST_F(LinuxContractTest, RemovalStopsTheFunctionAndASecondProbeWorks) {
  probe();
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  probe();
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_FN)).done);
}

// A crash left the function active. Clearing MMIO_CTL0 is then an error, which a reset ends.
TEST_F(LinuxContractTest, AnActiveFunctionIsRecoveredThroughError) {
  probe();
  m_.write(reg::MMIO_CTL0, 0);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
  m_.request(fn_gsr::GSRV_RESET);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  probe();
}

}  // namespace
}  // namespace softhca::sdxi::test
