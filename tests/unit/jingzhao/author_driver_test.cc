// Replays, value for value, the register accesses of the driver that JingZhao's author has
// published: the kernel module ib_hgrnic and its library libhgrnic of the public repository
// liaoyunkun/Jingzhao. None of its code is copied here. A card with profile=driver works with it
// (docs/jingzhao.md).
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "jingzhao/raw_host.h"
#include "spec/jingzhao/context.h"
#include "spec/jingzhao/cqe.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;
using spec::jingzhao::cq_context;
using spec::jingzhao::cqe;
using spec::jingzhao::data_unit;
using spec::jingzhao::mpt_entry;
using spec::jingzhao::next_unit;
using spec::jingzhao::qp_context;
using spec::jingzhao::qp_state;
using spec::jingzhao::raddr_unit;
using spec::jingzhao::wqe_opcode;

constexpr std::uint32_t kLogQps = 16, kLogCqs = 16, kLogEqs = 5, kLogMpts = 17;
/// ICM addresses of its tables: one after another, the largest first.
constexpr std::uint64_t kQpcBase = 0, kMttBase = 16 << 20, kMptBase = 24 << 20;
constexpr std::uint64_t kCqcBase = 32 << 20, kEqcBase = 40 << 20;
constexpr std::size_t kIcmChunk = 256 << 10;
constexpr unsigned kLogSlot = 7;
constexpr std::uint32_t kSlot = 1u << kLogSlot, kUnit = next_unit::kSize;

struct Memory {
  driver::DmaRegion region;
  std::uint32_t key = 0;
  std::uint64_t address() const { return region.iova; }  ///< bus address of the region
};

struct Cq {
  Memory ring;
  std::uint32_t cqn = 0, mask = 0, consumer = 0;
};

struct Qp {
  static constexpr std::uint32_t kSlots = 8;
  std::uint32_t qpn = 0;
  qp_state state = qp_state::RST;
  Memory sends, receives;
  Cq* cq = nullptr;
  std::uint32_t head = 0;  ///< SQ head; never decreases
  std::uint32_t receive_head = 0;
};

struct Wr {
  wqe_opcode opcode{};
  std::uint64_t from = 0;
  std::uint32_t lkey = 0, length = 0;
  std::uint64_t to = 0;
  std::uint32_t rkey = 0;
};

struct Done {
  bool of_send;
  std::uint32_t qpn, opcode, wqe;
};

/// The driver. It does not poll `go`: it assumes a command has finished by its next read of the
/// HCR.
class AuthorsDriver {
 public:
  static constexpr std::uint32_t kPd = 1;

  AuthorsDriver() : h({.profile = Profile::kDriver}) {}

  hcr_status command(command_opcode op, std::uint32_t in_modifier, std::uint8_t op_modifier = 0) {
    h.start(static_cast<std::uint32_t>(op), {.in_modifier = in_modifier,
                                             .op_modifier = op_modifier,
                                             .in_param = h.in.iova,
                                             .out_param = h.out.iova});
    const auto control = h.read(h.hcr_at + 0x18);
    EXPECT_EQ(control & 1u << 23, 0u) << "go";
    return hcr_status(control >> 24);
  }

  void probe() {
    ASSERT_EQ(driver::read_pci_id(h.host).vendor, 0x10EE);
    ASSERT_EQ(driver::read_pci_id(h.host).device, 0x7028);
    ASSERT_EQ(command(command_opcode::QUERY_ADAPTER, 0), OK);
    ASSERT_EQ(command(command_opcode::QUERY_DEV_LIM, 0), OK);
    ASSERT_EQ(h.out.bytes[0x0c], std::byte{kLogQps});
    ASSERT_EQ(h.out.bytes[0x0d], std::byte{kLogCqs});
    ASSERT_EQ(h.out.bytes[0x0f], std::byte{kLogMpts});
    h.clear_mailbox();
    h.put64(0x08, kQpcBase | kLogQps);
    h.put64(0x10, kCqcBase | kLogCqs);
    h.put64(0x18, kEqcBase | kLogEqs);
    h.put64(0x30, kMptBase | kLogMpts);
    h.put64(0x38, kMttBase);
    ASSERT_EQ(command(command_opcode::INIT_HCA, 0), OK);
    map(1, kEqcBase, h.host.allocate(Icm::kPage).value());
  }

