// Every field that the document does not call unused matters: if its value changes, the device
// behaves differently or refuses it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "jingzhao/cqe.h"
#include "jingzhao/send_wqe.h"
#include "jingzhao/spoiler.h"
#include "spec/jingzhao/wqe.h"

namespace softhca::jingzhao::test {
namespace {

using driver::SendOpcode;
using spec::jingzhao::command_opcode;

/// Records the headers of each frame on the switch, up to the BTH. Later bytes contain addresses of
/// this process.
class Headers final : public fabric::Tap {
 public:
  explicit Headers(std::string& to) : to_(to) {}
  void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
  void handle_frame(std::uint32_t, const wire::Frame& frame) override {
    constexpr std::size_t kEthernet = 54, kInfiniband = 20;
    const auto size = frame.link() == wire::Link::kInfiniband ? kInfiniband : kEthernet;
    const auto head = frame.head();
    to_.append(reinterpret_cast<const char*>(head.data()), std::min(size, head.size()));
    to_ += '\n';
  }

 private:
  std::string& to_;
};

/// A fixed scenario that records how a device uses each context: packets sent, ends of requests,
/// bytes that arrive, and their times.
class Story {
 public:
  Story(wire::Link link, Spoiler::Spoil spoil)
      : world_({.card = {.link = link}, .make_host = Spoiler::make()}) {
    Spoiler::of(world_.a()).spoil = std::move(spoil);
  }
  ~Story() { world_.network().set_tap(nullptr); }

  std::string tell() {
    Headers headers(text_);
    world_.network().set_tap(&headers);
    try {
      world_.open();
      messages();
      datagrams();
      nobody_answers();
      no_receive_comes();
      rights();
    } catch (const std::exception& error) {
      text_ += error.what();
    }
    world_.network().set_tap(nullptr);
    return std::move(text_);
  }

 private:
  void note(std::string_view what, const std::vector<Completion>& found) {
    text_ += fmt::format("{} at {}:", what, world_.now().time_since_epoch().count());
    for (const auto& one : found) {
      text_ += fmt::format(" {} {} {} {} {}", one.id, to_string(one.status), to_string(one.opcode),
                           one.byte_count, one.qpn);
    }
    text_ += '\n';
  }
  void note_events(Node& node) {
    while (const auto event = node.hca->poll_event()) {
      text_ += fmt::format("event {} of {}\n", static_cast<unsigned>(event->type), event->number);
    }
    if (const auto* cq = node.hca->poll_completion_event()) {
      text_ += fmt::format("completion event of {}\n", cq->cqn());
    }
    text_ += fmt::format("{} {} interrupts\n", node.host->interrupts(0), node.host->interrupts(1));
  }
  /// Throws if a request does not end, because the rest is then irrelevant.
  std::vector<Completion> end_of_request(Side& side) {
    auto found = wait(world_, *side.send_cq);
    if (found.empty()) throw std::runtime_error("a request without an end");
    return found;
  }
  void note_receive(Side& side) {
    std::vector<Completion> found(1);
    found.resize(side.receive_cq->poll(found));
    note("receive", found);
  }
  void request(Side& from, Side& to, SendOpcode opcode, std::size_t size) {
    if (opcode == SendOpcode::kFetchAdd || opcode == SendOpcode::kCompareSwap) size = 8;
    const auto piece = from.piece(100, size);
    (void)from.qp->post_send({.id = 1,
                              .opcode = opcode,
                              .pieces = {&piece, 1},
                              .remote_address = to.address(20000),
                              .rkey = to.key->key(),
                              .immediate = 0x11223344,
                              .compare = 5,
                              .swap_or_add = 7});
    note("request", end_of_request(from));
    note_receive(to);
  }
  void messages() {
    Side a(world_.a()), b(world_.b());
    connect(a, b);
    must(a.send_cq->resize(512));
    a.receive_cq->arm();
    for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      fill(from->bytes(0, 30000), from == &a ? 1 : 2);
      for (int i = 0; i != 4; ++i) to->receive(static_cast<std::uint64_t>(i), 40000, 9000);
      for (const auto opcode :
           {SendOpcode::kSend, SendOpcode::kSendWithImmediate, SendOpcode::kRdmaWrite,
            SendOpcode::kRdmaRead, SendOpcode::kFetchAdd, SendOpcode::kCompareSwap}) {
        request(*from, *to, opcode, 9000);
        text_ += fmt::format("{} {}\n", same(from->bytes(100, 9000), to->bytes(40000, 9000)),
                             same(from->bytes(100, 9000), to->bytes(20000, 9000)));
      }
      note_events(world_.a());
    }
    // Enough requests to wrap the queue.
    for (int i = 0; i != 70; ++i) request(a, b, SendOpcode::kRdmaWrite, 8);
    (void)a.qp->to_error();
    a.receive(9, 0, 8);
    world_.advance(std::chrono::milliseconds(2));
    note_receive(a);
    note_events(world_.a());
  }
  void datagrams() {
    const Side::Options options{.type = spec::jingzhao::qp_type::UD};
    Side a(world_.a(), options), b(world_.b(), options);
    must(a.qp->listen(world_.a().address, kQkey));
    must(b.qp->listen(world_.b().address, kQkey));
    for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      to->receive(3, 0, 4000);
      const auto piece = from->piece(0, 1000);
      (void)from->qp->post_send({.id = 2, .opcode = SendOpcode::kSend, .pieces = {&piece, 1}},
                                {.to = to->node.address, .qpn = to->qp->qpn(), .qkey = kQkey});
      note("datagram", end_of_request(*from));
      world_.advance(std::chrono::milliseconds(1));
      note_receive(*to);
    }
  }
  void nobody_answers() {
    Side a(world_.a()), b(world_.b());
    connect(a, b, {.ack_timeout = 10, .retry_count = 2});
    must(b.qp->to_reset());
    request(a, b, SendOpcode::kRdmaWrite, 8);
    note_events(world_.a());
  }
  void no_receive_comes() {
    for (const bool from_a : {true, false}) {
      Side a(world_.a()), b(world_.b());
      connect(a, b, {.rnr_retry = 2, .min_rnr_timer = 14});
      request(from_a ? a : b, from_a ? b : a, SendOpcode::kSend, 8);
    }
  }
  /// Access rights of the key and of the queue pair.
  void rights() {
    for (const bool of_key : {true, false}) {
      const Side::Options options{.access = {.local_write = true,
                                             .remote_read = !of_key,
                                             .remote_write = !of_key,
                                             .remote_atomic = !of_key}};
      for (const auto opcode :
           {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead, SendOpcode::kFetchAdd}) {
        Side a(world_.a(), options), b(world_.b());
        connect(a, b, {}, {.read = of_key, .write = of_key, .atomic = of_key});
        request(b, a, opcode, 8);
      }
    }
  }

