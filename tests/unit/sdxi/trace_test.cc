// The trace of a doorbell's life in an SDXI function (docs/debugging.md).
#include "util/trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sdxi/machine.h"
#include "util/written_trace.h"

namespace softhca::sdxi::test {
namespace {

using softhca::test::steps_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class SdxiTrace : public ::testing::Test {
 protected:
  SdxiTrace() {
    m_.device->set_trace(trace_);
    m_.activate();
    c_ = m_.start_context(5);
    (void)file_.since();
  }

  softhca::test::WrittenTrace file_;
  util::Trace trace_{file_.writer(), "mover"};
  FunctionGroup group_;
  Machine m_{group_};
  Machine::Context c_;
};

// SDXI 5.3: Write_Index, the descriptor, vl, both AKeys, the data, the completion, Read_Index.
TEST_F(SdxiTrace, ACopyPassesTheStepsOfTheDocumentInTheirOrder) {
  const auto from = m_.allocate(64), to = m_.allocate(64);
  m_.fill(from, 64, 1);
  auto d = copy(from, to, 64);
  const auto block = m_.attach_completion(d);
  m_.submit(c_, d);
  m_.run();
  EXPECT_TRUE(m_.equal(from, to, 64));
  const auto text = file_.since();
  EXPECT_THAT(steps_of(text),
              ElementsAre("mover doorbells: doorbell",
                          "mover DMA: read",  // the context, Write_Index, the ring
                          "mover contexts: descriptor",
                          "mover DMA: write",  // vl
                          "mover DMA: read", "mover keys: AKEY_ENT", "mover DMA: read",
                          "mover DMA: write",  // the data
                          "mover completion status blocks: signal", "mover DMA: write",
                          "mover DMA: read"))  // Write_Index again
      << text;
  EXPECT_THAT(text, HasSubstr("doorbell context=0x5 value=0x1\n"));
  EXPECT_THAT(text, HasSubstr(fmt::format("descriptor \"DSC_DMAB_COPY\" context=0x5 index=0x0 "
                                          "completion={:#x}\n",
                                          block)));
}

// SDXI 6.4, 6.6: an interrupt has its own descriptor, and so has each software command.
TEST_F(SdxiTrace, AnInterruptIsReportedWithTheKeyThatNamesIt) {
  m_.submit(c_, interrupt(1));
  m_.run();
  const auto text = file_.since();
  EXPECT_THAT(text, HasSubstr("descriptor \"DSC_INTR\" context=0x5"));
  EXPECT_THAT(text, HasSubstr("AKEY_ENT context=0x5 akey=0x1 buffer=0x0 tgt_sfunc=0x0\n"));
  EXPECT_THAT(text, HasSubstr("mover interrupts: interrupt vector=0x1"));
  m_.submit(m_.context(0), stop(5, 5));
  m_.run();
  EXPECT_THAT(file_.since(), HasSubstr("descriptor \"DSC_CXT_STOP\" context=0x0"));
}

TEST_F(SdxiTrace, TheTraceShowsTheReasonOfARefusal) {
  m_.akey(c_, 2).set(spec::akey_ent::vl, 0);
  m_.submit(c_, copy(m_.allocate(64), m_.allocate(64), 64, 2, 2));
  m_.run();
  const auto text = file_.since();
  EXPECT_THAT(text, HasSubstr("mover keys: AKEY_ENT \"AKEY_ENT.vl is 0\" context=0x5 akey=0x2"));
  EXPECT_THAT(text, HasSubstr("mover error log: record \"AKEY_ENT.vl is 0\" class="));
  // A descriptor header of no operation.
  auto& other = m_.start_context(6);
  auto d = nop();
  header(d).set(spec::dsc_header::subtype, 0xFF);
  m_.submit(other, d);
  m_.run();
  EXPECT_THAT(file_.since(), HasSubstr("contexts: descriptor \"")) << "with the reason";
}

// Without a trace, the function keeps direct access to its memory.
TEST(SdxiTraceOff, AFunctionThatIsNotTracedKeepsItsMemoryWithinReach) {
  FunctionGroup group;
  Machine m(group);
  EXPECT_EQ(m.device->trace(), nullptr);
  EXPECT_FALSE(m.device->dma().translate(Machine::kBase, 8, pcie::DmaAccess::kRead) == nullptr);
}

}  // namespace
}  // namespace softhca::sdxi::test
