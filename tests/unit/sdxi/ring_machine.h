// A machine with one running context, and how its descriptors are refused.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {

class RingTest : public ::testing::Test {
 protected:
  using ent = spec::errlog_hd_ent;
  using cxtv = spec::cxtv;

  RingTest() {
    m_.activate();
    c_ = m_.start_context(5);
  }
  /// Expects the parser to refuse the descriptor (SDXI 5.3 step 12).
  void expect_parse_error(const Descriptor& d, ContextNumber number = 5, unsigned err_class = 0) {
    const auto& c = m_.context(number);
    m_.set_state(c, cxtv::CXTV_STOP_SW);
    m_.store64(c.write_index, m_.read_index(c));
    m_.set_state(c, cxtv::CXTV_RUN);
    const auto records = m_.records();
    auto with_block = d;
    const auto block = m_.attach_completion(with_block);
    const auto index = m_.submit(c, with_block);
    const std::vector<std::byte> ring(m_.host(m_.slot(c, index)), m_.host(m_.slot(c, index)) + 64);
    m_.run();
    EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
    EXPECT_EQ(m_.read_index(c), index);
    EXPECT_EQ(0, std::memcmp(ring.data(), m_.host(m_.slot(c, index)), 64));
    EXPECT_EQ(m_.signal(block), 1u);
    EXPECT_FALSE(m_.er(block));
    ASSERT_EQ(m_.records(), records + 1);
    const auto r = m_.record(records);
    EXPECT_EQ(r.get(ent::step), 7u);
    EXPECT_EQ(r.get(ent::sub_step), 3u);
    EXPECT_EQ(r.get(ent::div), 1u);
    EXPECT_EQ(r.get(ent::dsc_index), index);
    EXPECT_EQ(r.get(ent::cxt_num), number);
    if (err_class != 0) {
      EXPECT_EQ(r.get(ent::err_class), err_class);
    }
  }
  void expect_ring_error(std::uint64_t write_index) {
    m_.store64(c_.write_index, write_index);
    m_.doorbell(5, write_index);
    m_.run();
    EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
    ASSERT_EQ(m_.records(), 1u);
    EXPECT_EQ(m_.record(0).get(ent::step), 6u);
    EXPECT_EQ(m_.record(0).get(ent::err_class), 0x2350u);
  }
  FunctionGroup group_;
  Machine m_{group_};
  Machine::Context c_;
};

}  // namespace softhca::sdxi::test