  Memory register_memory(std::size_t size, std::uint64_t start_at = UINT64_MAX) {
    Memory memory{.region = h.host.allocate(size).value(), .key = next_key_++};
    std::ranges::fill(memory.region.bytes, std::byte{0});
    const auto pages = static_cast<std::uint32_t>((size + Icm::kPage - 1) / Icm::kPage);
    const auto first = next_mtt_;
    next_mtt_ += std::bit_ceil(pages);
    register_icm(2, kMttBase, first, 8);
    constexpr std::uint32_t kList = 512;  // a page of addresses
    for (std::uint32_t i = 0; i < pages; i += kList) {
      write_mtt(first + i, memory.region.iova + i * Icm::kPage, std::min(pages - i, kList));
    }
    give_mpt(memory.key, {.start = start_at == UINT64_MAX ? memory.region.iova : start_at,
                          .length = size,
                          .first_mtt = first});
    return memory;
  }

  /// get_dma_mr. Returns the key.
  std::uint32_t register_all_memory() {
    const auto key = next_key_++;
    give_mpt(key, {.start = 0, .length = UINT64_MAX, .first_mtt = 0});
    return key;
  }

  Cq create_cq(std::uint32_t entries) {
    Cq cq{
        .ring = register_memory(entries * cqe::kSize, 0), .cqn = next_cqn_++, .mask = entries - 1};
    for (std::uint32_t i = 0; i != entries; ++i) give_back(cq, i);
    register_icm(1, kCqcBase, cq.cqn, 128);
    util::Struct<cq_context> context;
    context.set(cq_context::tr, 1);
    context.set(cq_context::logsize, static_cast<std::uint32_t>(std::countr_zero(entries)));
    context.set(cq_context::pd, kPd);
    context.set(cq_context::lkey, cq.ring.key);
    context.set(cq_context::cqn, cq.cqn);
    h.put(context.bytes().first(64));
    EXPECT_EQ(command(command_opcode::SW2HW_CQ, cq.cqn), OK);
    return cq;
  }

  Qp create_qp(Cq& cq) {
    Qp qp{.qpn = next_qpn_++,
          .sends = register_memory(Icm::kPage, 0),
          .receives = register_memory(Icm::kPage, 0),
          .cq = &cq};
    register_icm(1, kQpcBase, qp.qpn, 256);
    return qp;
  }

  /// Writes the QP fields known so far; the path is empty.
  hcr_status modify(Qp& qp, command_opcode op, qp_state to, std::uint32_t remote_qpn) {
    util::Struct<qp_context> context;
    context.set(qp_context::state, static_cast<std::uint32_t>(to));
    if (to == qp_state::RTR || to == qp_state::RTS) {
      context.set(qp_context::mtu, 3);
      context.set(qp_context::msgmax, 31);
      context.set(qp_context::rnr_timer, 12);
    }
    context.set(qp_context::rq_entry_sz_log, kLogSlot);
    context.set(qp_context::sq_entry_sz_log, kLogSlot);
    context.set(qp_context::local_qpn, qp.qpn);
    context.set(qp_context::remote_qpn, remote_qpn);
    context.set(qp_context::port, 1);
    context.set(qp_context::pd, kPd);
    context.set(qp_context::wqe_lkey, qp.sends.key);
    context.set(qp_context::cqn_snd, qp.cq->cqn);
    context.set(qp_context::snd_wqe_base_l, qp.sends.key);
    context.set(qp_context::snd_wqe_len, Qp::kSlots * kSlot);
    context.set(qp_context::cqn_rcv, qp.cq->cqn);
    context.set(qp_context::rcv_wqe_base_l, qp.receives.key);
    context.set(qp_context::rcv_wqe_len, Qp::kSlots * kSlot);
    h.put(context.bytes());
    const auto status = command(op, qp.qpn);
    if (status == OK) qp.state = to;
    return status;
  }

