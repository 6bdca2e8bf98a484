// Attacks of a guest with memory keys of many pieces, besides RDMA through keys of keys
// (guests_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "driver/connectx/frame_receiver.h"
#include "driver/connectx/frame_sender.h"
#include "driver/connectx/queue_sizes.h"
#include "driver/connectx/transport_domain.h"
#include "driver/connectx/uar.h"
#include "neighbours.h"
#include "spec/connectx/flow_table.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/init_segment.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/qp.h"
#include "spec/connectx/wqe.h"
#include "util/endian.h"

namespace softhca::neighbours {
namespace {

namespace cx = driver::connectx;
namespace layout = spec::connectx;
using ConnectxCommand = spec::connectx::command_opcode;

using KeyNeighbours = Neighbours;
SOFTHCA_WITH_AND_WITHOUT_ISOLATE(KeyNeighbours);

/// A key of `bytes` single bytes behind `levels` - 1 more levels of such keys. The lowest level has
/// the pieces `lowest`.
driver::Sge single_bytes(LoopHca& loop, std::vector<LoopHca::Piece> lowest, int levels) {
  constexpr std::uint64_t kStart = 0x100000;
  const auto bytes = static_cast<std::uint32_t>(lowest.size());
  auto key = loop.make_indirect_key(kStart, lowest);
  for (int level = 1; level != levels; ++level) {
    std::vector<LoopHca::Piece> pieces;
    for (std::uint32_t i = 0; i != bytes; ++i) pieces.push_back({1, key, kStart + i});
    key = loop.make_indirect_key(kStart, pieces);
  }
  return {kStart, bytes, key};
}
/// Three levels, down to the start of the guest's memory.
driver::Sge single_bytes(LoopHca& loop, std::uint32_t bytes) {
  std::vector<LoopHca::Piece> lowest;
  for (std::uint32_t i = 0; i != bytes; ++i) lowest.push_back({1, loop.key(), loop.iova(i)});
  return single_bytes(loop, std::move(lowest), 3);
}

/// The start of a frame from `from` to `to`, with an EtherType of local experiments.
std::array<std::byte, 18> frame_header(const driver::Mac& from, const driver::Mac& to) {
  std::array<std::byte, 18> header{};
  std::ranges::copy(to.bytes, header.begin());
  std::ranges::copy(from.bytes, header.begin() + 6);
  util::store_be16(header.data() + 12, 0x88b5);
  return header;
}

/// A guest that sends frames.
struct FrameGuest : LoopHca {
  FrameGuest(const std::string& socket, unsigned number)
      : LoopHca(socket, number, 64 << 10),
        domain(must(cx::TransportDomain::create(hca()))),
        sender(must(cx::FrameSender::create(protection_domain(), *domain, {.cq = cq()}))) {}

  /// Keeps the send queue full of this frame until `count` have been sent.
  void send(const driver::Mac& to, const driver::Sge& payload, unsigned count) {
    const auto header = frame_header(hca().mac(), to);
    std::array<driver::Completion, 64> done;
    const auto end = util::monotonic_now() + 60s;
    for (unsigned sent = 0; sent < count;) {
      while (sender->post({.header = header, .pieces = {&payload, 1}}) == driver::PostStatus::kOk) {
      }
      const auto ended = cq().poll(done);
      for (const auto& one : std::span(done).first(ended)) {
        EXPECT_EQ(one.status, driver::WorkStatus::kSuccess);
      }
      sent += static_cast<unsigned>(ended);
      ASSERT_LT(util::monotonic_now(), end) << "sent " << sent;
    }
  }

