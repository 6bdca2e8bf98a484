// Executing descriptors allocates no memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "fabric/allocation_counter.h"
#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

/// Fills a ring with NOPs and copies of all sizes, with completion blocks, and executes it.
void fill_and_run(Machine& m, const Machine::Context& c, Iova from, Iova to, Iova block) {
  for (unsigned i = 0; i < c.ring_sz; ++i) {
    auto descriptor = i % 2 == 0 ? nop() : copy(from, to, 1u << (i / 2 % 16));
    footer(descriptor).set(spec::dsc_footer::np, 0);
    spec::set_address(footer(descriptor), spec::dsc_footer::csb_ptr, block);
    m.push(c, descriptor);
  }
  m.doorbell(c.number, m.write_index(c));
  m.run();
  ASSERT_EQ(m.read_index(c), m.write_index(c));
}

TEST(AllocationTest, DescriptorsOfContextsThatRunAllocateNothing) {
  FunctionGroup group;
  Machine m(group, DeviceOptions{});
  m.activate();
  const auto& c = m.start_context(1, 1024);
  const auto from = m.allocate(64 << 10), to = m.allocate(64 << 10), block = m.allocate(32, 32);
  m.store64(block, ~std::uint64_t{0} >> 1);
  fill_and_run(m, c, from, to, block);
  const auto before = fabric::allocation_count();
  fill_and_run(m, c, from, to, block);
  EXPECT_EQ(fabric::allocation_count(), before);
}

}  // namespace
}  // namespace softhca::sdxi::test