  World world_;
  std::string text_;
};

/// Fields that exist without effect, each with its reason.
const std::map<std::string_view, std::string_view> kWithoutEffect = {
    {"mpt_entry.sw_owns", "a mark of who owns the entry: SW2HW_MPT says that itself"},
    {"mpt_entry.mio", "stored only"},
    {"mpt_entry.bind_enable", "no memory windows"},
    {"mpt_entry.region", "no memory windows, so all are regions"},
    {"mpt_entry.on_demand", "no on-demand paging"},
    {"mpt_entry.mw_bind", "no memory windows"},
    {"eq_context.status", "the device's own"},
    {"eq_context.owner", "the device's own"},
    {"eq_context.consumer_index", "the device's own"},
    {"eq_context.producer_index", "the device's own"},
    {"eq_context.tr",
     "our driver gives the bus address, too: JingzhaoHcr.CompletionIsAnEventIfEIsSet"},
    {"eq_context.start", "counts where tr is 0: the same test"},
    {"cq_context.status", "the device's own"},
    {"cq_context.tr", "a CQ is named by its LKey alone: start is unused"},
    {"cq_context.cqn", "in_modifier counts"},
    {"qp_context.sq_entry_sz_log",
     "it bounds longer queues than these: JingzhaoModifyQp.AQueueHasNoMoreWqesThanMaxQpSz"},
    {"qp_context.port", "there is one"},
    {"qp_context.last_acked_psn", "the device's own"},
    {"qp_context.opt_param_mask",
     "our driver names all, and without a bit nothing differs that it does: "
     "JingzhaoModifyQp.ARunningQueuePairTakesWhatTheMaskNamesAndNothingElse"},
};

/// The commands whose mailboxes are changed, and the structure's offset in them.
struct Place {
  std::set<command_opcode> commands;
  std::size_t offset = 0;
};

/// True if the recorded scenario changes when the field changes in all of its bits, or in its
/// lowest.
bool counts(const util::FieldInfo& field, const Place& place, wire::Link link) {
  static std::map<wire::Link, std::string> usual;
  if (usual[link].empty()) usual[link] = Story(link, nullptr).tell();
  for (const bool all_bits : {true, false}) {
    const auto spoil = [&](command_opcode op, std::span<std::byte> mailbox) {
      if (!place.commands.contains(op)) return;
      bool first = true;
      for_each_bit(field, util::ByteOrder::kBig, [&](std::size_t at, unsigned bit) {
        if (std::exchange(first, false) || all_bits) {
          mailbox[place.offset + at] ^= std::byte{1} << bit;
        }
      });
    };
    if (Story(link, spoil).tell() != usual[link]) return true;
  }
  return false;
}