  std::unique_ptr<cx::TransportDomain> domain;
  std::unique_ptr<cx::FrameSender> sender;
};

// A frame of 4 KiB costs 860,160 units, which is several turns' work.
TEST_P(KeyNeighbours, FramesThatAreSentThroughKeysOfKeysAreGatheredInPieces) {
  {
    FrameGuest guest(hostile(), 2);
    guest.send(guest.hca().mac(), single_bytes(guest, 4096), 200);
  }
  expect_unharmed(500'000);
}

/// The only flow of the root: it delivers each frame `copies` times to a TIR.
class ManyCopies {
 public:
  ManyCopies(cx::Hca& hca, std::uint32_t tirn, std::uint32_t copies) : commands_(hca.commands()) {
    cx::Request<layout::create_flow_table_in> table_in(ConnectxCommand::CREATE_FLOW_TABLE);
    table_ = must(commands_.execute<layout::create_flow_table_out>(table_in))
                 .get(layout::create_flow_table_out::table_id);
    cx::Request<layout::create_flow_group_in> group_in(ConnectxCommand::CREATE_FLOW_GROUP);
    group_in.set(layout::create_flow_group_in::table_id, table_);
    group_ = must(commands_.execute<layout::create_flow_group_out>(group_in))
                 .get(layout::create_flow_group_out::group_id);
    using In = layout::set_flow_table_entry_in;
    using Destination = layout::dest_format;
    cx::Request<In> in(ConnectxCommand::SET_FLOW_TABLE_ENTRY, copies * Destination::kSize);
    in.set(In::table_id, table_);
    const auto context = in.sub(In::flow_context);
    context.set(layout::flow_context::group_id, group_);
    context.set(layout::flow_context::action,
                static_cast<std::uint32_t>(layout::flow_action::FWD_DEST));
    context.set(layout::flow_context::destination_list_size, copies);
    auto list = in.all().subspan(In::kSize);
    for (std::uint32_t i = 0; i != copies; ++i, list = list.subspan(Destination::kSize)) {
      const util::MutableView<Destination> destination(list);
      destination.set(Destination::destination_type,
                      static_cast<std::uint32_t>(layout::destination_type::TIR));
      destination.set(Destination::destination_id, tirn);
    }
    must(commands_.run(in));
  }
  ~ManyCopies() {
    cx::Request<layout::delete_flow_table_entry_in> flow(ConnectxCommand::DELETE_FLOW_TABLE_ENTRY);
    flow.set(layout::delete_flow_table_entry_in::table_id, table_);
    (void)commands_.run(flow);
    cx::Request<layout::destroy_flow_group_in> group(ConnectxCommand::DESTROY_FLOW_GROUP);
    group.set(layout::destroy_flow_group_in::table_id, table_);
    group.set(layout::destroy_flow_group_in::group_id, group_);
    (void)commands_.run(group);
    cx::Request<layout::destroy_flow_table_in> table(ConnectxCommand::DESTROY_FLOW_TABLE);
    table.set(layout::destroy_flow_table_in::table_id, table_);
    (void)commands_.run(table);
  }
  ManyCopies(const ManyCopies&) = delete;
  ManyCopies& operator=(const ManyCopies&) = delete;

 private:
  cx::CommandQueue& commands_;
  std::uint32_t table_ = 0;
  std::uint32_t group_ = 0;
};

// A copy of a frame of 1,500 bytes costs 315,000 units. Another guest sends the frames.
TEST_P(KeyNeighbours, CopiesOfFramesThroughKeysOfKeysAreDroppedWhenTheyCostTooMuch) {
  constexpr std::uint32_t kSize = 1500, kCopies = 16;
  {
    FrameGuest sender(socket(kThird), 6);
    LoopHca victim(hostile(), 2, 64 << 10);
    const auto piece = single_bytes(victim, kSize);
    const auto domain = must(cx::TransportDomain::create(victim.hca()));
    const auto receiver = must(cx::FrameReceiver::create(
        victim.protection_domain(), *domain, {.cq = victim.cq(), .receive = {.requests = 1024}}));
    const ManyCopies flow(victim.hca(), receiver->tirn(), kCopies);
    std::size_t copies = 0;
    for (int round = 0; round != 100; ++round) {
      while (receiver->post({.pieces = {&piece, 1}}) == driver::PostStatus::kOk) {
      }
      sender.send(victim.hca().mac(), sender.piece(0, kSize - 18), 64);
      std::array<driver::Completion, 1024> done;
      copies += victim.cq().poll(done);
    }
    EXPECT_GT(copies, 0u);
  }
  expect_unharmed(kKeysMaxWork);
}

// A list that mixes memory with the key that drops what is written: each piece gets its own bytes.
TEST_P(KeyNeighbours, PiecesBehindDroppedBytesGetTheirOwn) {
  constexpr std::uint32_t kBytes = 4096;
  {
    LoopHca loop(hostile(), 2, 64 << 10);
    using Out = layout::query_special_contexts_out;
    cx::Request<layout::query_special_contexts_in> in(ConnectxCommand::QUERY_SPECIAL_CONTEXTS);
    const auto dropping = must(loop.hca().commands().execute<Out>(in)).get(Out::dump_fill_mkey);
    std::vector<LoopHca::Piece> lowest;
    for (std::uint32_t i = 0; i != kBytes; ++i) {
      lowest.push_back(i % 2 == 0 ? LoopHca::Piece{1, loop.key(), loop.iova(kBytes + i)}
                                  : LoopHca::Piece{1, dropping, 0});
    }
    const auto to = single_bytes(loop, lowest, 3);
    const auto from = loop.memory().first(kBytes), target = loop.memory().subspan(kBytes, kBytes);
    for (std::size_t i = 0; i != kBytes; ++i) from[i] = static_cast<std::byte>(i / 2 + i % 2 * 128);
    std::vector<std::byte> expected(kBytes, std::byte{0xee});
    for (std::size_t i = 0; i < kBytes; i += 2) expected[i] = from[i];
    // A WRITE costs so much that the function drops its ACK. Its timeout is 1 ms.
    auto pair = loop.make_pair({.send_cq = loop.cq(), .receive_cq = loop.cq()},
                               {.path_mtu = 4096, .ack_timeout = 8});
    const auto piece = loop.piece(0, kBytes);
    for (int round = 0; round != 100; ++round) {
      std::ranges::fill(target, std::byte{0xee});
      ASSERT_EQ(pair.from->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                                      .pieces = {&piece, 1},
                                      .remote_address = to.address,
                                      .rkey = to.lkey}),
                driver::PostStatus::kOk);
      driver::Completion done;
      const auto end = util::monotonic_now() + 20s;
      while (loop.cq().poll({&done, 1}) == 0) ASSERT_LT(util::monotonic_now(), end);
      ASSERT_EQ(done.status, driver::WorkStatus::kSuccess);
      ASSERT_TRUE(std::ranges::equal(target, expected)) << round;
    }
  }
  expect_unharmed(kKeysMaxWork);
}

/// Changes keys by UMRs on a queue pair of its own (PRM Table 33).
class KeyUpdates {
 public:
  /// Room of its keys, in pieces of a page.
  static constexpr std::uint32_t kPieces = 1 << 17;
  static constexpr std::uint32_t kPiece = 4096;

