// Work of programs on the author's driver, on a card of each profile.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>

#include "hca/faults.h"
#include "jingzhao/authors_driver.h"
#include "jingzhao/fault_names.h"

namespace softhca::jingzhao::test {
namespace {

using enum spec::jingzhao::qp_state;
using Wr = AuthorsDriver::Wr;
using Done = AuthorsDriver::Done;

constexpr std::uint32_t kLocalProtection = 0x04, kFlushed = 0x05;

class JingzhaoAuthorsWork : public testing::TestWithParam<AuthorsCard> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(d.probe());
    data = d.register_memory(kMemory);
    cq = d.create_cq(128);
    receive_cq = d.create_cq(128);
  }
  void make(std::uint32_t slots = 8, qp_type type = qp_type::RC) {
    a = d.create_qp(*cq, *receive_cq, slots, type);
    b = d.create_qp(*cq, *receive_cq, slots, type);
  }
  void connect() {
    d.connect(*a, *b);
    d.connect(*b, *a);
  }
  void destroy() {
    d.destroy(*a);
    d.destroy(*b);
  }
  void reset() {
    ASSERT_EQ(d.modify(*a, RST), OK);
    ASSERT_EQ(d.modify(*b, RST), OK);
  }
  AuthorsDriver::Piece piece(std::uint64_t at, std::uint32_t length) const {
    return {.at = data.address() + at, .length = length, .lkey = data.key};
  }
  Wr write(std::uint64_t id) const {
    return {.id = id,
            .opcode = wqe_opcode::RDMA_WRITE,
            .pieces = {piece(0, 1)},
            .to = data.address() + kHalf,
            .rkey = data.key};
  }
  /// `count` writes with the numbers from `first` on.
  std::vector<Wr> writes(std::uint64_t first, std::size_t count) const {
    std::vector<Wr> list;
    while (list.size() != count) list.push_back(write(first + list.size()));
    return list;
  }
  std::vector<std::uint64_t> ids(const std::vector<Done>& all) const {
    std::vector<std::uint64_t> out;
    for (const auto& done : all) out.push_back(done.id);
    return out;
  }

  static constexpr std::size_t kMemory = 512 << 10, kHalf = kMemory / 2;
  AuthorsDriver d{GetParam()};
  AuthorsDriver::Memory data;
  std::unique_ptr<AuthorsDriver::Cq> cq, receive_cq;
  std::unique_ptr<AuthorsDriver::Qp> a, b;
};

INSTANTIATE_TEST_SUITE_P(Cards, JingzhaoAuthorsWork,
                         testing::Values(kCardOfTheDriver, kCardOfTheDocument),
                         [](const auto& card) {
                           return card.param.profile == Profile::kDriver ? "driver" : "document";
                         });

// Lists of 64 ----------------------------------------------------------------------------------

constexpr std::size_t kList = 64, kLists = 157;
constexpr std::uint32_t kRoom = 4096;  ///< bytes of each message

/// The messages of one list. Each carries bytes from its place in the lower half of the memory to
/// its place in the upper half.
class Messages {
 public:
  Messages(AuthorsDriver::Memory& data, std::size_t list) : data_(data), list_(list) {}

  std::size_t number(std::size_t i) const { return list_ * kList + i; }
  wqe_opcode opcode(std::size_t i) const {
    using enum wqe_opcode;
    return std::array{SEND, RDMA_WRITE, RDMA_WRITE_IMM, RDMA_READ}[i % 4];
  }
  bool is_inline(std::size_t i) const { return i % 8 == 0; }
  bool has_two_pieces(std::size_t i) const { return i % 8 == 4; }
  bool has_receive(std::size_t i) const { return i % 2 == 0; }
  /// Up to three packets.
  std::uint32_t length(std::size_t i) const {
    const auto length = static_cast<std::uint32_t>(number(i) * 37 % 3000 + 2);
    return is_inline(i) ? std::min(length, 100u) : length;
  }