template <class Layout>
void expect_each_field_counts(std::string_view name, const Place& place,
                              std::size_t size = Layout::kSize) {
  for (const auto& field : Layout::kFields) {
    if (field.note.starts_with("unused") || field.offset >= size) continue;
    const auto full = fmt::format("{}.{}", name, field.name);
    const bool differs = counts(field, place, wire::Link::kEthernet) ||
                         counts(field, place, wire::Link::kInfiniband);
    EXPECT_EQ(differs, !kWithoutEffect.contains(full)) << full;
  }
}

TEST(JingzhaoUsedFields, OfInitHcaCount) {
  expect_each_field_counts<spec::jingzhao::init_hca_in>("init_hca_in",
                                                        {{command_opcode::INIT_HCA}});
}
TEST(JingzhaoUsedFields, OfAnMptEntryCount) {
  expect_each_field_counts<spec::jingzhao::mpt_entry>("mpt_entry", {{command_opcode::SW2HW_MPT}});
}
TEST(JingzhaoUsedFields, OfAnEqContextCount) {
  expect_each_field_counts<spec::jingzhao::eq_context>("eq_context", {{command_opcode::SW2HW_EQ}});
}
TEST(JingzhaoUsedFields, OfACqContextCount) {
  expect_each_field_counts<spec::jingzhao::cq_context>("cq_context", {{command_opcode::SW2HW_CQ}},
                                                       64);
}
TEST(JingzhaoUsedFields, OfResizeCqCount) {
  expect_each_field_counts<spec::jingzhao::resize_cq_in>("resize_cq_in",
                                                         {{command_opcode::RESIZE_CQ}});
}
TEST(JingzhaoUsedFields, OfAQpContextCount) {
  using enum command_opcode;
  expect_each_field_counts<spec::jingzhao::qp_context>(
      "qp_context", {{RST2INIT_QPEE, INIT2RTR_QPEE, RTR2RTS_QPEE}});
}
TEST(JingzhaoUsedFields, OfMapIcmAndWriteMttCount) {
  using enum command_opcode;
  // The first of two entries, which is in the higher half.
  expect_each_field_counts<spec::jingzhao::icm_chunk>("icm_chunk", {{MAP_ICM}, 0x10});
  expect_each_field_counts<spec::jingzhao::write_mtt_in>("write_mtt_in", {{WRITE_MTT}});
}

// WQEs: what the decoder makes of each unit ------------------------------------------------------

struct Wqe {
  SendWqe what;
  rdma::QpType type;
  wire::Link link;
  std::array<std::byte, 96> bytes{};

  std::string decode() const {
    rdma::SendRequest request;
    request.reset();
    const SendRules rules{.link = link, .type = type};
    const auto fault =
        decode_send_wqe(std::span(bytes).first(what.units * 16u), what, rules, request);
    auto text =
        fmt::format("{} {} {} {} {} {} {} {}", static_cast<int>(fault),
                    static_cast<int>(request.opcode), request.immediate, request.remote_address,
                    request.rkey.value(), request.swap_add, request.compare, request.is_inline);
    for (const auto& piece : request.sges) {
      text += fmt::format(" {} {} {}", piece.address, piece.length, piece.lkey.value());
    }
    text += fmt::format(" {}", request.inline_data.size());
    if (type == rdma::QpType::kUd) {
      const auto& to = request.ud;
      text += fmt::format(" {} {} {} {} {} {}", to.qpn.value(), to.qkey, to.dst_mac.to_u64(),
                          util::load_be32(to.dst_gid.bytes.data() + 12), to.dst_lid.value(),
                          to.own_source->lid.value());
      text += fmt::format(" {} {}", to.own_source->mac.to_u64(),
                          util::load_be32(to.own_source->gid.bytes.data() + 12));
    }
    return text;
  }
};

