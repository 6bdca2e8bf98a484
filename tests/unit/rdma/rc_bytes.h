// A connected pair for tests of RC, the places of its bytes, and their comparison.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "rdma/pair.h"

namespace softhca::rdma::test {

inline constexpr std::uint64_t kHere = 0x1000;   // in a's memory
inline constexpr std::uint64_t kThere = 0x5003;  // in b's memory, not aligned

inline bool same(End& x, std::uint64_t at_x, End& y, std::uint64_t at_y, std::size_t length) {
  return std::memcmp(x.at(at_x), y.at(at_y), length) == 0;
}

class Rc : public ::testing::Test {
 protected:
  Rc() {
    pair.connect();
    pair.a.fill(0, 0x40000, 1);
    pair.b.fill(0, 0x40000, 2);
  }
  Pair pair;
};

}  // namespace softhca::rdma::test