  void fill() {
    std::ranges::fill(data_.region.bytes.subspan(kList * kRoom), std::byte{0});
    for (std::size_t i = 0; i != kList; ++i) {
      auto value = static_cast<unsigned>(number(i));
      for (auto& byte : source(i)) byte = std::byte(value += 7);
    }
  }
  Wr send(std::size_t i) const {
    Wr wr{.id = number(i), .opcode = opcode(i)};
    wr.rkey = data_.key;
    wr.immediate = static_cast<std::uint32_t>(number(i));
    wr.fence = i % 4 == 0;
    wr.is_inline = is_inline(i);
    wr.to = data_.address() + to(i);
    const bool reads = wr.opcode == wqe_opcode::RDMA_READ;
    auto at = data_.address() + (reads ? to(i) : from(i));
    if (reads) wr.to = data_.address() + from(i);
    // The driver itself reads inline data.
    if (wr.is_inline) at = reinterpret_cast<std::uintptr_t>(data_.region.bytes.data()) + from(i);
    const auto first = has_two_pieces(i) ? length(i) / 2 : length(i);
    wr.pieces.push_back({at, first, data_.key});
    if (has_two_pieces(i)) wr.pieces.push_back({at + first, length(i) - first, data_.key});
    return wr;
  }
  /// @pre has_receive(i)
  Wr receive(std::size_t i) const {
    Wr wr{.id = number(i)};
    if (opcode(i) == wqe_opcode::SEND) {
      wr.pieces.push_back({data_.address() + to(i), kRoom, data_.key});
    }
    return wr;
  }
  bool arrived(std::size_t i) {
    return std::ranges::equal(source(i), data_.region.bytes.subspan(to(i), length(i))) &&
           data_.region.bytes[to(i) + length(i)] == std::byte{0};
  }

 private:
  std::size_t from(std::size_t i) const { return i * kRoom; }
  std::size_t to(std::size_t i) const { return (kList + i) * kRoom; }
  std::span<std::byte> source(std::size_t i) {
    return data_.region.bytes.subspan(from(i), length(i));
  }

  AuthorsDriver::Memory& data_;
  std::size_t list_;
};

