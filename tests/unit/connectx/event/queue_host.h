// A host with an EQ, and a CQ that reports to it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "connectx/event/completion_queue.h"
#include "connectx/fake_host.h"
#include "spec/connectx/cq.h"

namespace softhca::connectx {

class QueueTest : public testing::Test {
 protected:
  QueueTest() {
    host.initialize();
    eqn = host.create_eq(4, 0, 2);
    eq = host.last_buffer;
  }
  void eq_doorbell(std::uint32_t offset, std::uint32_t consumer, std::uint32_t uar) {
    host.write32(uar * 4096 + offset, eqn << 24 | consumer);
  }
  void arm_eq(std::uint32_t consumer) { eq_doorbell(0x40, consumer, host.uar); }
  void make_cq(unsigned log_size = 4, const FakeHost::Fill<spec::connectx::cq_context>& fill = {},
               unsigned stride = 64) {
    const auto made = host.create_cq(log_size, eqn, stride, fill);
    cqn = made.cqn;
    cq = made.ring;
    record = made.record;
  }
  /// The arm doorbell of a driver that has handled all events: cmd_sn counts them (PRM Table 70).
  std::uint64_t arm_word(std::uint32_t consumer, bool solicited = false) {
    return std::uint64_t{events() & 3} << 28 | consumer | (solicited ? 1u << 24 : 0u);
  }
  void arm_cq(std::uint32_t consumer, bool solicited = false) {
    host.write64(host.uar * 4096 + 0x20, arm_word(consumer, solicited) << 32 | cqn);
  }
  bool complete(bool solicited = false, std::byte mark = {}) {
    std::array<std::byte, 64> cqe{};
    cqe[0] = std::byte{0xC0};
    cqe[1] = mark;
    return host.device.driver().completion_queues().find(Cqn(cqn))->write(cqe, solicited);
  }
  /// The health syndrome of the initialization segment, at the manual's offset and at the drivers'.
  std::uint32_t health() {
    const auto syndrome = host.read32(0x1010) >> 24;
    EXPECT_EQ(host.read32(0x23C) >> 16 & 0xFF, syndrome);
    return syndrome;
  }
  /// Calls `what` while the page of `buffer` is not mapped.
  void break_pages(std::uint64_t buffer, const std::function<void()>& what) {
    auto& dma = host.device.dma();
    host.unmap();
    const auto below = buffer - FakeHost::kMemoryAt;
    const auto above = buffer + 4096;
    const auto rest = FakeHost::kMemorySize - below - 4096;
    ASSERT_TRUE(dma.map(FakeHost::kMemoryAt, below, host.at(FakeHost::kMemoryAt),
                        pcie::DmaAccess::kReadWrite));
    ASSERT_TRUE(dma.map(above, rest, host.at(above), pcie::DmaAccess::kReadWrite));
    what();
    dma.unmap_all();
    host.map();
  }
  unsigned events() {
    unsigned n = 0;
    while (n < 16 && host.at(eq + 64 * n)[63] == std::byte{0}) ++n;
    return n;
  }

  FakeHost host;
  std::uint32_t eqn = 0;
  std::uint64_t eq = 0;
  std::uint32_t cqn = 0;
  std::uint64_t cq = 0;
  std::uint64_t record = 0;
};

}  // namespace softhca::connectx
