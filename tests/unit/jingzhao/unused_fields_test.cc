// Fields that the document calls unused, and bits that it does not name, are ignored: set to all
// ones they change nothing.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "jingzhao/send_wqe.h"
#include "jingzhao/world.h"
#include "spec/jingzhao/command.h"
#include "spec/jingzhao/registers.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::jingzhao::test {
namespace {

using spec::jingzhao::command_opcode;
using spec::jingzhao::hcr;

/// Sets all bits of `bytes`, a structure, that no field has, or an unused one. Returns how many.
template <class Layout>
unsigned scribble(std::span<std::byte> bytes, util::ByteOrder order) {
  std::vector<bool> used(bytes.size() * 8);  // by byte, and bit in it
  for (const auto& field : Layout::kFields) {
    if (field.note.starts_with("unused")) continue;
    const unsigned width = field.hi > 31 ? 8 : 4;
    for (unsigned bit = field.lo; bit <= field.hi; ++bit) {
      const auto byte = order == util::ByteOrder::kBig ? width - 1 - bit / 8 : bit / 8;
      const auto at = field.offset + byte;
      if (at < bytes.size()) used[at * 8 + bit % 8] = true;
    }
  }
  unsigned count = 0;
  for (std::size_t i = 0; i != used.size(); ++i) {
    if (used[i]) continue;
    bytes[i / 8] |= std::byte{1} << (i % 8);
    ++count;
  }
  return count;
}

/// Spoils each input mailbox between the driver and the device.
class Scribbler final : public driver::InProcessHost {
 public:
  using InProcessHost::InProcessHost;

  util::Result<driver::DmaRegion> allocate(std::size_t size) override {
    auto made = InProcessHost::allocate(size);
    if (made) regions_.push_back(*made);
    return made;
  }
  void write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override {
    if (bar == 0 && offset >= Device::kHcrOffset && offset < Device::kHcrOffset + hcr::kSize) {
      std::ranges::copy(
          in, hcr_.bytes().begin() + static_cast<std::ptrdiff_t>(offset - Device::kHcrOffset));
      if (offset == Device::kHcrOffset + 0x18) spoil();
    }
    InProcessHost::write_bar(bar, offset, in);
  }

  unsigned bits = 0;  ///< that were set

 private:
  std::span<std::byte> mailbox() {
    const auto at = std::uint64_t{hcr_.get(hcr::in_param_h)} << 32 | hcr_.get(hcr::in_param_l);
    for (const auto& region : regions_) {
      if (at >= region.iova && at < region.iova + region.bytes.size()) {
        return region.bytes.subspan(at - region.iova);
      }
    }
    return {};
  }
  template <class Layout>
  void spoil(std::size_t size) {
    bits += scribble<Layout>(mailbox().first(size), util::ByteOrder::kBig);
  }
  void spoil() {
    using enum command_opcode;
    switch (command_opcode(hcr_.get(hcr::op))) {
      case INIT_HCA:
        return spoil<spec::jingzhao::init_hca_in>(64);
      case SW2HW_MPT:
        return spoil<spec::jingzhao::mpt_entry>(64);
      case SW2HW_EQ:
        return spoil<spec::jingzhao::eq_context>(64);
      case SW2HW_CQ:
        return spoil<spec::jingzhao::cq_context>(64);
      case RESIZE_CQ:
        return spoil<spec::jingzhao::resize_cq_in>(8);
      case RST2INIT_QPEE:
      case INIT2RTR_QPEE:
      case RTR2RTS_QPEE:
        return spoil<spec::jingzhao::qp_context>(192);
      default:
        return;
    }
  }

