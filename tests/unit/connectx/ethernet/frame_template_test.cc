// A send WQE like the previous one takes a fast path, and so does its frame at the receiver
// (EthFrameTemplate, EthReceiver::Flow). The results must equal those of the slow paths. Any
// difference to the previous one must lead to the slow path.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "connectx/port/network_port.h"
#include "connectx/steering/steering_host.h"
#include "ethernet/checksum_offload.h"
#include "ethernet/flow_headers.h"
#include "ethernet/padding.h"

namespace softhca::connectx::test {
namespace {

/// The expected frame on the wire, computed without any state of other frames.
Bytes expected_on_wire(const Bytes& bytes) {
  auto frame = wire::Frame::from_bytes(bytes);
  const auto packet = ethernet::classify(frame);
  ethernet::insert_l4_checksum(frame, packet);
  ethernet::insert_l3_checksum(frame, packet);
  ethernet::pad_to_minimum(frame);
  Bytes result(frame.size());
  frame.copy_to(result);
  return result;
}

class FrameTemplates : public ::testing::Test {
 protected:
  FrameTemplates() : cqn(host.create_cq()), sqn(host.create_sq(cqn)) {}

  /// A WQE as Linux makes it: 18 bytes of headers inline, the rest by pointer.
  Bytes wqe(const Bytes& frame, std::size_t inlined = 18, bool checksums = true) {
    const auto bytes = std::span(frame);
    const auto rest = bytes.subspan(inlined);
    const auto buffer = host.allocate(rest.size());
    std::ranges::copy(rest, host.at(buffer));
    return Wqe(wqe_opcode::SEND, sqn, host.posted(sqn))
        .eth(bytes.first(inlined), checksums)
        .pointer(EthernetHost::kKey, buffer, static_cast<std::uint32_t>(rest.size()))
        .finish();
  }
  void send(const Bytes& frame) { host.post_send(sqn, wqe(frame)); }
  /// Fills the caches: the second frame of a flow matches the first.
  void send_twice() {
    send(make_frame(spec));
    send(make_frame(spec));
    host.port.sent.clear();
    while (!host.poll(cqn).empty()) continue;
  }

