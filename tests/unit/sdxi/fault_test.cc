// Injected faults, as a driver sees them. Every test checks that its fault fired.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/in_process_host.h"
#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "sdxi/device.h"
#include "sdxi/faults.h"

namespace softhca::driver::sdxi {
namespace {

using softhca::sdxi::Device;
using softhca::sdxi::FaultId;
using softhca::sdxi::FunctionGroup;
using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(10);

/// One function and its driver on virtual time.
class FaultTest : public ::testing::Test {
 protected:
  FaultTest() {
    function_ = *Function::bring_up(host_);
    first_ = *function_->make_context();
    second_ = *function_->make_context();
  }
  ~FaultTest() override { faults().clear(); }

  softhca::sdxi::Faults& faults() { return group_.faults(); }
  FaultId inject(const std::string& text) {
    const auto rule = softhca::sdxi::parse_fault(text);
    EXPECT_TRUE(rule) << rule.error().message;
    return faults().add(*rule);
  }
  std::uint64_t fired(FaultId id) { return faults().find(id)->fired; }
  std::string on_first(const char* rest) {
    return "context=" + std::to_string(first_->number()) + "," + rest;
  }

  static util::Result<Completion> nop(Context& context) {
    std::array one{Descriptor::nop()};
    return context.submit(one);
  }
  /// The error's text; empty if there was none.
  static std::string wait_for(Context& context, const util::Result<Completion>& completion) {
    const auto waited = context.wait(*completion);
    return waited ? "" : waited.error().message;
  }
  void pass(util::Duration time) {
    for (const auto until = now_ + time; now_ < until;) host_.progress();
  }
  void expect_works(Context& context) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(wait_for(context, nop(context)), "");
  }

  util::Time now_{};
  FunctionGroup group_;
  Device device_{{.name = "sdxi7"}, group_};
  InProcessHost host_{device_,
                      {.progress =
                           [this] {
                             now_ += std::chrono::microseconds(100);
                             device_.run(now_);
                           },
                       .clock = [this] { return now_; },
                       .on_interrupt = {}}};
  std::unique_ptr<Function> function_;
  std::unique_ptr<Context> first_, second_;
};

TEST_F(FaultTest, ADelayedDescriptorCompletesAfterItsTime) {
  const auto fault = inject("function=sdxi7,operation=DSC_DMAB_NOP,nth=1,do=delay,time=20ms");
  const auto begin = now_;
  EXPECT_EQ(wait_for(*first_, nop(*first_)), "");
  EXPECT_GE(now_ - begin, std::chrono::milliseconds(20));
  EXPECT_LT(now_ - begin, std::chrono::milliseconds(21));
  EXPECT_EQ(fired(fault), 1u);
  const auto again = now_;
  EXPECT_EQ(wait_for(*first_, nop(*first_)), "");
  EXPECT_LT(now_ - again, std::chrono::milliseconds(1));
  EXPECT_EQ(fired(fault), 1u);
}

TEST_F(FaultTest, AStalledDescriptorWaitsUntilItsRuleIsRemovedAndDelaysNoOther) {
  const auto fault = inject(on_first("do=stall"));
  const auto stalled = nop(*first_);
  pass(std::chrono::seconds(1));
  EXPECT_FALSE(first_->poll(*stalled));
  EXPECT_EQ(fired(fault), 1u);
  expect_works(*second_);
  faults().remove(fault);
  EXPECT_EQ(wait_for(*first_, stalled), "");
  expect_works(*first_);
}

TEST_F(FaultTest, AStalledFunctionSleeps) {
  inject("operation=DSC_DMAB_NOP,do=stall");
  ASSERT_TRUE(nop(*first_));
  pass(std::chrono::milliseconds(1));
  EXPECT_EQ(device_.run(now_), util::kNever);
}

TEST_F(FaultTest, ASoftStopAbortsAStalledDescriptorAfterItsTimeout) {
  inject(on_first("do=stall"));
  ASSERT_TRUE(nop(*first_));
  pass(std::chrono::milliseconds(1));
  const auto begin = now_;
  std::array stop{Descriptor::stop(first_->number(), first_->number(), false)};
  EXPECT_TRUE(function_->administer(stop));
  EXPECT_EQ(first_->state(), spec::cxtv::CXTV_STOPG_SW);
  while (first_->state() == spec::cxtv::CXTV_STOPG_SW && now_ - begin < kPatience) {
    host_.progress();
  }
  EXPECT_EQ(first_->state(), spec::cxtv::CXTV_ERR_FN) << "SDXI 4.3.5: aborted by a stop action";
  EXPECT_GE(now_ - begin, device_.options().soft_stop_timeout);
}

TEST_F(FaultTest, TheNthDescriptorOfAContextFails) {
  const auto fault = inject(on_first("nth=3,do=fail,class=0x3100"));
  EXPECT_EQ(wait_for(*first_, nop(*first_)), "");
  expect_works(*second_);
  EXPECT_EQ(wait_for(*first_, nop(*first_)), "");
  EXPECT_EQ(fired(fault), 0u);
  EXPECT_NE(wait_for(*first_, nop(*first_)), "");
  EXPECT_EQ(fired(fault), 1u);
  EXPECT_EQ(faults().find(fault)->matched, 3u);
  EXPECT_EQ(first_->state(), spec::cxtv::CXTV_ERR_FN);
  expect_works(*second_);
  ASSERT_TRUE(first_->recover());
  expect_works(*first_);
}

TEST_F(FaultTest, AFailedDescriptorHasAnErrorLogRecordOfTheClassAskedFor) {
  inject(on_first("do=fail,class=0x3100"));
  ASSERT_TRUE(nop(*first_));
  pass(std::chrono::milliseconds(1));
  const auto records = function_->take_errors();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].error_class, spec::err_class::MEMORY_PERMISSION);
  EXPECT_EQ(records[0].step, spec::err_step::ERRV_DSC_GEN);
  EXPECT_EQ(records[0].context, first_->number());
  EXPECT_EQ(records[0].descriptor, 0u);
}

