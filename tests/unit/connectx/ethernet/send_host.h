// An SQ of an Ethernet device, and what its CQ reports.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/ethernet/ethernet_host.h"

namespace softhca::connectx::test {

class EthernetSend : public ::testing::Test {
 protected:
  using cqe64_requester = spec::connectx::cqe64_requester;
  using cqe_error = spec::connectx::cqe_error;
  using cqe_opcode = spec::connectx::cqe_opcode;
  using cqe_syndrome = spec::connectx::cqe_syndrome;
  using wqe_opcode = spec::connectx::wqe_opcode;

  explicit EthernetSend(const Model& model = {}) : EthernetSend(HostOptions{.model = model}) {}
  explicit EthernetSend(const HostOptions& options)
      : host(options), cqn(host.create_cq()), sqn(host.create_sq(cqn)) {}

  Wqe wqe(wqe_opcode opcode = wqe_opcode::SEND) { return {opcode, sqn, host.posted(sqn)}; }
  std::uint64_t place(std::span<const std::byte> bytes) {
    const auto buffer = host.allocate(bytes.size());
    std::ranges::copy(bytes, host.at(buffer));
    return buffer;
  }
  /// A WQE that sends `frame`, with `inlined` bytes in the Eth segment.
  Bytes send_of(std::span<const std::byte> frame, std::size_t inlined, bool checksums = false) {
    const auto rest = frame.subspan(inlined);
    auto result = wqe().eth(frame.first(inlined), checksums);
    if (!rest.empty()) {
      result.pointer(EthernetHost::kKey, place(rest), static_cast<std::uint32_t>(rest.size()));
    }
    return result.finish();
  }
  void expect_completion(std::uint16_t counter) {
    const auto cqe = host.poll(cqn);
    ASSERT_FALSE(cqe.empty());
    const util::View<cqe64_requester> view(cqe);
    EXPECT_EQ(view.get(cqe64_requester::opcode), 0u);
    EXPECT_EQ(view.get(cqe64_requester::wqe_counter), counter);
    EXPECT_EQ(view.get(cqe64_requester::qpn), sqn);
    EXPECT_EQ(view.get(cqe64_requester::srqn_user_index), 0xABCDEu);
  }
  void expect_error(std::uint16_t counter, cqe_syndrome syndrome, rdma::Reason reason) {
    EXPECT_EQ(host.expect_error(cqn, cqe_opcode::REQUESTER_ERROR, counter, syndrome, reason), sqn);
  }
  void expect_no_completion() { EXPECT_TRUE(host.poll(cqn).empty()); }

  EthernetHost host;
  std::uint32_t cqn;
  std::uint32_t sqn;
};

}  // namespace softhca::connectx::test