  EthernetHost host{{.model = without_inline_headers()}};
  std::uint32_t cqn;
  std::uint32_t sqn;
  FrameSpec spec{.udp = true, .payload = 300};
};

TEST_F(FrameTemplates, GoOutAsTheSlowPathMakesThem) {
  std::mt19937 random(1);
  const auto rest = host.allocate(64);
  const std::array<std::size_t, 5> inline_sizes{18, 18, 18, 14, 42};
  for (int i = 0; i < 3000; ++i) {
    if (random() % 8 == 0) spec.udp = random() % 2 == 0;
    if (random() % 8 == 0) spec.ipv6 = random() % 3 == 0;
    if (random() % 16 == 0) spec.vlan_tci = random() % 4 == 0 ? 5 : -1;
    if (random() % 8 == 0) spec.destination_port = static_cast<std::uint16_t>(2000 + random() % 3);
    spec.payload = 1 + (random() % 5 == 0 ? random() % 20 : random() % 1400);
    spec.tcp_sequence = static_cast<std::uint32_t>(random());
    auto frame = make_frame(spec);
    const auto headers = header_size(spec);
    for (auto at = headers; at != frame.size(); ++at) frame[at] = std::byte(random());
    for (auto n = random() % 4 == 0 ? 2 : 0; n != 0; --n) {
      frame[12 + random() % (headers - 12)] = std::byte(random());
    }
    if (random() % 16 == 0) frame.resize(frame.size() + 5);
    if (random() % 16 == 0) frame.resize(frame.size() - std::min<std::size_t>(spec.payload - 1, 3));
    host.port.sent.clear();
    host.post_send(sqn, wqe(frame, inline_sizes[random() % inline_sizes.size()]));
    ASSERT_EQ(host.port.sent.size(), 1u) << i;
    ASSERT_EQ(host.port.sent[0], expected_on_wire(frame)) << i;
    const auto cqe = host.poll(cqn);
    ASSERT_FALSE(cqe.empty());
    ASSERT_EQ(util::View<cqe64_requester>(cqe).get(cqe64_requester::opcode), 0u);
    host.free_from(rest);
  }
}

// PRM 7.4.4.1: only offloads requested by the WQE are performed.
TEST_F(FrameTemplates, AWqeThatAsksForSomethingElseGetsThat) {
  send_twice();
  const auto frame = make_frame(spec);
  host.post_send(sqn, wqe(frame, 18, false));
  host.post_send(sqn, Wqe(wqe_opcode::NOP, sqn, host.posted(sqn)).finish());
  const auto buffer = host.allocate(frame.size());
  std::ranges::copy(frame, host.at(buffer));
  const auto size = static_cast<std::uint32_t>(frame.size());
  host.post_send(sqn, Wqe(wqe_opcode::SEND, sqn, host.posted(sqn))
                          .eth({}, true)
                          .insert_vlan(7)
                          .pointer(EthernetHost::kKey, buffer, size)
                          .finish());
  ASSERT_EQ(host.port.sent.size(), 2u);
  EXPECT_EQ(host.port.sent[0], frame) << "without checksums";
  EXPECT_EQ(host.port.sent[1].size(), frame.size() + 4) << "with a tag";
}

// PRM 7.12.4: a CQE is written only on request.
TEST_F(FrameTemplates, CompleteOnlyIfSignaled) {
  send_twice();
  auto unsignaled = wqe(make_frame(spec));
  util::MutableView<wqe_ctrl_segment>(unsignaled).set(wqe_ctrl_segment::ce, 0);
  host.post_send(sqn, unsignaled);
  EXPECT_TRUE(host.poll(cqn).empty());
  send(make_frame(spec));
  const auto cqe = host.poll(cqn);
  ASSERT_FALSE(cqe.empty());
  EXPECT_EQ(util::View<cqe64_requester>(cqe).get(cqe64_requester::wqe_counter), 3u);
}

TEST_F(FrameTemplates, AKeyThatIsNotTheirsIsRefused) {
  send_twice();
  auto bad = wqe(make_frame(spec));
  util::MutableView<data_segment_pointer>(std::span(bad).subspan(48))
      .set(data_segment_pointer::l_key, EthernetHost::kKey + 1);
  host.post_send(sqn, bad);
  EXPECT_TRUE(host.port.sent.empty());
  EXPECT_EQ(host.sq_state(sqn), sq_state::ERR);
}

TEST_F(FrameTemplates, FewerHeadersInTheWqeThanBeforeTakeTheSlowPath) {
  send_twice();
  host.post_send(sqn, wqe(make_frame(spec), 14));
  ASSERT_EQ(host.port.sent.size(), 1u);
  EXPECT_EQ(host.port.sent[0], expected_on_wire(make_frame(spec)));
}

TEST_F(FrameTemplates, AQueueInErrorFlushesThem) {
  send_twice();
  EXPECT_TRUE(host.modify_sq(sqn, sq_state::RDY, sq_state::ERR).ok());
  send(make_frame(spec));
  EXPECT_TRUE(host.port.sent.empty());
}

TEST_F(FrameTemplates, AFrameLongerThanTheMtuIsNotSent) {
  send_twice();
  spec.payload = 9960;
  send(make_frame(spec));
  EXPECT_TRUE(host.port.sent.empty());
  EXPECT_EQ(host.device.driver().network_port().counters().transmit_errors.packets, 1u);
}

// Receiver ----------------------------------------------------------------------------------------

class FinishedFrames : public EthernetSteering {
 protected:
  FinishedFrames() {
    const auto root = host.create_table(0, 2);
    group_ = host.create_group(root, 0, 3);
    table_ = root;
    EXPECT_TRUE(host.set_flow(root, group_, 1, {tir(1)}, {}, 2).ok());
    host.set_root(root);
  }

  /// A frame as a sender in this process hands it over.
  wire::Frame finished(const FrameSpec& spec) {
    bytes_ = make_frame(spec);
    const auto headers = header_size(spec);
    wire::Frame frame;
    const auto head = frame.begin(headers, std::span(bytes_).subspan(headers));
    std::copy_n(bytes_.begin(), headers, head.begin());
    if (sender_.flow() == 0 || !sender_.finish(frame)) {
      sender_.remember(frame, ethernet::classify(frame), false);
      EXPECT_TRUE(sender_.finish(frame));
    }
    return frame;
  }
  void arrive(const wire::Frame& frame) { host.port.receiver->handle_frame(frame); }
  /// The last CQE without its counter and owner bit.
  Bytes completion() {
    Bytes last;
    for (auto cqe = host.poll(cqn); !cqe.empty(); cqe = host.poll(cqn)) last = cqe;
    if (!last.empty()) std::fill(last.begin() + 0x3C, last.end(), std::byte{});
    return last;
  }
  void make_known(const FrameSpec& spec) {
    arrive(finished(spec));  // steered, and cached
    arrive(finished(spec));  // matched against the cache
    (void)completion();
  }