  void connect(Qp& qp, const Qp& peer) {
    ASSERT_EQ(modify(qp, command_opcode::RST2INIT_QPEE, qp_state::INIT, 0), OK);
    ASSERT_EQ(modify(qp, command_opcode::INIT2RTR_QPEE, qp_state::RTR, peer.qpn), OK);
    ASSERT_EQ(modify(qp, command_opcode::RTR2RTS_QPEE, qp_state::RTS, peer.qpn), OK);
  }

  hcr_status destroy(const Qp& qp) {
    h.clear_mailbox();
    return command(command_opcode::ERR2RST_QPEE, qp.qpn);
  }

  /// Posts a list with one doorbell. Each link has bit D. The last WQE keeps the old link of its
  /// slot.
  void post_send(Qp& qp, std::initializer_list<Wr> list) {
    std::uint32_t first_units = 0, slot = qp.head % Qp::kSlots;
    auto first_opcode = wqe_opcode::NOP;
    std::byte* before = nullptr;
    for (const auto& wr : list) {
      const auto wqe = qp.sends.region.bytes.subspan(slot * kSlot, kSlot);
      std::uint32_t units = 1;
      if (wr.opcode == wqe_opcode::RDMA_WRITE || wr.opcode == wqe_opcode::RDMA_READ) {
        const util::MutableView<raddr_unit> raddr(wqe.subspan(kUnit));
        raddr.set(raddr_unit::raddr, wr.to);
        raddr.set(raddr_unit::rkey, wr.rkey);
        ++units;
      }
      put_piece(wqe.subspan(units++ * kUnit), wr);
      if (before != nullptr) {
        const util::MutableView<next_unit> link({before, kUnit});
        link.set(next_unit::nop, static_cast<std::uint32_t>(wr.opcode));
        link.set(next_unit::nda, slot * kSlot / kUnit);
        link.set(next_unit::d, 1);
        link.set(next_unit::f, 0);
        link.set(next_unit::nds, units);
      } else {
        first_units = units;
        first_opcode = wr.opcode;
      }
      before = wqe.data();
      slot = (slot + 1) % Qp::kSlots;
    }
    const auto low = qp.head << (kLogSlot - 4) << 8 | static_cast<std::uint32_t>(first_opcode);
    h.write64(0, std::uint64_t{qp.qpn << 8 | first_units} << 32 | low, 2);
    qp.head += static_cast<std::uint32_t>(list.size());
  }

  void post_receive(Qp& qp, const Wr& wr) {
    const auto slot = qp.receive_head++ % Qp::kSlots;
    const auto wqe = qp.receives.region.bytes.subspan(slot * kSlot, kSlot);
    constexpr std::uint32_t kValid = 1 << 5;
    util::store_le32(wqe.data(), kValid);
    put_piece(wqe.subspan(kUnit), wr);
    std::ranges::fill(wqe.subspan(2 * kUnit, kUnit), std::byte{0});
  }

  std::optional<Done> poll(Cq& cq, Qp& receiver) {
    h.run();
    const util::View<cqe> found(
        cq.ring.region.bytes.subspan((cq.consumer & cq.mask) * cqe::kSize, cqe::kSize));
    if (found.get(cqe::owner) != 0) return std::nullopt;
    const Done done{.of_send = found.get(cqe::is_send) != 0,
                    .qpn = found.get(cqe::my_qpn),
                    .opcode = found.get(cqe::opcode),
                    .wqe = found.get(cqe::wqe)};
    // The driver clears the slot of a completed receive.
    if (!done.of_send) {
      std::ranges::fill(receiver.receives.region.bytes.subspan(done.wqe, kUnit), std::byte{0});
    }
    give_back(cq, cq.consumer++);
    return done;
  }

  RawHost h;

