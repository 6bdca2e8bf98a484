// Doorbell records of queues in a program's memory. mlx5_ib does not check their alignment: the
// device refuses the command, which is EINVAL (PRM 7.4.2, 7.12.2).
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>

#include "uverbs/program.h"
#include "uverbs/raw_packet_program.h"

namespace softhca::uverbs {
namespace {

class UverbsRecords : public UverbsRawPacket {
 protected:
  Errno create_cq(std::uint64_t record) {
    return program_.create_cq(page_, {.begin = 4 * kPage, .record = record}, handle_);
  }
  static constexpr std::uint64_t kRecords = Program::kMemory - kPage;
  std::uint32_t handle_ = 0;
};

TEST_F(UverbsRecords, ThatOfACqIsAlignedTo8Bytes) {
  EXPECT_EQ(create_cq(kRecords + 128 + 4), EINVAL);
  EXPECT_EQ(create_cq(kRecords + 128 + 8), 0);
}

TEST_F(UverbsRecords, ThatOfAnSrqIsAlignedTo4Bytes) {
  EXPECT_EQ(program_.create_srq(pd_, {.record = kRecords + 128 + 2}, handle_), EINVAL);
  EXPECT_EQ(program_.create_srq(pd_, {.record = kRecords + 128 + 4}, handle_), 0);
}

TEST_F(UverbsRecords, ThatOfAWqIsAlignedTo4Bytes) {
  EXPECT_EQ(program_.create_wq(pd_, cq_, {.record = kRecords + 128 + 2}, handle_), EINVAL);
  EXPECT_EQ(program_.create_wq(pd_, cq_, {.record = kRecords + 128 + 4}, handle_), 0);
}

TEST_F(UverbsRecords, ThatOfARawPacketQpIsAlignedTo4Bytes) {
  record_offset_ = 128 + 2;
  EXPECT_EQ(create_qp(16, 16).wrong, EINVAL);
  record_offset_ = 128 + 4;
  EXPECT_EQ(create_qp(16, 16).wrong, 0);
}

}  // namespace
}  // namespace softhca::uverbs
