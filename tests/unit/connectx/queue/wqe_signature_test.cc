// Signatures of send WQEs (PRM 9.2.3, Table 26): "The signature covers (XOR) entire WQE Should
// result in 0xff. This feature is enabled per WQ."
#include <gtest/gtest.h>

#include <vector>

#include "connectx/ethernet/ethernet_host.h"
#include "connectx/qp/data_path.h"
#include "connectx/queue/wqe_fault.h"

namespace softhca::connectx::test {
namespace {

using Send = spec::connectx::wqe_opcode;
using CtrlSegment = spec::connectx::wqe_ctrl_segment;
using Bytes = std::vector<std::byte>;

/// Signs a WQE as software does.
void sign(std::span<std::byte> wqe) {
  std::byte sum{};
  for (const auto byte : wqe) sum ^= byte;
  util::MutableView<CtrlSegment>(wqe).set(CtrlSegment::signature,
                                          std::to_integer<std::uint32_t>(~sum));
}

class WqeSignature : public RdmaDataPath {
 protected:
  /// The completion of a WRITE that `change` modifies after it was signed.
  template <class Change>
  HostCqe completion(HostQp& qp, Change&& change) {
    auto bytes =
        wqe(qp, Send::RDMA_WRITE).remote(to_, RdmaTestHost::kKey).inline_data("signed").bytes();
    sign(bytes);
    change(bytes);
    host_.post_send(qp, bytes);
    host_.ring_send(qp);
    host_.run();
    const auto cqes = completions();
    EXPECT_EQ(cqes.size(), 1u);
    return cqes.at(0);
  }

  pcie::Iova to_ = host_.allocate(64, 64);
};

TEST_F(WqeSignature, TheSignatureOfAQpThatRequestsOneIsChecked) {
  auto [a, b] = host_.connected({.wq_signature = true});
  for (int i = 0; i != 3; ++i) {
    EXPECT_EQ(completion(a, [](Bytes&) {}).opcode, CqeOpcode::REQUESTER);
  }
  EXPECT_EQ(host_.text(to_, 6), "signed");
  const auto cqe = completion(a, [](Bytes& wqe) { wqe.back() ^= std::byte{1}; });
  EXPECT_EQ(cqe.syndrome, Syndrome::LOCAL_QP_OPERATION_ERROR);
  EXPECT_EQ(WqeFault(cqe.reason), WqeFault::kSignature);
}

TEST_F(WqeSignature, TheSignatureOfAQpThatRequestsNoneIsIgnored) {
  auto [a, b] = host_.connected();
  const auto cqe = completion(a, [](Bytes& wqe) { wqe.back() ^= std::byte{1}; });
  EXPECT_EQ(cqe.opcode, CqeOpcode::REQUESTER);
}

TEST(SqWqeSignature, MustBeRightToo) {
  using test::EthernetHost;
  EthernetHost host;
  const auto cqn = host.create_cq();
  const auto sqn = host.create_sq(cqn, 4, true, true, true);
  const auto nop = [&] { return test::Wqe(Send::NOP, sqn, host.posted(sqn)).finish(); };
  auto right = nop();
  sign(right);
  host.post_send(sqn, right);
  using Cqe = spec::connectx::cqe_error;
  const auto opcode = [&] { return util::View<Cqe>(host.poll(cqn)).get(Cqe::opcode); };
  EXPECT_EQ(opcode(), 0u);
  host.post_send(sqn, nop());
  EXPECT_EQ(opcode(), static_cast<std::uint32_t>(CqeOpcode::REQUESTER_ERROR));
}

}  // namespace
}  // namespace softhca::connectx::test
