// Attacks of a guest on its own JingZhao HCA.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "driver/jingzhao/command_interface.h"
#include "driver/jingzhao/owned_entries.h"
#include "jingzhao_client.h"
#include "neighbours.h"
#include "spec/jingzhao/command.h"
#include "spec/jingzhao/registers.h"
#include "util/endian.h"

namespace softhca::neighbours {
namespace {

using JingzhaoCommand = spec::jingzhao::command_opcode;

class JingzhaoNeighbours : public Neighbours {
 protected:
  // A small cache: most accesses load what they use.
  JingzhaoNeighbours()
      : Neighbours({"jingzhao,name=hostile_jingzhao,guest=hostile,icm_cache=16"}) {}
  std::string hostile_jingzhao() const { return socket(kFirstMore); }
};
SOFTHCA_WITH_AND_WITHOUT_ISOLATE(JingzhaoNeighbours);

// A CQ that goes has the HCA check all queue pairs: 150 units for each.
TEST_P(JingzhaoNeighbours, LostCqsAreNoReasonToCheckAllQueuePairsInATurn) {
  {
    JingzhaoClient client(hostile_jingzhao(), {.log_qps = 13, .patience = 20s});
    client.make_bare_queue_pairs(3000);
    for (int i = 0; i != 30; ++i) {
      const auto lost = must(jz::CompletionQueue::create(*client.hca, {.entries = 16}));
      must(lost->destroy());
    }
  }
  const JingzhaoClient next(hostile_jingzhao());
  expect_unharmed();
}

// Destroying a queue pair takes about 1,000 units.
TEST_P(JingzhaoNeighbours, AsManyQueuePairsAsAClosedHcaHasGoInPieces) {
  for (const bool reset : {false, true}) {
    JingzhaoClient client(hostile_jingzhao(), {.log_qps = 13});
    client.make_bare_queue_pairs(1000);
    client.bare_qpns.clear();  // they go with the HCA
    if (reset) {
      std::array<std::byte, sizeof(std::uint32_t)> one;
      util::store_le32(one.data(), 1);
      client.host->write_bar(jz::kHcrBar, jz::kResetOffset, one);
    } else {
      must(client.hca->run({.op = JingzhaoCommand::CLOSE_HCA}));
    }
  }
  const JingzhaoClient next(hostile_jingzhao());
  expect_unharmed();
}

/// CQs, each in a region of its own of 2^16 pages. The regions share the entries of their pages, of
/// which only the first is memory.
class LargeRegions {
 public:
  static constexpr std::uint32_t kPages = 1 << 16;
  LargeRegions(JingzhaoClient& client, unsigned count)
      : host_(*client.host),
        hca_(*client.hca),
        ring_(must(driver::DmaBuffer::allocate(host_, driver::Host::kPageSize))) {
    jz::give_all(ring_.bytes());
    const auto first_mtt = hca_.mtts().allocate(kPages).value();
    write_first_page(first_mtt);
    for (unsigned i = 0; i != count; ++i) make_cq(make_region(first_mtt));
  }

  /// Arms all CQs, for which the device reads their rings.
  void arm() {
    std::array<std::byte, sizeof(std::uint32_t)> doorbell;
    for (const auto cqn : cqns_) {
      util::store_le32(doorbell.data(), cqn);
      host_.write_bar(jz::kUarBar, hca_.uar() + spec::jingzhao::uar_page::arm_cqn.kOffset,
                      doorbell);
    }
  }

 private:
  void write_first_page(std::uint64_t first_mtt) {
    using In = spec::jingzhao::write_mtt_in;
    using Group = spec::jingzhao::mtt_entry_group;
    std::array<std::byte, In::kSize + Group::kSize> in{};
    util::MutableView<In>(in).set(In::mtt_start_index, first_mtt);
    util::MutableView<Group>(std::span(in).subspan(In::kSize)).set(Group::page_0, ring_.iova());
    must(hca_.run({.op = JingzhaoCommand::WRITE_MTT, .in_modifier = 1, .in = in}));
  }
  std::uint32_t make_region(std::uint64_t first_mtt) {
    using Entry = spec::jingzhao::mpt_entry;
    const auto key = hca_.mpts().allocate().value();
    util::Struct<Entry> entry;
    entry.set(Entry::region, 1);
    entry.set(Entry::local_write, 1);
    entry.set(Entry::key, key);
    entry.set(Entry::length, driver::Host::kPageSize * kPages);
    entry.set(Entry::mtt_seg, first_mtt);
    must(hca_.run({.op = JingzhaoCommand::SW2HW_MPT, .in_modifier = key, .in = entry.bytes()}));
    return key;
  }
  void make_cq(std::uint32_t key) {
    using Context = spec::jingzhao::cq_context;
    util::Struct<Context> context;
    context.set(Context::lkey, key);
    cqns_.push_back(hca_.cqns().allocate().value());
    must(hca_.run(
        {.op = JingzhaoCommand::SW2HW_CQ, .in_modifier = cqns_.back(), .in = context.bytes()}));
  }

  driver::Host& host_;
  jz::Hca& hca_;
  driver::DmaBuffer ring_;
  std::vector<std::uint32_t> cqns_;
};

TEST_P(JingzhaoNeighbours, RegionsThatAreLoadedAgainAndAgainAreWorkThatTheirGuestPays) {
  {
    JingzhaoClient client(hostile_jingzhao());
    LargeRegions regions(client, 64);
    for (int i = 0; i != 100; ++i) {
      regions.arm();
      must(client.hca->run({.op = JingzhaoCommand::NOP, .in_modifier = 0x1f}));
    }
  }
  const JingzhaoClient next(hostile_jingzhao());
  expect_unharmed();
}

}  // namespace
}  // namespace softhca::neighbours