  std::uint32_t table_ = 0;
  std::uint32_t group_ = 0;
  Bytes bytes_;
  ethernet::FlowHeaders sender_;
};

// mlx5 driver interface 8.11: the CQE describes the frame, however the frame was delivered.
TEST_F(FinishedFrames, HaveTheCompletionOfTheirBytes) {
  for (const bool udp : {true, false}) {
    for (const bool ipv6 : {false, true}) {
      for (const std::size_t payload : {60, 99, 200}) {
        FrameSpec spec{.ipv6 = ipv6, .udp = udp, .payload = 100};
        make_known(spec);
        spec.payload = payload;
        spec.tcp_sequence = 12345;
        arrive(finished(spec));
        const auto known = completion();
        auto right = make_frame(spec);
        fix_checksums(right, spec);
        (void)host.received(rqns[1]);  // a command, which flushes the flow cache
        host.arrive(right);
        EXPECT_EQ(known, completion()) << udp << ipv6 << payload;
        ASSERT_FALSE(known.empty());
        for (int i = 0; i < 4; ++i) host.post_receive(rqns[1], 512);
      }
    }
  }
}

TEST_F(FinishedFrames, ANewRuleCountsForTheNext) {
  const FrameSpec spec{.udp = true};
  make_known(spec);
  arrive(finished(spec));
  EXPECT_EQ(last_tag(), 2u);
  EXPECT_TRUE(host.set_flow(table_, group_, 0, {tir(2)}, {}, 3).ok());
  arrive(finished(spec));
  EXPECT_EQ(last_tag(), 3u);
}

// PRM Table 57: "Incoming messages are silently dropped".
TEST_F(FinishedFrames, AnRqThatIsResetTakesNone) {
  const FrameSpec spec{.udp = true};
  make_known(spec);
  EXPECT_TRUE(host.modify_rq(rqns[1], rq_state::RDY, rq_state::ERR).ok());
  host.run_later();
  (void)completion();
  EXPECT_TRUE(host.modify_rq(rqns[1], rq_state::ERR, rq_state::RST).ok());
  arrive(finished(spec));
  EXPECT_TRUE(completion().empty());
}

TEST_F(FinishedFrames, EachOfTwoFlowsHasItsOwnResult) {
  EXPECT_TRUE(host.set_flow(table_, group_, 1, {tir(1)}, {}, 2).ok());
  const auto by_port = host.create_table(1, 1);
  const auto group = host.create_group(by_port, 0, 1, field(Outer::udp_dport, 0xFFFF));
  EXPECT_TRUE(host.set_flow(by_port, group, 0, {tir(2)}, field(Outer::udp_dport, 7), 3).ok());
  EXPECT_TRUE(host.set_flow(by_port, group, 1, {tir(3)}, field(Outer::udp_dport, 8), 4).ok());
  EXPECT_TRUE(host.set_flow(table_, group_, 0, {table(by_port)}).ok());
  const FrameSpec seven{.udp = true, .destination_port = 7};
  const FrameSpec eight{.udp = true, .destination_port = 8};
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 3; ++i) arrive(finished(seven));
    EXPECT_EQ(last_tag(), 3u);
    for (int i = 0; i < 3; ++i) arrive(finished(eight));
    EXPECT_EQ(last_tag(), 4u);
  }
}