/// Tests each field of the unit at `at`, except those in `exempt`.
template <class Layout>
void expect_each_field_counts(const std::vector<Wqe>& wqes, std::size_t at,
                              const std::set<std::string_view>& exempt = {}) {
  for (const auto& field : Layout::kFields) {
    bool differs = false;
    for (auto wqe : wqes) {
      const auto usual = wqe.decode();
      for_each_bit(field, util::ByteOrder::kLittle, [&](std::size_t byte, unsigned bit) {
        wqe.bytes[at + byte] ^= std::byte{1} << bit;
      });
      differs = differs || wqe.decode() != usual;
    }
    EXPECT_EQ(differs, !exempt.contains(field.name) && !field.note.starts_with("unused"))
        << field.name;
  }
}

Wqe wqe_of(spec::jingzhao::wqe_opcode opcode, unsigned units, rdma::QpType type,
           wire::Link link = wire::Link::kEthernet) {
  Wqe wqe{.what = {.opcode = static_cast<std::uint8_t>(opcode),
                   .units = static_cast<std::uint8_t>(units)},
          .type = type,
          .link = link};
  const util::MutableView<spec::jingzhao::data_unit> data(
      std::span(wqe.bytes).subspan((units - 1) * 16u));
  data.set(spec::jingzhao::data_unit::byte_cnt, 8);
  data.set(spec::jingzhao::data_unit::lkey, 0x99);
  data.set(spec::jingzhao::data_unit::addr, 0xAABB);
  return wqe;
}

TEST(JingzhaoUsedFields, OfUnitsOfAWqeCount) {
  using namespace spec::jingzhao;
  using rdma::QpType;
  const auto write = wqe_of(wqe_opcode::RDMA_WRITE_IMM, 3, QpType::kRc);
  // JingzhaoRc.AChainOfWqesIsExecutedByOneDoorbell covers the link fields, which describe the
  // following WQE.
  expect_each_field_counts<next_unit>({write}, 0, {"nop", "nda", "nds", "f", "nee", "posted"});
  expect_each_field_counts<raddr_unit>({write}, 16);
  expect_each_field_counts<data_unit>({write}, 32);
  expect_each_field_counts<atomic_unit>({wqe_of(wqe_opcode::ATOMIC_CS, 4, QpType::kRc)}, 32);
  // The device has one port and ignores the port number.
  expect_each_field_counts<ud_unit>(
      {wqe_of(wqe_opcode::SEND, 5, QpType::kUd),
       wqe_of(wqe_opcode::SEND, 5, QpType::kUd, wire::Link::kInfiniband)},
      16, {"port"});
  auto of_bytes = wqe_of(wqe_opcode::SEND, 2, QpType::kRc);
  const util::MutableView<inline_unit> unit(std::span(of_bytes.bytes).subspan(16));
  unit.set(inline_unit::is_inline, 1);
  unit.set(inline_unit::length, 8);
  expect_each_field_counts<inline_unit>({of_bytes}, 16);
}

// CQEs: what the device writes -------------------------------------------------------------------

template <class Layout>
Fields cqe_fields(util::View<spec::jingzhao::cqe> cqe) {
  return test::fields_of<Layout>(cqe.bytes(), util::ByteOrder::kLittle);
}

TEST(JingzhaoCqe, OfASendHasEachFieldOfTheDocument) {
  const CqeQueue queue{.qpn = Qpn(0x123), .remote_qpn = Qpn(0x456)};
  util::Struct<spec::jingzhao::cqe> cqe;
  encode_good_send_cqe(cqe, queue,
                       {.cookie = SendCookie{.place = 7, .opcode = 8}.pack(),
                        .opcode = rdma::SendOpcode::kRdmaWrite,
                        .status = rdma::WorkStatus::kSuccess,
                        .signaled = true,
                        .byte_count = 99,
                        .reason = {}});
  EXPECT_EQ(cqe_fields<spec::jingzhao::cqe>(cqe), (Fields{{"my_qpn", 0x123},
                                                          {"rqpn", 0x456},
                                                          {"byte_cnt", 99},
                                                          {"wqe", 7 * 16},
                                                          {"is_send", 1},
                                                          {"opcode", 8}}));
}

TEST(JingzhaoCqe, OfAReceiveHasEachFieldOfTheDocument) {
  const CqeQueue queue{.qpn = Qpn(0x123), .remote_qpn = Qpn(0x456), .path_mtu = 1024};
  rdma::ReceiveCompletion done{};
  done.cookie = 0x40;
  done.opcode = rdma::ReceiveOpcode::kSendWithImmediate;
  done.byte_count = 1025;
  done.immediate = 0x11223344;
  done.source_qpn = Qpn(0x789);
  done.source_lid = rdma::Lid(5);
  util::Struct<spec::jingzhao::cqe> cqe;
  encode_receive_cqe(cqe, queue, done);
  EXPECT_EQ(cqe_fields<spec::jingzhao::cqe>(cqe), (Fields{{"my_qpn", 0x123},
                                                          {"rqpn", 0x789},
                                                          {"rlid", 5},
                                                          {"imm", 0x11223344},
                                                          {"byte_cnt", 1025},
                                                          {"wqe", 0x40},
                                                          {"opcode", 3}}));
}

