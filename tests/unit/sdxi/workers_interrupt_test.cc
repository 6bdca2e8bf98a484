// DSC_INTR by worker threads (SDXI 5.8, 6.4).
#include <atomic>

#include "sdxi/workers_machine.h"

namespace softhca::sdxi::test {
namespace {

class WorkersInterruptTest : public WorkersTest {};

INSTANTIATE_TEST_SUITE_P(Workers, WorkersInterruptTest, ::testing::Values(1u, 2u, 4u));

TEST_P(WorkersInterruptTest, InterruptDescriptorsComeInTheirOrder) {
  const auto& c = m_->start_context(3);
  const auto entry = m_->akey(c, 4);
  entry.set(spec::akey_ent::vl, 1);
  entry.set(spec::akey_ent::iv, 1);
  entry.set(spec::akey_ent::intr_num, 5);
  const auto at = m_->allocate(8, 8);
  for (std::uint64_t i = 1; i <= 50; ++i) {
    submit(c, atomic(spec::atomic_subtype::DSC_ATM_UADD, at, 8, 1));
    submit(c, interrupt(4));
    ASSERT_TRUE(until([&] { return m_->interrupts(5) == i; }));
    EXPECT_EQ(load(at), i);
  }
  EXPECT_TRUE(execute(c, nop()));
}

TEST_P(WorkersInterruptTest, WorkersRaiseInterruptsThemselves) {
  const auto& c = m_->start_context(3);
  std::atomic<unsigned> by_control = 0;
  const auto control = std::this_thread::get_id();
  m_->on_interrupt = [&](unsigned) { by_control += std::this_thread::get_id() == control; };
  ASSERT_TRUE(execute(c, nop()));
  for (std::uint64_t i = 1; i <= 20; ++i) {
    submit(c, interrupt(1));
    ASSERT_TRUE(until([&] { return m_->interrupts(1) == i; }));
  }
  EXPECT_EQ(by_control, 0u);
}

// SDXI 5.3 step 9b, 5.8: the interrupt handler may read Read_Index.
TEST_P(WorkersInterruptTest, ReadIndexIsWrittenBeforeTheInterrupt) {
  const auto& c = m_->start_context(3);
  std::atomic<std::uint64_t> found = 0;
  m_->on_interrupt = [&](unsigned) { found = read_index(c); };
  for (std::uint64_t i = 1; i <= 10; ++i) {
    for (int k = 0; k < 5; ++k) push(c, nop());
    const auto index = submit(c, interrupt(1));
    ASSERT_TRUE(until([&] { return m_->interrupts(1) == i && read_index(c) == index + 1; }));
    EXPECT_EQ(found, index);
  }
}

// PCIe 5.0 6.1.4.5: a masked vector becomes pending, which the control thread handles.
TEST_P(WorkersInterruptTest, AnInterruptOfAMaskedVectorComesWhenItIsUnmasked) {
  const auto& c = m_->start_context(3);
  const auto mask = [this](std::uint32_t bit) {
    m_->device->write_bar(0, Device::kMsixTable + 16 + 12, std::as_bytes(std::span(&bit, 1)));
  };
  for (std::uint64_t round = 1; round <= 10; ++round) {
    mask(1);
    submit(c, interrupt(1));
    ASSERT_TRUE(execute(c, nop()));
    EXPECT_EQ(m_->interrupts(1), round - 1);
    EXPECT_EQ(m_->read(Device::kMsixPba), 2u);
    mask(0);
    EXPECT_EQ(m_->interrupts(1), round);
    EXPECT_EQ(m_->read(Device::kMsixPba), 0u);
  }
}

// Masks change while workers raise interrupts.
TEST_P(WorkersInterruptTest, NoneComesWhileItsVectorIsMaskedAndNothingStaysPending) {
  const auto& c = m_->start_context(3, 1024);
  std::atomic<bool> masked = false;
  std::atomic<unsigned> too_early = 0;
  m_->on_interrupt = [&](unsigned) { too_early += masked.load(); };
  const auto mask = [this](std::uint32_t bit) {
    m_->device->write_bar(0, Device::kMsixTable + 16 + 12, std::as_bytes(std::span(&bit, 1)));
  };
  for (int i = 0; i < 1000; ++i) push(c, interrupt(1));
  m_->doorbell(3, 1000);
  for (int i = 0; i < 200; ++i) {
    m_->step();
    mask(1);
    masked = true;
    std::this_thread::sleep_for(20us);
    m_->step();
    masked = false;
    mask(0);
  }
  ASSERT_TRUE(execute(c, nop()));
  EXPECT_EQ(too_early, 0u);
  EXPECT_GE(m_->interrupts(1), 1u);
  EXPECT_EQ(m_->read(Device::kMsixPba), 0u);
}

}  // namespace
}  // namespace softhca::sdxi::test