  explicit KeyUpdates(LoopHca& loop)
      : loop_(loop),
        memory_(
            must(driver::DmaBuffer::allocate(loop.host(), kRing + layout::doorbell_record::kSize))),
        cq_(must(cx::CompletionQueue::create(loop.hca()))) {
    cx::Request<layout::create_qp_in> in(ConnectxCommand::CREATE_QP, cx::page_list_size(kRing));
    const auto context = in.sub(layout::create_qp_in::qpc);
    describe(context);
    describe_queues(context);
    context.set(layout::qpc::fre, 1);
    context.set(layout::qpc::rq_type,
                static_cast<std::uint32_t>(layout::qp_rq_type::ZERO_LENGTH_RQ));
    context.set(layout::qpc::log_sq_size, cx::log2_of(kRing / kBlock));
    context.set(layout::qpc::uar_page, loop.hca().uar());
    cx::store_page_list(in.all().subspan(layout::create_qp_in::pas_offset), memory_);
    using Out = layout::create_qp_out;
    qpn_ = must(loop.hca().commands().execute<Out>(in)).get(Out::qpn);
    // The inputs of these commands have the same layout.
    using Step = layout::rst2init_qp_in;
    for (const auto step : {ConnectxCommand::RST2INIT_QP, ConnectxCommand::INIT2RTR_QP,
                            ConnectxCommand::RTR2RTS_QP}) {
      cx::Request<Step> next(step);
      next.set(Step::qpn, qpn_);
      const auto changed = next.sub(Step::qpc);
      describe(changed);
      if (step == ConnectxCommand::RST2INIT_QP) describe_queues(changed);
      changed.set(layout::qpc::mtu, static_cast<std::uint32_t>(layout::qp_mtu::BYTES_256));
      must(loop.hca().commands().run(next));
    }
  }
  ~KeyUpdates() {
    cx::Request<layout::destroy_qp_in> in(ConnectxCommand::DESTROY_QP);
    in.set(layout::destroy_qp_in::qpn, qpn_);
    (void)loop_.hca().commands().run(in);
  }
  KeyUpdates(const KeyUpdates&) = delete;
  KeyUpdates& operator=(const KeyUpdates&) = delete;