// A frame without a flow id must not match a flow whose id was forgotten.
TEST_F(FinishedFrames, AFrameWithoutAFlowGoesItsOwnWay) {
  const FrameSpec spec{.udp = true};
  // Ids map to 64 places; frames without an id use the first place.
  do {
    sender_ = {};
    make_known(spec);
    for (int i = 0; i < 2; ++i) host.post_receive(rqns[1], 256);
  } while (sender_.flow() % 64 != 0);
  (void)host.received(rqns[1]);
  host.arrive(make_frame(spec));  // caches the flow again
  (void)completion();
  auto wrong = make_frame({.udp = true, .destination_port = 9, .payload = 10});
  util::store_be16(wrong.data() + 40, 0x1234);
  host.arrive(wrong);
  const auto cqe = completion();
  ASSERT_FALSE(cqe.empty());
  EXPECT_EQ(util::View<cqe64>(cqe).get(cqe64::l4_ok), 0u);
}

// A frame that was changed in transit loses its flow id, so errors in it are detected.
TEST_F(FinishedFrames, ChangedOnTheWayAreCheckedAgain) {
  const FrameSpec spec{.udp = true};
  make_known(spec);
  auto frame = finished(spec);
  frame.mutable_head()[22] ^= std::byte{1};  // TTL
  arrive(frame);
  const auto cqe = completion();
  ASSERT_FALSE(cqe.empty());
  EXPECT_EQ(util::View<cqe64>(cqe).get(cqe64::l3_ok), 0u);
}

TEST_F(FinishedFrames, TcpFlagsCountWhereARuleAsksForThem) {
  const auto by_flags = host.create_table(1, 1);
  const auto group = host.create_group(by_flags, 0, 0, field(Outer::tcp_flags, 0x1FF));
  EXPECT_TRUE(host.set_flow(by_flags, group, 0, {tir(2)}, field(Outer::tcp_flags, 2), 3).ok());
  const auto rest = host.create_group(by_flags, 1, 1);
  EXPECT_TRUE(host.set_flow(by_flags, rest, 1, {tir(3)}, {}, 4).ok());
  EXPECT_TRUE(host.set_flow(table_, group_, 0, {table(by_flags)}).ok());
  const FrameSpec spec{};
  make_known(spec);
  auto frame = finished(spec);
  arrive(frame);
  EXPECT_EQ(last_tag(), 4u);
  frame.mutable_head()[14 + 20 + 13] = std::byte{2};  // SYN
  EXPECT_TRUE(sender_.finish(frame));
  arrive(frame);
  EXPECT_EQ(last_tag(), 3u);
}

// PRM 7.12: each WQE has its own memory.
TEST_F(FinishedFrames, LieWhereTheWqeSays) {
  const FrameSpec spec{.udp = true};
  make_known(spec);
  // The WQEs that the fixture posted are used first.
  for (int i = 0; i < 28; ++i) arrive(finished(spec));
  const auto buffer = host.post_receive(rqns[1], 512);
  arrive(finished(spec));
  auto right = make_frame(spec);
  fix_checksums(right, spec);
  EXPECT_EQ(host.read(buffer, right.size()), right);
}

TEST_F(FinishedFrames, TooShortAReceiveIsReported) {
  const FrameSpec spec{.udp = true, .payload = 300};
  make_known({.udp = true});
  arrive(finished(spec));
  Bytes last;
  for (auto cqe = host.poll(cqn); !cqe.empty(); cqe = host.poll(cqn)) last = cqe;
  ASSERT_FALSE(last.empty());
  EXPECT_EQ(util::View<cqe_error>(last).get(cqe_error::syndrome),
            static_cast<unsigned>(cqe_syndrome::LOCAL_LENGTH_ERROR));
}

// mlx5 driver interface 8.12: the queue enters the error state, and its posted WQEs are flushed
// immediately.
TEST_F(FinishedFrames, AnRqThatTheyTakeToTheErrorStateIsFlushedInTheNextTurn) {
  make_known({.udp = true});
  const auto next = host.received(rqns[1]);
  make_known({.udp = true});  // again, because a command flushed the cache
  for (int i = 0; i < 4; ++i) host.post_receive(rqns[1], 512);
  util::store_be32(host.receive_wqe(rqns[1], next + 2) + 4, 0x6600);  // an invalid key
  host.run();
  host.run();  // no work is left
  arrive(finished({.udp = true}));
  while (!host.poll(cqn).empty()) continue;
  host.run();
  const auto flushed = host.poll(cqn);
  ASSERT_FALSE(flushed.empty());
  EXPECT_EQ(util::View<cqe_error>(flushed).get(cqe_error::syndrome),
            static_cast<unsigned>(cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR));
}

}  // namespace
}  // namespace softhca::connectx::test
