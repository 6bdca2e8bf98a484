// SDXI 5: the descriptor ring, from doorbell to completion.
#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using spec::cxtv;

class RingTest : public ::testing::Test {
 protected:
  RingTest() { machine_.activate(); }
  FunctionGroup group_;
  Machine machine_{group_};
};

TEST_F(RingTest, ACopyMovesItsBytes) {
  auto& c = machine_.start_context(5);
  ASSERT_EQ(machine_.state(c), cxtv::CXTV_RUN);
  const auto from = machine_.allocate(1000), to = machine_.allocate(1000);
  machine_.fill(from, 1000, 1);
  const auto outcome = machine_.execute(c, copy(from, to, 1000));
  EXPECT_TRUE(outcome.done);
  EXPECT_FALSE(outcome.er);
  EXPECT_TRUE(machine_.equal(from, to, 1000));
  EXPECT_EQ(machine_.read_index(c), 1u);
  EXPECT_EQ(machine_.records(), 0u);
}

}  // namespace
}  // namespace softhca::sdxi::test