  /// A free key with room for kPieces, all of which are absent.
  std::uint32_t make_key() {
    cx::Request<layout::create_mkey_in> in(ConnectxCommand::CREATE_MKEY);
    const auto context = in.sub(layout::create_mkey_in::mkey_context);
    const auto variant = loop_.hca().next_key_variant();
    context.set(Key::free, 1);
    context.set(Key::umr_en, 1);
    context.set(Key::access_mode, static_cast<std::uint32_t>(layout::mkey_access_mode::KSM));
    context.set(Key::qpn, 0xffffff);
    context.set(Key::mkey, variant);
    context.set(Key::pd, loop_.pd());
    context.set(Key::log_page_size, 12);
    context.set(Key::translations_octword_size, kPieces);
    using Out = layout::create_mkey_out;
    return must(loop_.hca().commands().execute<Out>(in)).get(Out::mkey_index) << 8 | variant;
  }
  void destroy_key(std::uint32_t key) {
    cx::Request<layout::destroy_mkey_in> in(ConnectxCommand::DESTROY_MKEY);
    in.set(layout::destroy_mkey_in::mkey_index, key >> 8);
    must(loop_.hca().commands().run(in));
  }
  /// Posts a UMR that takes the key into use with its last pieces, all at the start of the guest's
  /// memory.
  void post_last_pieces(std::uint32_t key) {
    std::array<std::byte, kBlocks * kBlock> wqe{};
    const util::MutableView<layout::wqe_ctrl_segment> control(wqe);
    control.set(layout::wqe_ctrl_segment::opcode,
                static_cast<std::uint32_t>(layout::wqe_opcode::UMR));
    control.set(layout::wqe_ctrl_segment::wqe_index, posted_);
    control.set(layout::wqe_ctrl_segment::sq_number, qpn_);
    control.set(layout::wqe_ctrl_segment::ds, wqe.size() / 16);
    control.set(layout::wqe_ctrl_segment::ce,
                static_cast<std::uint32_t>(layout::wqe_completion::CQE));
    control.set(layout::wqe_ctrl_segment::imm, key);
    write_umr(std::span(wqe).subspan<layout::wqe_ctrl_segment::kSize>());
    std::ranges::copy(wqe, memory_.bytes().begin() + posted_ % (kRing / kBlock) * kBlock);
    posted_ = static_cast<std::uint16_t>(posted_ + kBlocks);
    std::atomic_thread_fence(std::memory_order_release);
    util::MutableView<layout::doorbell_record>(memory_.bytes().subspan(kRing))
        .set(layout::doorbell_record::send_counter, posted_);
    std::atomic_thread_fence(std::memory_order_release);
    loop_.host().write_bar(
        cx::kUarBar,
        cx::uar_offset(loop_.hca().uar()) + layout::uar_page::db_blueflame_buffer0_even.kOffset,
        std::span(wqe).first<8>());
  }
  /// How many UMRs have completed. The driver knows no such queue, and calls its CQEs strays.
  std::uint64_t completed() {
    driver::Completion none;
    (void)cq_->poll({&none, 1});
    return cq_->strays();
  }

 private:
  using Key = layout::mkey_context;
  static constexpr std::size_t kBlock = 64, kBlocks = 4, kRing = 64 * kBlock;
  /// Pieces of a UMR, which fill its blocks.
  static constexpr std::uint32_t kUpdated = 8;