  util::Struct<hcr> hcr_;
  std::vector<driver::DmaRegion> regions_;
};

class JingzhaoUnusedFields : public ::testing::TestWithParam<wire::Link> {};

TEST_P(JingzhaoUnusedFields, OfContextsAndMailboxesAreIgnored) {
  World world({.card = {.link = GetParam()}, .make_host = [](auto& function, auto options) {
                 return std::make_unique<Scribbler>(function, std::move(options));
               }});
  world.open();
  Side a(world.a()), b(world.b());
  connect(a, b);
  must(a.send_cq->resize(512));
  fill(a.bytes(0, 9000), 1);
  b.receive(7, 0, 9000);
  const auto piece = a.piece(0, 9000);
  for (const auto opcode :
       {driver::SendOpcode::kSend, driver::SendOpcode::kRdmaWrite, driver::SendOpcode::kRdmaRead}) {
    ASSERT_EQ(a.qp->post_send({.id = 1,
                               .opcode = opcode,
                               .pieces = {&piece, 1},
                               .remote_address = b.address(20000),
                               .rkey = b.key->key()}),
              PostStatus::kOk);
    const auto done = wait(world, *a.send_cq);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, WorkStatus::kSuccess);
  }
  expect_success(wait(world, *b.receive_cq), 7, CompletionOpcode::kReceive);
  EXPECT_TRUE(same(a.bytes(0, 9000), b.bytes(0, 9000)));
  EXPECT_TRUE(same(a.bytes(0, 9000), b.bytes(20000, 9000)));
  EXPECT_GT(static_cast<Scribbler&>(*world.a().host).bits, 1000u);
}

INSTANTIATE_TEST_SUITE_P(OnBothLinks, JingzhaoUnusedFields,
                         ::testing::Values(wire::Link::kEthernet, wire::Link::kInfiniband),
                         [](const auto& link) {
                           return link.param == wire::Link::kEthernet ? "Ethernet" : "Infiniband";
                         });

// JingZhao 3.4: C, S, E and the EE address of a next unit, and what no unit names.
TEST(JingzhaoUnusedUnits, OfWqesAreIgnored) {
  using namespace spec::jingzhao;
  std::array<std::byte, 64> plain{};
  const auto unit = [&](auto layout, std::size_t at) {
    return util::MutableView<decltype(layout)>(std::span(plain).subspan(at));
  };
  unit(next_unit(), 0).set(next_unit::imm_data, 0x11223344);
  unit(raddr_unit(), 16).set(raddr_unit::raddr, 0x5566);
  unit(raddr_unit(), 16).set(raddr_unit::rkey, 0x77);
  unit(data_unit(), 32).set(data_unit::byte_cnt, 8);
  unit(data_unit(), 32).set(data_unit::lkey, 0x99);
  unit(data_unit(), 32).set(data_unit::addr, 0xAABB);
  auto spoiled = plain;
  const auto bytes = std::span(spoiled);
  auto count = scribble<raddr_unit>(bytes.subspan(16, 16), util::ByteOrder::kLittle);
  // Those of the next unit that say what follows are another WQE's.
  count += scribble<next_unit>(bytes.first(16), util::ByteOrder::kLittle);
  ASSERT_GT(count, 60u);
  const SendWqe what{.opcode = static_cast<std::uint8_t>(wqe_opcode::RDMA_WRITE_IMM), .units = 3};
  rdma::SendRequest expected, seen;
  ASSERT_EQ(decode_send_wqe(std::span(plain).first(48), what, {}, expected), WqeFault::kNone);
  ASSERT_EQ(decode_send_wqe(bytes.first(48), what, {}, seen), WqeFault::kNone);
  EXPECT_EQ(seen.opcode, expected.opcode);
  EXPECT_EQ(seen.immediate, expected.immediate);
  EXPECT_EQ(seen.remote_address, expected.remote_address);
  EXPECT_EQ(seen.rkey, expected.rkey);
  EXPECT_EQ(seen.signaled, expected.signaled);
  EXPECT_EQ(seen.solicited, expected.solicited);
  EXPECT_EQ(seen.fence, expected.fence);
  ASSERT_EQ(seen.sges.size(), 1u);
  EXPECT_EQ(seen.sges[0].address, expected.sges[0].address);
  EXPECT_EQ(seen.sges[0].length, expected.sges[0].length);
}

}  // namespace
}  // namespace softhca::jingzhao::test