TEST_F(FaultTest, EveryNthDescriptorIsHit) {
  const auto fault = inject(on_first("every=2,do=delay,time=5ms"));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(wait_for(*first_, nop(*first_)), "");
  EXPECT_EQ(faults().find(fault)->matched, 6u);
  EXPECT_EQ(fired(fault), 3u);
}

TEST_F(FaultTest, ABadCompletionReportsAnErrorThatIsNowhereElse) {
  auto from = *DmaBuffer::allocate(host_, 4096), to = *DmaBuffer::allocate(host_, 4096);
  std::fill(from.bytes().begin(), from.bytes().end(), std::byte{0x5a});
  const auto fault = inject(on_first("operation=DSC_DMAB_COPY,do=bad-completion"));
  EXPECT_NE(wait_for(*first_, first_->copy({to.iova()}, {from.iova()}, 4096)), "");
  EXPECT_EQ(fired(fault), 1u);
  EXPECT_EQ(to.bytes()[4095], std::byte{0x5a}) << "the copy was done";
  EXPECT_EQ(first_->state(), spec::cxtv::CXTV_RUN);
  EXPECT_TRUE(function_->take_errors().empty());
  faults().clear();
  expect_works(*first_);
}

TEST_F(FaultTest, ALostCompletionLeavesItsBlockAlone) {
  const auto fault = inject(on_first("nth=1,do=lose-completion"));
  const auto lost = nop(*first_);
  expect_works(*first_);
  EXPECT_FALSE(first_->poll(*lost));
  EXPECT_EQ(fired(fault), 1u);
  EXPECT_THAT(wait_for(*first_, lost), HasSubstr("does not complete"));
}

TEST_F(FaultTest, ADescriptorsInterruptIsLost) {
  const auto akey = *first_->akeys().use_interrupt(1);
  const auto fault = inject(on_first("nth=1,do=lose-interrupt"));
  const std::array work{Descriptor::interrupt(akey)};
  ASSERT_TRUE(first_->enqueue(work));
  EXPECT_THAT(first_->wait_interrupt(1, 1).error().message, HasSubstr("does not come"));
  EXPECT_EQ(fired(fault), 1u);
  ASSERT_TRUE(first_->enqueue(work));
  EXPECT_TRUE(first_->wait_interrupt(1, 1));
  EXPECT_EQ(fired(fault), 1u);
}

TEST_F(FaultTest, TheInterruptOfTheErrorLogIsLost) {
  const auto fault = inject("do=lose-interrupt");
  inject(on_first("do=fail"));
  const auto before = host_.interrupts(0);
  ASSERT_TRUE(nop(*first_));
  pass(std::chrono::milliseconds(1));
  EXPECT_EQ(host_.interrupts(0), before);
  EXPECT_EQ(fired(fault), 1u);
  EXPECT_EQ(function_->take_errors().size(), 1u) << "the record is there";
}