TEST_P(JingzhaoAuthorsWork, MovesTenThousandMessagesInListsOf64) {
  constexpr std::uint32_t kSlots = 256;
  constexpr std::size_t kReset = 8, kRemake = 24;  // lists between them
  for (std::size_t list = 0; list != kLists; ++list) {
    SCOPED_TRACE(list);
    if (list % kRemake == 0) {
      if (list != 0) destroy();
      make(kSlots);
      connect();
    } else if (list % kReset == 0) {
      reset();
      connect();
    }
    auto& sender = list % 2 == 0 ? *a : *b;
    auto& receiver = list % 2 == 0 ? *b : *a;
    Messages messages(data, list);
    messages.fill();
    std::vector<Wr> sends, receives;
    for (std::size_t i = 0; i != kList; ++i) {
      sends.push_back(messages.send(i));
      if (messages.has_receive(i)) receives.push_back(messages.receive(i));
    }
    ASSERT_EQ(d.post_receive(receiver, receives), receives.size());
    ASSERT_EQ(d.post_send(sender, sends), kList);
    const auto sent = d.wait(*cq, kList);
    const auto received = d.wait(*receive_cq, receives.size());
    ASSERT_EQ(sent.size(), kList);
    ASSERT_EQ(received.size(), receives.size());
    for (std::size_t i = 0; i != kList; ++i) {
      EXPECT_EQ(sent[i].syndrome, 0u) << i;
      EXPECT_EQ(sent[i].qp, &sender);
      EXPECT_EQ(sent[i].id, messages.number(i));
      EXPECT_EQ(sent[i].opcode, static_cast<std::uint32_t>(messages.opcode(i)));
      EXPECT_TRUE(messages.arrived(i)) << i;
    }
    for (std::size_t i = 0; i != receives.size(); ++i) {
      const bool is_send = messages.opcode(2 * i) == wqe_opcode::SEND;
      EXPECT_EQ(received[i].syndrome, 0u) << i;
      EXPECT_EQ(received[i].qp, &receiver);
      EXPECT_EQ(received[i].id, messages.number(2 * i));
      EXPECT_EQ(received[i].bytes, messages.length(2 * i));
      EXPECT_EQ(received[i].immediate, is_send ? 0 : messages.number(2 * i));
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(JingzhaoAuthorsWork, RingsOnceFor255WqesOfALongerList) {
  constexpr std::uint32_t kSlots = 1024;
  constexpr std::size_t kWrites = 300;
  auto large_cq = d.create_cq(kSlots);
  auto from = d.create_qp(*large_cq, *large_cq, kSlots), to = d.create_qp(*large_cq, *large_cq);
  d.connect(*from, *to);
  d.connect(*to, *from);
  const auto list = writes(0, kWrites);
  ASSERT_EQ(d.post_send(*from, list), kWrites);
  const auto done = d.wait(*large_cq, kWrites);
  ASSERT_EQ(done.size(), kWrites);
  for (std::size_t i = 0; i != kWrites; ++i) EXPECT_EQ(done[i].id, i);
}

// States ---------------------------------------------------------------------------------------

TEST_P(JingzhaoAuthorsWork, MakesEachTransitionOfTheDriver) {
  make();
  const std::vector<qp_state> kTours[]{
      {INIT, INIT, RTR, RTS, RTS, SQD, SQD, RTS, ERR, ERR, RST},
      {INIT, ERR, RST},
      {INIT, RST},
      {INIT, RTR, ERR, RST},
      {INIT, RTR, RST},
      {INIT, RTR, RTS, RST},
      {INIT, RTR, RTS, SQD, ERR, RST},
      {INIT, RTR, RTS, SQD, RST},
  };
  for (const auto& tour : kTours) {
    for (const auto to : tour) {
      const auto from = a->state;
      AuthorsDriver::Change change{.port = to == INIT};
      if (to == RTR) change = {.remote_qpn = b->qpn, .epsn = 1, .mtu = 3, .rnr_timer = 12};
      if (to == RTS && from == RTR) change = {.psn = 1};
      EXPECT_EQ(d.modify(*a, to, change), OK) << int(from) << " to " << int(to);
      EXPECT_EQ(d.query(*a), to);
      d.run();
    }
  }
}

TEST_P(JingzhaoAuthorsWork, TakesADatagramQueuePairOutOfSqe) {
  make(8, qp_type::UD);
  for (auto* qp : {a.get(), b.get()}) {
    ASSERT_EQ(d.modify(*qp, INIT, {.port = true}), OK);
    ASSERT_EQ(d.modify(*qp, RTR), OK);
    ASSERT_EQ(d.modify(*qp, RTS, {.psn = 1}), OK);
  }
  Wr wr{.id = 1, .pieces = {piece(0, 10)}, .remote_qpn = b->qpn};
  wr.pieces[0].lkey ^= 0x1000;
  ASSERT_EQ(d.post_send(*a, {&wr, 1}), 1u);
  const auto failed = d.wait(*cq, 1);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].syndrome, kLocalProtection);
  EXPECT_EQ(d.query(*a), SQE);
  a->state = SQE;  // as after a query
  ASSERT_EQ(d.modify(*a, RTS), OK);
  wr = {.id = 2, .pieces = {piece(0, 10)}, .remote_qpn = b->qpn};
  const Wr receive{.id = 3, .pieces = {piece(kHalf, 10)}};
  ASSERT_EQ(d.post_receive(*b, {&receive, 1}), 1u);
  ASSERT_EQ(d.post_send(*a, {&wr, 1}), 1u);
  EXPECT_EQ(ids(d.wait(*cq, 1)), std::vector<std::uint64_t>{2});
  EXPECT_EQ(ids(d.wait(*receive_cq, 1)), std::vector<std::uint64_t>{3});
}

TEST_P(JingzhaoAuthorsWork, FlushesTheRestOfAListAndRunsAgainAfterAReset) {
  make();
  connect();
  const Wr receive{.id = 9, .pieces = {piece(kHalf, 10)}};
  ASSERT_EQ(d.post_receive(*a, {&receive, 1}), 1u);
  auto list = writes(1, 4);
  list[1].pieces[0].lkey ^= 0x1000;
  ASSERT_EQ(d.post_send(*a, list), 4u);
  const auto done = d.wait(*cq, 4);
  ASSERT_EQ(ids(done), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(done[0].syndrome, 0u);
  EXPECT_EQ(done[1].syndrome, kLocalProtection);
  EXPECT_EQ(done[2].syndrome, kFlushed);
  EXPECT_EQ(done[3].syndrome, kFlushed);
  const auto flushed = d.wait(*receive_cq, 1);
  ASSERT_EQ(ids(flushed), std::vector<std::uint64_t>{9});
  EXPECT_EQ(flushed[0].syndrome, kFlushed);
  EXPECT_EQ(d.query(*a), ERR);
  reset();
  connect();
  ASSERT_EQ(d.post_send(*a, writes(5, 4)), 4u);
  const auto again = d.wait(*cq, 4);
  ASSERT_EQ(ids(again), (std::vector<std::uint64_t>{5, 6, 7, 8}));
  for (const auto& one : again) EXPECT_EQ(one.syndrome, 0u);
}

// Completion queues ----------------------------------------------------------------------------

TEST_P(JingzhaoAuthorsWork, ResizesACqWithUnreadCqes) {
  auto small = d.create_cq(16);
  auto from = d.create_qp(*small, *small, 64), to = d.create_qp(*small, *small);
  d.connect(*from, *to);
  d.connect(*to, *from);
  ASSERT_EQ(d.post_send(*from, writes(0, 12)), 12u);
  EXPECT_EQ(d.wait(*small, 12).size(), 12u);
  // Those that are unread now pass the end of the ring.
  ASSERT_EQ(d.post_send(*from, writes(12, 8)), 8u);
  d.run();
  ASSERT_EQ(d.resize(*small, 64), OK);
  ASSERT_EQ(d.post_send(*from, writes(20, 20)), 20u);
  const auto done = d.wait(*small, 28);
  ASSERT_EQ(done.size(), 28u);
  for (std::size_t i = 0; i != done.size(); ++i) EXPECT_EQ(done[i].id, 12 + i);
  ASSERT_EQ(d.resize(*small, 16), OK);
  ASSERT_EQ(d.post_send(*from, writes(40, 4)), 4u);
  EXPECT_EQ(ids(d.wait(*small, 4)), (std::vector<std::uint64_t>{40, 41, 42, 43}));
}

TEST_P(JingzhaoAuthorsWork, RemovesTheCqesOfAQueuePairThatIsDestroyed) {
  // Numbers that count on, on the card of the driver.
  make();
  destroy();
  make();
  connect();
  auto c = d.create_qp(*cq, *receive_cq), e = d.create_qp(*cq, *receive_cq);
  d.connect(*c, *e);
  d.connect(*e, *c);
  for (const std::uint64_t id : {1u, 3u, 5u}) {
    ASSERT_EQ(d.post_send(*a, writes(id, 1)), 1u);
    d.run();
    ASSERT_EQ(d.post_send(*c, writes(id + 1, 1)), 1u);
    d.run();
  }
  destroy();
  std::vector<Done> left;
  while (const auto done = d.poll(*cq)) left.push_back(*done);
  EXPECT_EQ(ids(left), (std::vector<std::uint64_t>{2, 4, 6}));
}

// A fault rule holds back its CQE. On the card of the driver, its number has bits above the
// table's.
TEST_P(JingzhaoAuthorsWork, AStalledCqDropsTheCqesOfAQueuePairThatIsDestroyed) {
  make();
  destroy();
  make();
  connect();
  hca::Faults rules;
  d.h.device.faults().set_rules(rules);
  const auto rule = rules.add(hca::parse_fault("do=stall-cq", fault_dialect()).value());
  d.h.device.faults().follow_rules();
  ASSERT_EQ(d.post_send(*a, writes(1, 1)), 1u);
  d.run();
  ASSERT_FALSE(d.poll(*cq)) << "it is held back";
  destroy();
  const auto produced = [&] {
    const auto& queues = *d.h.device.objects().completion_queues;
    return queues.show(Cqn(cq->cqn & 0xffff))->producer;
  };
  const auto before = produced();
  ASSERT_TRUE(rules.remove(rule));
  d.h.device.faults().follow_rules();
  d.run();
  EXPECT_EQ(produced(), before);
}

// Events ---------------------------------------------------------------------------------------

// The driver has these commands, and never sends them. `start_at` of an EQ is 0, as that of a CQ.
TEST_P(JingzhaoAuthorsWork, GetsEventsByItsEqContext) {
  constexpr std::uint32_t kEqn = 1, kEntries = 8;
  constexpr std::uint64_t kAsyncEvents = 0x3'43fe;
  auto ring = d.register_memory(Icm::kPage, 0);
  const auto entry = [&](std::uint32_t i) {
    return util::MutableView<eqe>(ring.region.bytes.subspan(i * eqe::kSize, eqe::kSize));
  };
  for (std::uint32_t i = 0; i != kEntries; ++i) entry(i).set(eqe::owner, 1);
  d.h.clear_mailbox();
  d.h.put32(0x00, 1u << 24 | 1u << 18 | 1u << 8);
  d.h.put32(0x0c, static_cast<std::uint32_t>(std::countr_zero(kEntries)) << 24);
  d.h.put32(0x18, AuthorsDriver::kPd);
  d.h.put32(0x1c, ring.key);
  ASSERT_EQ(d.command(command_opcode::SW2HW_EQ, kEqn), OK);
  ASSERT_EQ(d.command_with(command_opcode::MAP_EQ, kEqn, kAsyncEvents, 0), OK);
  make();
  connect();
  ASSERT_EQ(d.modify(*b, SQD), OK);
  d.run();
  EXPECT_EQ(entry(0).get(eqe::owner), 0u);
  EXPECT_EQ(entry(0).get(eqe::type), static_cast<std::uint32_t>(event_type::SQ_DRAINED));
  EXPECT_EQ(entry(0).get(eqe::number), b->qpn);
  EXPECT_EQ(d.command_with(command_opcode::MAP_EQ, 1u << 31 | kEqn, kAsyncEvents, 0), OK);
  ASSERT_EQ(d.modify(*a, SQD), OK);
  d.run();
  EXPECT_EQ(entry(1).get(eqe::owner), 1u);
  EXPECT_EQ(d.command_with(command_opcode::HW2SW_EQ, kEqn, 0, 0), OK);
}

// Unloading ------------------------------------------------------------------------------------

TEST_P(JingzhaoAuthorsWork, UnloadsWithAllInPlaceAndLoadsAgain) {
  make();
  connect();
  d.remove();
  d.probe();
  data = d.register_memory(kMemory);
  cq = d.create_cq(16);
  receive_cq = d.create_cq(16);
  make();
  connect();
  ASSERT_EQ(d.post_send(*a, writes(1, 2)), 2u);
  EXPECT_EQ(ids(d.wait(*cq, 2)), (std::vector<std::uint64_t>{1, 2}));
}

}  // namespace
}  // namespace softhca::jingzhao::test
