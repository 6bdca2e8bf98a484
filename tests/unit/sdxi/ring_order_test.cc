// SDXI 5: the order in which the effects of descriptors become visible.
#include <gtest/gtest.h>

#include "sdxi/ring_machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::cxtv;
using hdr = spec::dsc_header;

// D-139 D-146 D-090: order of the writes on the bus.
TEST_F(RingTest, ValidIsClearedBeforeDataIsWrittenBeforeTheSignal) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const auto from = m.allocate(100), to = m.allocate(100);
  auto d = copy(from, to, 100);
  const auto block = m.attach_completion(d);
  m.submit(c, d);
  m.run();
  const auto vl = m.trace.write_of(m.slot(c, 0));
  const auto data = m.trace.write_of(to);
  const auto signal = m.trace.write_of(block);
  EXPECT_GE(vl, 0);
  EXPECT_LT(vl, data);
  EXPECT_LT(data, signal);
  EXPECT_FALSE(m.valid(c, 0));
}

// D-146 D-149 D-142 D-104
TEST_F(RingTest, AnErrorsTracesAreWrittenInOrder) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  auto d = copy(0x1000, m.allocate(8), 8);
  const auto block = m.attach_completion(d);
  std::vector<std::string> order;
  m.trace.on_write = [&](Iova at) {
    if (at == block + 8) order.push_back("er");
    if (at == block) order.push_back("signal");
    if (at == c.sts + 8) order.push_back("read_index");
    if (at == c.sts) order.push_back("state " + std::to_string(static_cast<int>(m.state(c))));
  };
  m.submit(c, d);
  m.run();
  EXPECT_EQ(order, (std::vector<std::string>{"er", "signal", "state 6", "read_index", "state 15"}));
  EXPECT_EQ(m.records(), 1u);
  EXPECT_EQ(m.read_index(c), 1u);
}

// D-140 D-141
TEST_F(RingTest, ReadIndexFollowsEveryDescriptor) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    m_.submit(c_, nop());
    m_.run();
    EXPECT_EQ(m_.read_index(c_), i + 1);
  }
}

// D-143
TEST_F(RingTest, AFencedDescriptorComesAfterAllEarlierOnes) {
  const auto size = 1u << 20;
  const auto a = m_.allocate(size), b = m_.allocate(size), c = m_.allocate(size);
  m_.fill(a, size, 5);
  m_.push(c_, copy(a, b, size));
  auto d = copy(b, c, size);
  header(d).set(hdr::fe, 1);
  m_.push(c_, d);
  m_.doorbell(5, 2);
  m_.run();
  EXPECT_TRUE(m_.equal(a, c, size));
}

// D-145
TEST_F(RingTest, SequentialWritesBecomeVisibleInOrder) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const auto first = m.allocate(64), second = m.allocate(64);
  const std::uint64_t value = 1;
  m.push(c, write_immediate(first, std::as_bytes(std::span(&value, 1))));
  auto d = write_immediate(second, std::as_bytes(std::span(&value, 1)));
  header(d).set(hdr::se, 1);
  m.push(c, d);
  m.doorbell(1, 2);
  m.run();
  EXPECT_GE(m.trace.write_of(first), 0);
  EXPECT_LT(m.trace.write_of(first), m.trace.write_of(second));
}

// D-223
TEST_F(RingTest, AfterAnErrorTheFencedDescriptorIsNotExecuted) {
  m_.push(c_, copy(0x1000, 0x2000, 8));
  auto d = nop();
  header(d).set(hdr::fe, 1);
  m_.push(c_, d);
  m_.doorbell(5, 2);
  m_.run();
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.read_index(c_), 1u);
  EXPECT_TRUE(m_.valid(c_, 1));
}

// D-158
TEST_F(RingTest, APendingBitStaysSetWhileTheVectorIsMasked) {
  const std::uint32_t masked = 1;
  m_.device->write_bar(0, Device::kMsixTable + 16 + 12, std::as_bytes(std::span(&masked, 1)));
  m_.submit(c_, interrupt(1));
  m_.run();
  EXPECT_EQ(m_.read(Device::kMsixPba), 2u);
  m_.submit(c_, nop());
  m_.run();
  EXPECT_EQ(m_.read(Device::kMsixPba), 2u);
  EXPECT_EQ(m_.interrupts(1), 0u);
}

}  // namespace
}  // namespace softhca::sdxi::test