TEST_F(FaultTest, ASoftStopHangsAndAHardOneDoesNot) {
  expect_works(*first_);
  const auto fault = inject(on_first("do=hang-soft-stop"));
  std::array soft{Descriptor::stop(first_->number(), first_->number(), false)};
  ASSERT_TRUE(function_->administer(soft));
  pass(std::chrono::seconds(5));
  EXPECT_EQ(first_->state(), spec::cxtv::CXTV_STOPG_SW);
  EXPECT_EQ(fired(fault), 1u);
  EXPECT_EQ(device_.run(now_), util::kNever) << "it hangs without work";
  std::array hard{Descriptor::stop(first_->number(), first_->number(), true)};
  ASSERT_TRUE(function_->administer(hard));
  pass(std::chrono::milliseconds(1));
  EXPECT_EQ(first_->state(), spec::cxtv::CXTV_STOP_SW);
}

TEST_F(FaultTest, AStopOfAContextThatWasNeverSignaledHangsToo) {
  const auto fault = inject(on_first("do=hang-stop"));
  std::array hard{Descriptor::stop(first_->number(), first_->number(), true)};
  ASSERT_TRUE(function_->administer(hard));
  pass(std::chrono::seconds(5));
  EXPECT_EQ(first_->state(), spec::cxtv::CXTV_STOPG_SW);
  EXPECT_EQ(fired(fault), 1u);
  faults().clear();
  pass(std::chrono::milliseconds(1));
  EXPECT_EQ(first_->state(), spec::cxtv::CXTV_STOP_SW);
}

// SDXI 6.6.4: that stop begins after its own descriptor has completed.
TEST_F(FaultTest, AStopOfContext0ByItselfHangsToo) {
  const auto fault = inject("context=0,do=hang-stop");
  std::array self{Descriptor::stop(0, 0, false)};
  ASSERT_TRUE(function_->administer(self));
  const auto state = [this] {
    std::optional<spec::cxtv> found;
    device_.contexts().for_each([&](const softhca::sdxi::Context& context) {
      if (context.entry.number != 0) return;
      util::Struct<spec::cxt_sts> status;
      EXPECT_TRUE(context.space.read(context.entry.cxt_sts_ptr, status.bytes()));
      found = static_cast<spec::cxtv>(status.get(spec::cxt_sts::state));
    });
    return found;
  };
  pass(std::chrono::seconds(5));
  EXPECT_EQ(fired(fault), 1u);
  EXPECT_EQ(state(), spec::cxtv::CXTV_STOPG_SW);
  EXPECT_EQ(device_.run(now_), util::kNever) << "it hangs without work";
  faults().clear();
  pass(std::chrono::milliseconds(1));
  EXPECT_EQ(state(), std::nullopt) << "stopped: the function holds nothing of it";
}

TEST_F(FaultTest, AFunctionWhoseStopHangsIsResetByItsDriver) {
  expect_works(*first_);
  const auto fault = inject("context=1,do=hang-stop");
  const auto write_gsr = [this](spec::fn_gsr value) {
    util::Struct<spec::mmio_ctl0> word;
    const auto at = static_cast<std::uint64_t>(spec::mmio_register::MMIO_CTL0);
    device_.read_bar(0, at, word.bytes());
    word.set(spec::mmio_ctl0::fn_gsr, static_cast<std::uint32_t>(value));
    device_.write_bar(0, at, word.bytes());
  };
  ASSERT_EQ(first_->number(), 1);
  write_gsr(spec::fn_gsr::GSRV_STOP_SF);
  pass(std::chrono::seconds(2));
  EXPECT_EQ(device_.registers().gsv(), spec::fn_gsv::GSV_STOPG_SF);
  write_gsr(spec::fn_gsr::GSRV_STOP_HD);
  pass(std::chrono::seconds(2));
  EXPECT_EQ(device_.registers().gsv(), spec::fn_gsv::GSV_STOPG_HD);
  EXPECT_EQ(fired(fault), 1u);
  const auto at = pcie::ConfigSpace::kExpressAt + 8;
  const std::uint16_t initiate_flr = 1u << 15;
  device_.write_config(at, std::as_bytes(std::span(&initiate_flr, 1)));
  EXPECT_EQ(device_.registers().gsv(), spec::fn_gsv::GSV_STOP);
}

TEST_F(FaultTest, RulesOfAnotherFunctionDoNothing) {
  const auto fault = inject("function=sdxi8,do=fail");
  expect_works(*first_);
  EXPECT_EQ(faults().find(fault)->matched, 0u);
}

TEST_F(FaultTest, WithoutRulesNothingIsArmed) {
  EXPECT_FALSE(faults().armed());
  const auto fault = inject("do=stall,function=sdxi8");
  EXPECT_TRUE(faults().armed());
  EXPECT_TRUE(faults().remove(fault));
  EXPECT_FALSE(faults().remove(fault));
  EXPECT_FALSE(faults().armed());
}

}  // namespace
}  // namespace softhca::driver::sdxi
