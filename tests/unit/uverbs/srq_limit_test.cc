// The limit of an SRQ, as mlx5_ib handles it (mlx5_ib_create_srq, mlx5_ib_modify_srq).
#include <gtest/gtest.h>
#include <rdma/ib_user_verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "util/endian.h"
#include "uverbs/program.h"

namespace softhca::uverbs {
namespace {

class UverbsSrqLimit : public testing::Test {
 protected:
  UverbsSrqLimit() { EXPECT_EQ(program_.reopen(false), 0); }
  /// An SRQ of 16 WQEs, ten of which are posted.
  std::uint32_t create(std::uint32_t limit) {
    constexpr Program::SrqOptions kDefault;
    const auto counter = reinterpret_cast<std::byte*>(program_.memory() + kDefault.record);
    util::store_be32(counter, 10);
    std::uint32_t srq = 0;
    EXPECT_EQ(program_.create_srq(program_.pd(), {.limit = limit}, srq), 0);
    return srq;
  }
  std::uint32_t armed(std::uint32_t srq) {
    ib_uverbs_query_srq in{};
    in.srq_handle = srq;
    ib_uverbs_query_srq_resp out{};
    EXPECT_EQ(write_command(program_.context(), IB_USER_VERBS_CMD_QUERY_SRQ, in, out), 0);
    return out.srq_limit;
  }

  Program program_;
};

TEST_F(UverbsSrqLimit, IsNotArmedWhenTheSrqIsMade) {
  const auto srq = create(5);
  EXPECT_EQ(armed(srq), 0u);
  EXPECT_EQ(program_.limit_srq(srq, 5), 0);
  EXPECT_EQ(armed(srq), 5u);
}

// "srq_limit >= msrq.max" is EINVAL: the card would report such a limit immediately.
TEST_F(UverbsSrqLimit, IsBelowTheSizeOfTheSrq) {
  const auto srq = create(0);
  EXPECT_EQ(program_.limit_srq(srq, 5), 0);
  EXPECT_EQ(program_.limit_srq(srq, 16), EINVAL);
  EXPECT_EQ(armed(srq), 5u) << "as before";
  EXPECT_EQ(program_.limit_srq(srq, 15), 0);
  EXPECT_EQ(armed(srq), 0u) << "reached: fewer are posted";
}

}  // namespace
}  // namespace softhca::uverbs