// 3.3.1: "the opcode of the last packet"; its bits 7:5 are the service (IBTA 9.2.1).
TEST(JingzhaoCqe, OfAReceiveHasTheOpcodeOfItsLastPacket) {
  using rdma::QpType;
  using rdma::ReceiveOpcode;
  struct Row {
    QpType type;
    ReceiveOpcode operation;
    std::uint32_t bytes;
    std::uint32_t opcode;
  };
  const Row rows[] = {
      {QpType::kRc, ReceiveOpcode::kSend, 1024, 0x04},
      {QpType::kRc, ReceiveOpcode::kSend, 1025, 0x02},
      {QpType::kRc, ReceiveOpcode::kSendWithImmediate, 1, 0x05},
      {QpType::kRc, ReceiveOpcode::kRdmaWriteWithImmediate, 1, 0x0b},
      {QpType::kRc, ReceiveOpcode::kRdmaWriteWithImmediate, 5000, 0x09},
      {QpType::kUc, ReceiveOpcode::kSend, 0, 0x24},
      {QpType::kUc, ReceiveOpcode::kSendWithImmediate, 2000, 0x23},
      {QpType::kUc, ReceiveOpcode::kRdmaWriteWithImmediate, 2000, 0x29},
      {QpType::kUd, ReceiveOpcode::kSend, 4096, 0x64},
      {QpType::kUd, ReceiveOpcode::kSendWithImmediate, 5, 0x65},
  };
  for (const auto& row : rows) {
    rdma::ReceiveCompletion done{};
    done.opcode = row.operation;
    done.byte_count = row.bytes;
    util::Struct<spec::jingzhao::cqe> cqe;
    encode_receive_cqe(cqe, {.qpn = Qpn(1), .remote_qpn = {}, .path_mtu = 1024, .type = row.type},
                       done);
    EXPECT_EQ(cqe.get(spec::jingzhao::cqe::opcode), row.opcode);
  }
}

TEST(JingzhaoCqe, OfAnErrorHasSyndromeAndReason) {
  using rdma::WorkStatus;
  using enum spec::jingzhao::syndrome;
  const CqeQueue queue{.qpn = Qpn(0x123), .remote_qpn = Qpn(0x456)};
  const std::pair<WorkStatus, spec::jingzhao::syndrome> kRows[] = {
      {WorkStatus::kLocalLength, LOCAL_LENGTH_ERR},
      {WorkStatus::kLocalQpOperation, LOCAL_QP_OP_ERR},
      {WorkStatus::kLocalProtection, LOCAL_PROT_ERR},
      {WorkStatus::kFlushed, WR_FLUSH_ERR},
      {WorkStatus::kMemoryWindowBind, MW_BIND_ERR},
      {WorkStatus::kBadResponse, BAD_RESP_ERR},
      {WorkStatus::kLocalAccess, LOCAL_ACCESS_ERR},
      {WorkStatus::kRemoteInvalidRequest, REMOTE_INVAL_REQ_ERR},
      {WorkStatus::kRemoteAccess, REMOTE_ACCESS_ERR},
      {WorkStatus::kRemoteOperation, REMOTE_OP_ERR},
      {WorkStatus::kTransportRetryExceeded, RETRY_EXC_ERR},
      {WorkStatus::kRnrRetryExceeded, RNR_RETRY_EXC_ERR},
  };
  for (const auto& [status, syndrome] : kRows) {
    util::Struct<spec::jingzhao::cqe> cqe;
    encode_bad_send_cqe(cqe, queue,
                        {.cookie = SendCookie{.place = 7, .opcode = 8}.pack(),
                         .opcode = rdma::SendOpcode::kRdmaWrite,
                         .status = status,
                         .signaled = true,
                         .byte_count = 99,
                         .reason = rdma::Reason(0x22)});
    EXPECT_EQ(cqe_fields<spec::jingzhao::error_cqe>(cqe),
              (Fields{{"my_qpn", 0x123},
                      {"vendor_err", 0x22},
                      {"syndrome", static_cast<std::uint64_t>(syndrome)},
                      {"wqe", 7 * 16},
                      {"is_send", 1},
                      {"opcode", 0xFF}}))
        << to_string(status);
  }
}

}  // namespace
}  // namespace softhca::jingzhao::test
