// 11.5: "The MPSW enables sending multiple fixed sized packets using single WQE. ... The firmware
// breaks into packets according to Max segment Size in WQE. When the WQE is completed, the firmware
// will generate a single CQE."

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "connectx/ethernet/ethernet_host.h"
#include "connectx/queue/wqe_fault.h"
#include "fabric/capture.h"
#include "fabric/capture_file.h"
#include "rsnic/host_options.h"
#include "rsnic/options.h"
#include "spec/connectx/wqe.h"

namespace softhca::rsnic {
namespace {

using namespace spec::connectx;
using connectx::WqeFault;
using connectx::test::Bytes;
using connectx::test::EthernetHost;
using connectx::test::fix_checksums;
using connectx::test::make_frame;
using connectx::test::Wqe;

class MultiPacketSend : public ::testing::Test {
 protected:
  explicit MultiPacketSend(const connectx::HostOptions& options = host_options(), bool sq = true)
      : host(options) {
    host.multi_packet_sends = sq;
    cqn = host.create_cq();
    sqn = host.create_sq(cqn);
  }

  /// Frames of equal size, contiguous in memory.
  std::vector<Bytes> make_frames(std::size_t count, std::size_t payload) {
    std::vector<Bytes> frames;
    for (std::size_t i = 0; i != count; ++i) {
      frames.push_back(make_frame({.source_port = static_cast<std::uint16_t>(1000 + i),
                                   .tcp_sequence = static_cast<std::uint32_t>(i),
                                   .payload = payload}));
    }
    return frames;
  }
  std::uint64_t place(std::span<const std::byte> bytes) {
    const auto buffer = host.allocate(bytes.size());
    std::ranges::copy(bytes, host.at(buffer));
    return buffer;
  }
  Wqe wqe() { return {wqe_opcode::LSO, sqn, host.posted(sqn)}; }
  static Bytes as_multi_packet(Bytes wqe) {
    util::MutableView<wqe_ctrl_segment>(wqe).set(wqe_ctrl_segment::opmod, 1);
    return wqe;
  }
  /// A WQE with one pointer for each frame.
  Bytes send_of(const std::vector<Bytes>& frames, bool checksums = false) {
    auto made = wqe().eth({}, checksums, static_cast<std::uint16_t>(frames[0].size()));
    for (const auto& frame : frames) {
      made.pointer(EthernetHost::kKey, place(frame), static_cast<std::uint32_t>(frame.size()));
    }
    return as_multi_packet(made.finish());
  }
  void expect_error(WqeFault fault,
                    cqe_syndrome syndrome = cqe_syndrome::LOCAL_QP_OPERATION_ERROR) {
    const auto cqe = host.poll(cqn);
    ASSERT_FALSE(cqe.empty());
    const util::View<cqe_error> view(cqe);
    EXPECT_EQ(view.get(cqe_error::opcode), static_cast<unsigned>(cqe_opcode::REQUESTER_ERROR));
    EXPECT_EQ(view.get(cqe_error::syndrome), static_cast<unsigned>(syndrome));
    EXPECT_EQ(view.get(cqe_error::hw_error_syndrome), static_cast<unsigned>(fault));
  }

