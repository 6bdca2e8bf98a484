// A device whose ICM a test maps itself, with memory regions and queue pairs in it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "jingzhao/memory_keys.h"
#include "jingzhao/queue_pairs.h"
#include "jingzhao/raw_host.h"
#include "spec/jingzhao/context.h"
#include "util/clock.h"

namespace softhca::jingzhao::test {

class JingzhaoIcm : public testing::Test {
 protected:
  using mpt_entry = spec::jingzhao::mpt_entry;
  using qp_context = spec::jingzhao::qp_context;

  void put_mpt(std::uint32_t key) {
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::sw_owns, 0xF);
    entry.set(mpt_entry::local_write, 1);
    entry.set(mpt_entry::key, key);
    entry.set(mpt_entry::start, 0x1000);
    entry.set(mpt_entry::length, 0x1000);
    h.put(entry.bytes());
  }
  hcr_status install_mpt(std::uint32_t index) {
    put_mpt(index);
    return h.with_mailbox(command_opcode::SW2HW_MPT, index);
  }
  /// One 2 MiB MTT for all regions that install_largest_region() makes: every page maps the same
  /// page of zeros.
  void map_largest_mtt() {
    for (std::uint64_t virt = 0; virt != limits::kMaxPages * limits::kMttSize; virt += 0x1000) {
      ASSERT_EQ(h.map(2, RawHost::kMtt + virt, h.bus(RawHost::kMtt), 1), hcr_status::OK);
    }
  }
  void install_largest_region(std::uint32_t key) {
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::local_write, 1);
    entry.set(mpt_entry::key, key);
    entry.set(mpt_entry::length, limits::kMaxPages << limits::kLogMinPage);
    h.put(entry.bytes());
    ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, key), hcr_status::OK);
  }
  /// The ICM address of queue pair contexts after start_up().
  static constexpr std::uint64_t kQpTable = 0x1000000;
  /// Initializes the device with room for 2^`log_qps` queue pairs, and installs the first `cqs`
  /// CQs, whose contexts are in the host's memory at `cq_contexts`.
  void start_up(unsigned log_qps, std::uint64_t cq_contexts, std::uint32_t cqs) {
    ASSERT_EQ(h.map(1, RawHost::kCqc, h.bus(cq_contexts), RawHost::kTablePages), hcr_status::OK);
    h.put_init();
    h.put64(0x08, kQpTable | log_qps);
    ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), hcr_status::OK);
    h.clear_mailbox();
    for (std::uint32_t cqn = 0; cqn != cqs; ++cqn) {
      ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, cqn), hcr_status::OK);
    }
  }
  static void describe(util::MutableView<qp_context> context, std::uint32_t qpn,
                       std::uint32_t cqn) {
    context.set(qp_context::local_qpn, qpn);
    context.set(qp_context::cqn_snd, cqn);
    context.set(qp_context::cqn_rcv, cqn);
    context.set(qp_context::state, 1);
  }
  /// Puts the context of a queue pair into the mailbox.
  void put_context(std::uint32_t qpn, std::uint32_t cqn) {
    util::Struct<qp_context> context;
    describe(context, qpn, cqn);
    h.put(context.bytes());
  }
  /// Takes a queue pair to INIT without a command.
  void create_qp(std::uint32_t qpn, std::uint32_t cqn) {
    util::Struct<qp_context> context;
    describe(context, qpn, cqn);
    ASSERT_TRUE(queue_pairs().modify(Qpn(qpn), rdma::QpState::kReset, rdma::QpState::kInit,
                                     util::View<qp_context>(context.bytes())));
  }
  QueuePairs& queue_pairs() { return *h.device.objects().queue_pairs; }
  rdma::QpState state_of(std::uint32_t qpn) {
    return std::as_const(queue_pairs()).find(Qpn(qpn))->rdma_qp().state();
  }
  /// Runs the device until it has paid for its work and waits.
  void settle() {
    constexpr unsigned kMost = 2000;
    for (unsigned i = 0; i != kMost; ++i) {
      if (h.device.run(now) > now) return;
    }
    FAIL() << "the device never waits";
  }
  const MemoryKeys& memory_keys() { return *h.device.objects().memory_keys; }

  util::Time now{std::chrono::seconds(1)};  // as in RawHost::run()
  RawHost h;
};

}  // namespace softhca::jingzhao::test