 private:
  void give_back(Cq& cq, std::uint32_t index) {
    cq.ring.region.bytes[(index & cq.mask) * cqe::kSize + 31] = std::byte{0x80};
  }
  static void put_piece(std::span<std::byte> at, const Wr& wr) {
    const util::MutableView<data_unit> unit(at);
    unit.set(data_unit::byte_cnt, wr.length);
    unit.set(data_unit::lkey, wr.lkey);
    unit.set(data_unit::addr, wr.from);
  }
  /// A mailbox has room for 508 entries. in_modifier is the number of all that are left.
  void write_mtt(std::uint64_t first, std::uint64_t page, std::uint32_t count) {
    constexpr std::uint32_t kMost = 508;
    while (count != 0) {
      const auto sent = std::min(count, kMost);
      h.clear_mailbox();
      h.put64(0x18, first);
      for (std::uint32_t i = 0; i != sent; ++i) {
        h.put64(0x20 + (i ^ 3) * std::size_t{8}, page + i * Icm::kPage);
      }
      EXPECT_EQ(command(command_opcode::WRITE_MTT, count), OK);
      first += sent;
      page += sent * Icm::kPage;
      count -= sent;
    }
  }
  struct Region {
    std::uint64_t start;
    std::uint64_t length;
    std::uint32_t first_mtt;
  };
  void give_mpt(std::uint32_t key, const Region& region) {
    register_icm(2, kMptBase, key, 64);
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::sw_owns, 0xF);
    entry.set(mpt_entry::mio, 1);
    entry.set(mpt_entry::region, 1);
    entry.set(mpt_entry::local_write, 1);
    entry.set(mpt_entry::remote_write, 1);
    entry.set(mpt_entry::remote_read, 1);
    entry.set(mpt_entry::page_size, 4096);
    entry.set(mpt_entry::key, key);
    entry.set(mpt_entry::pd, kPd);
    entry.set(mpt_entry::start, region.start);
    entry.set(mpt_entry::length, region.length);
    entry.set(mpt_entry::mtt_seg, region.first_mtt);
    h.put(entry.bytes());
    EXPECT_EQ(command(command_opcode::SW2HW_MPT, key), OK);
  }
  void map(std::uint8_t group, std::uint64_t virt, const driver::DmaRegion& memory) {
    h.clear_mailbox();
    h.put64(0x10, virt);
    h.put64(0x18, memory.iova | memory.bytes.size() / Icm::kPage);
    ASSERT_EQ(command(command_opcode::MAP_ICM, 1, group), OK);
  }
  /// Maps memory for the part of a table that holds an entry, on its first use.
  void register_icm(std::uint8_t group, std::uint64_t base, std::uint64_t index,
                    std::uint64_t entry) {
    const auto virt = base + index * entry / kIcmChunk * kIcmChunk;
    if (!chunks_.emplace(virt, group).second) return;
    map(group, virt, h.host.allocate(kIcmChunk).value());
  }

  std::map<std::uint64_t, std::uint8_t> chunks_;
  std::uint32_t next_key_ = 1, next_mtt_ = 0, next_cqn_ = 1, next_qpn_ = 2;
};

// Probe, memory, CQ, QPs, lists of requests that wrap around the queues, and teardown.
TEST(JingzhaoAuthorsDriver, WorksOnACardOfItsProfile) {
  AuthorsDriver d;
  d.probe();
  auto data = d.register_memory(64 << 10);
  auto cq = d.create_cq(32);
  auto a = d.create_qp(cq), b = d.create_qp(cq);
  // Its contexts have no addresses, so the card receives what it sends.
  d.connect(a, b);
  d.connect(b, a);
  for (std::uint32_t lap = 0; lap != 10; ++lap) {
    const auto value = static_cast<std::byte>(lap + 1);
    std::ranges::fill(data.region.bytes.first(300), value);
    d.post_receive(b, {.from = data.address() + 0x3000, .lkey = data.key, .length = 200});
    const auto piece = [&](wqe_opcode opcode, std::uint64_t to) {
      return Wr{.opcode = opcode,
                .from = data.address(),
                .lkey = data.key,
                .length = 100,
                .to = data.address() + to,
                .rkey = data.key};
    };
    // The list length divides the queue. Otherwise a stale link would continue a list past its end.
    d.post_send(a, {piece(wqe_opcode::RDMA_WRITE, 0x1000), piece(wqe_opcode::SEND, 0),
                    piece(wqe_opcode::RDMA_WRITE, 0x2000), piece(wqe_opcode::RDMA_WRITE, 0x5000)});
    std::map<std::uint32_t, unsigned> ends;  // keyed by is_send
    while (const auto done = d.poll(cq, b)) {
      ++ends[done->of_send];
      EXPECT_EQ(done->qpn, done->of_send ? a.qpn : b.qpn);
      EXPECT_LT(done->opcode, 0xFEu) << "an error";
      EXPECT_LT(done->wqe, Qp::kSlots * kSlot);
    }
    EXPECT_EQ(ends[1], 4u) << lap;
    EXPECT_EQ(ends[0], 1u) << lap;
    for (const auto at : {0x1000u, 0x2000u, 0x3000u, 0x5000u}) {
      EXPECT_EQ(data.region.bytes[at + 99], value) << lap;
      EXPECT_EQ(data.region.bytes[at + 100], std::byte{0}) << lap;
    }
  }
  EXPECT_EQ(d.destroy(a), OK);
  EXPECT_EQ(d.destroy(b), OK);
  EXPECT_EQ(d.command(command_opcode::HW2SW_CQ, cq.cqn), OK);
  EXPECT_EQ(d.command(command_opcode::HW2SW_MPT, data.key), OK);
  EXPECT_EQ(d.command(command_opcode::CLOSE_HCA, 0), OK);
}