  EthernetHost host;
  std::uint32_t cqn = 0;
  std::uint32_t sqn = 0;
};

TEST_F(MultiPacketSend, OneWqeMakesAFrameOfEachPacketAndOneCqe) {
  const auto frames = make_frames(5, 200);
  host.post_send(sqn, send_of(frames));
  EXPECT_EQ(host.port.sent, frames);
  const auto cqe = host.poll(cqn);
  ASSERT_FALSE(cqe.empty());
  const util::View<cqe64_requester> view(cqe);
  EXPECT_EQ(view.get(cqe64_requester::opcode), 0u);
  EXPECT_EQ(view.get(cqe64_requester::wqe_counter), 0u);
  EXPECT_TRUE(host.poll(cqn).empty());
  // The SQ continues to work.
  host.post_send(sqn, send_of({frames[0]}));
  EXPECT_EQ(host.port.sent.size(), 6u);
  EXPECT_FALSE(host.poll(cqn).empty());
}

// "The MPSW contains a pointer to the packets."
TEST_F(MultiPacketSend, CutsWhatOnePointerHasIntoPacketsOfMss) {
  const auto frames = make_frames(3, 100);
  Bytes all;
  for (const auto& frame : frames) all.insert(all.end(), frame.begin(), frame.end());
  const auto mss = static_cast<std::uint16_t>(frames[0].size());
  all.resize(all.size() - 40);  // the last one may be shorter
  host.post_send(sqn, as_multi_packet(wqe()
                                          .eth({}, false, mss)
                                          .pointer(EthernetHost::kKey, place(all),
                                                   static_cast<unsigned>(all.size()))
                                          .finish()));
  ASSERT_EQ(host.port.sent.size(), 3u);
  EXPECT_EQ(host.port.sent[0], frames[0]);
  EXPECT_EQ(host.port.sent[1], frames[1]);
  EXPECT_EQ(host.port.sent[2].size(), frames[2].size() - 40);
  EXPECT_FALSE(host.poll(cqn).empty());
  EXPECT_TRUE(host.poll(cqn).empty());
}

TEST_F(MultiPacketSend, MakesTheChecksumsOfEachPacket) {
  auto frames = make_frames(3, 100);
  host.post_send(sqn, send_of(frames, true));
  for (std::size_t i = 0; i != frames.size(); ++i) {
    fix_checksums(frames[i], {.source_port = static_cast<std::uint16_t>(1000 + i),
                              .tcp_sequence = static_cast<std::uint32_t>(i),
                              .payload = 100});
  }
  EXPECT_EQ(host.port.sent, frames);
}

TEST_F(MultiPacketSend, SendsAsManyPacketsAsTheWqeHasSegments) {
  const auto frames = make_frames(61, 1446);  // each of 1500 bytes
  host.post_send(sqn, send_of(frames));
  EXPECT_EQ(host.port.sent, frames);
  EXPECT_FALSE(host.poll(cqn).empty());
  EXPECT_TRUE(host.poll(cqn).empty());
}

TEST_F(MultiPacketSend, WithoutASizeOfPacketsItIsRefused) {
  const auto frame = make_frame({});
  host.post_send(sqn, as_multi_packet(wqe()
                                          .eth({}, false, 0)
                                          .pointer(EthernetHost::kKey, place(frame),
                                                   static_cast<unsigned>(frame.size()))
                                          .finish()));
  expect_error(WqeFault::kMultiPacketWithoutMss);
  EXPECT_TRUE(host.port.sent.empty());
}

TEST_F(MultiPacketSend, WithInlineHeadersItIsRefused) {
  const auto frame = make_frame({});
  host.post_send(sqn, as_multi_packet(wqe()
                                          .eth(std::span(frame).first(18), false, 100)
                                          .pointer(EthernetHost::kKey, place(frame),
                                                   static_cast<unsigned>(frame.size()))
                                          .finish()));
  expect_error(WqeFault::kMultiPacketInline);
}

TEST_F(MultiPacketSend, EndsAtItsLongest) {
  host.post_send(
      sqn, as_multi_packet(
               wqe().eth({}, false, 1000).pointer(EthernetHost::kKey, 0, (1u << 20) + 1).finish()));
  expect_error(WqeFault::kMultiPacketTooLong, cqe_syndrome::LOCAL_LENGTH_ERROR);
  EXPECT_TRUE(host.port.sent.empty());
}

TEST_F(MultiPacketSend, AKeyThatDoesNotFitEndsItWhereItStands) {
  const auto frames = make_frames(2, 100);
  const auto size = static_cast<std::uint32_t>(frames[0].size());
  host.post_send(sqn, as_multi_packet(wqe()
                                          .eth({}, false, static_cast<std::uint16_t>(size))
                                          .pointer(EthernetHost::kKey, place(frames[0]), size)
                                          .pointer(0xBAD00, place(frames[1]), size)
                                          .finish()));
  EXPECT_EQ(host.port.sent.size(), 1u);
  expect_error(static_cast<WqeFault>(rdma::Reason::kKeyUnknown),
               cqe_syndrome::LOCAL_PROTECTION_ERROR);
}

// Without allow_multi_pkt_send_wqe in the SQ, the device ignores the modifier.
class WithoutMultiPacketSends : public MultiPacketSend {
 protected:
  WithoutMultiPacketSends() : MultiPacketSend(host_options(), false) {}
};

TEST_F(WithoutMultiPacketSends, AnSqTakesTheWqeForALargeSend) {
  host.post_send(sqn, send_of(make_frames(2, 100)));
  expect_error(WqeFault::kLsoNotTcpOrUdp);
}

class ConnectXWithoutMultiPacketSends : public MultiPacketSend {
 protected:
  ConnectXWithoutMultiPacketSends() : MultiPacketSend({}) {}
};

TEST_F(ConnectXWithoutMultiPacketSends, AnSqTakesTheWqeForALargeSend) {
  host.post_send(sqn, send_of(make_frames(2, 100)));
  expect_error(WqeFault::kLsoNotTcpOrUdp);
}

class MultiPacketSendOnASwitch : public MultiPacketSend {
 protected:
  static connectx::HostOptions on_switch() {
    auto options = host_options();
    options.on_switch = true;
    return options;
  }
  MultiPacketSendOnASwitch() : MultiPacketSend(on_switch()) {}
};

TEST_F(MultiPacketSendOnASwitch, ACaptureHasNFramesForOneCqe) {
  const auto path =
      std::filesystem::temp_directory_path() / ("mpsw-" + std::to_string(::getpid()) + ".pcapng");
  const auto frames = make_frames(7, 300);
  {
    auto capture = fabric::Capture::create(path, {}, [] { return std::uint64_t{0}; });
    ASSERT_TRUE(capture);
    host.network.set_tap(&(*capture)->add_tap());
    host.post_send(sqn, send_of(frames));
    host.network.set_tap(nullptr);
  }
  const auto packets = fabric::packets_of(fabric::content_of(path));
  std::filesystem::remove(path);
  ASSERT_EQ(packets.size(), frames.size());
  for (std::size_t i = 0; i != frames.size(); ++i) {
    const auto behind = std::span(frames[i]).subspan(14);
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(packets[i].text)), behind));
  }
  EXPECT_FALSE(host.poll(cqn).empty());
  EXPECT_TRUE(host.poll(cqn).empty());
}

}  // namespace
}  // namespace softhca::rsnic