  void describe(util::MutableView<layout::qpc> context) const {
    context.set(layout::qpc::st, static_cast<std::uint32_t>(layout::service_type::REG_UMR));
    context.set(layout::qpc::pm_state, static_cast<std::uint32_t>(layout::pm_state::MIGRATED));
  }
  void describe_queues(util::MutableView<layout::qpc> context) const {
    context.set(layout::qpc::pd, loop_.pd());
    context.set(layout::qpc::cqn_snd, cq_->cqn());
    context.set(layout::qpc::cqn_rcv, cq_->cqn());
    context.set(layout::qpc::dbr_addr, memory_.iova(kRing));
    context.sub(layout::qpc::primary_address_path).set(layout::ads::vhca_port_num, 1);
  }
  void write_umr(std::span<std::byte> out) const {
    using Control = layout::wqe_umr_ctrl_segment;
    using Mask = layout::umr_mkey_mask;
    constexpr std::uint32_t kFirst = kPieces - kUpdated;
    const util::MutableView<Control> umr(out);
    umr.set(Control::inline_, 1);
    umr.set(Control::translation_offset_en, 1);
    umr.set(Control::translation_octword_actual_size, kUpdated);
    umr.set(Control::translation_offset, kFirst & Control::translation_offset.kMax);
    umr.set(Control::translation_offset_47_16, kFirst >> 16);  // no format: its upper half
    const auto mask = umr.sub(Control::mkey_ctx_bit_mask);
    const util::MutableView<Key> key(out.subspan(Control::kSize));
    mask.set(Mask::free, 1);
    mask.set(Mask::len, 1);
    mask.set(Mask::lw, 1);
    mask.set(Mask::rw, 1);
    key.set(Key::lw, 1);
    key.set(Key::rw, 1);
    key.set(Key::len, std::uint64_t{kPieces} * kPiece);
    auto pieces = out.subspan(Control::kSize + Key::kSize);
    for (std::uint32_t i = 0; i != kUpdated;
         ++i, pieces = pieces.subspan(layout::ksm_entry::kSize)) {
      const util::MutableView<layout::ksm_entry> piece(pieces);
      piece.set(layout::ksm_entry::mkey, loop_.key());
      piece.set(layout::ksm_entry::address, loop_.iova());
    }
  }

  LoopHca& loop_;
  driver::DmaBuffer memory_;  ///< send queue, doorbell record
  std::unique_ptr<cx::CompletionQueue> cq_;
  std::uint32_t qpn_ = 0;
  std::uint16_t posted_ = 0;
};

// The pieces before those of the UMR are added first: 655,360 units, more than a turn may have.
TEST_P(KeyNeighbours, UpdatesFarBehindTheEndOfAListTakeTurns) {
  constexpr unsigned kRounds = 50;
  {
    LoopHca loop(hostile(), 2, 2 * KeyUpdates::kPiece);
    KeyUpdates updates(loop);
    auto pair = loop.make_pair();
    const auto piece = loop.piece(KeyUpdates::kPiece, 8);
    const auto write = [&](std::uint64_t address, std::uint32_t rkey) {
      EXPECT_EQ(pair.from->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                                      .pieces = {&piece, 1},
                                      .remote_address = address,
                                      .rkey = rkey}),
                driver::PostStatus::kOk);
      driver::Completion done;
      const auto end = util::monotonic_now() + 20s;
      while (loop.cq().poll({&done, 1}) == 0 && util::monotonic_now() < end) {
      }
      EXPECT_EQ(done.status, driver::WorkStatus::kSuccess);
    };
    for (std::uint64_t round = 0; round != kRounds; ++round) {
      const auto key = updates.make_key();
      updates.post_last_pieces(key);
      write(loop.iova(), loop.key());
      const auto end = util::monotonic_now() + 20s;
      while (updates.completed() == round) ASSERT_LT(util::monotonic_now(), end);
      loop.memory()[KeyUpdates::kPiece] = static_cast<std::byte>(round + 1);
      write(std::uint64_t{KeyUpdates::kPieces - 1} * KeyUpdates::kPiece, key);
      EXPECT_EQ(loop.memory()[0], static_cast<std::byte>(round + 1)) << "the last piece";
      updates.destroy_key(key);
    }
  }
  expect_unharmed();
}

}  // namespace
}  // namespace softhca::neighbours