TEST(JingzhaoAuthorsDriver, RegistersARegionOfMorePagesThanAMailboxNames) {
  AuthorsDriver d;
  d.probe();
  auto data = d.register_memory(600 * Icm::kPage);
  auto cq = d.create_cq(32);
  auto a = d.create_qp(cq), b = d.create_qp(cq);
  d.connect(a, b);
  d.connect(b, a);
  for (const std::uint64_t page : {507u, 508u, 511u, 512u, 599u}) {
    const auto value = static_cast<std::byte>(page % 251);
    data.region.bytes[0] = value;
    d.post_send(a, {{.opcode = wqe_opcode::RDMA_WRITE,
                     .from = data.address(),
                     .lkey = data.key,
                     .length = 1,
                     .to = data.address() + page * Icm::kPage,
                     .rkey = data.key}});
    const auto done = d.poll(cq, b);
    ASSERT_TRUE(done) << page;
    EXPECT_LT(done->opcode, 0xFEu) << "an error";
    EXPECT_EQ(data.region.bytes[page * Icm::kPage], value) << page;
  }
}

TEST(JingzhaoAuthorsDriver, ReachesAllMemoryByItsBusAddresses) {
  AuthorsDriver d;
  d.probe();
  auto data = d.register_memory(2 * Icm::kPage);
  const auto all = d.register_all_memory();
  auto cq = d.create_cq(32);
  auto a = d.create_qp(cq), b = d.create_qp(cq);
  d.connect(a, b);
  d.connect(b, a);
  data.region.bytes[0] = std::byte{7};
  d.post_send(a, {{.opcode = wqe_opcode::RDMA_WRITE,
                   .from = data.address(),
                   .lkey = all,
                   .length = 1,
                   .to = data.address() + Icm::kPage,
                   .rkey = all}});
  const auto done = d.poll(cq, b);
  ASSERT_TRUE(done);
  EXPECT_LT(done->opcode, 0xFEu) << "an error";
  EXPECT_EQ(data.region.bytes[Icm::kPage], std::byte{7});
}

TEST(JingzhaoAuthorsDriver, FindsTheMsixTableWhereItIs) {
  AuthorsDriver d;
  // A vector is masked after reset: bit 0 of its entry's fourth dword.
  EXPECT_EQ(d.h.read(0x2000C), 1u);
  EXPECT_EQ(d.h.read(0x540C), 0u);
}

TEST(JingzhaoAuthorsDriver, DoesNotWorkOnACardOfTheDocument) {
  RawHost h;
  EXPECT_EQ(driver::read_pci_id(h.host).device, 0x1011);
  h.start(static_cast<std::uint32_t>(command_opcode::NOP), {.in_modifier = 0x1F});
  EXPECT_NE(h.read(h.hcr_at + 0x18) & 1u << 23, 0u) << "it would not wait";
  EXPECT_EQ(h.finish(), OK);
}

}  // namespace
}  // namespace softhca::jingzhao::test
