// Data in CQEs (mlx5 driver interface 7.2: cs_req, cs_res; PRM Table 68: cqe_format): software
// finds short data in the CQE, and its buffers are unchanged.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "connectx/qp/data_path.h"

namespace softhca::connectx {
namespace {

using test::HostCqe;
using test::HostQp;
using test::kKey;
using test::QpOptions;
using test::RdmaDataPath;
using test::RdmaTestHost;
using test::Syndrome;
using CqeCode = test::CqeOpcode;
using Format = spec::connectx::cqe_format;
using WqeOpcode = spec::connectx::wqe_opcode;
using CsRequester = spec::connectx::qp_cs_req;
using CsResponder = spec::connectx::qp_cs_res;

constexpr unsigned code(CsRequester value) { return static_cast<unsigned>(value); }
constexpr unsigned code(CsResponder value) { return static_cast<unsigned>(value); }

Format format(const HostCqe& cqe) {
  return static_cast<Format>(spec::connectx::cqe64::cqe_format.read(cqe.bytes.data()));
}
std::string text(const Cqe& bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()), size};
}
/// A text of `size` bytes with a long period.
std::string pattern(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i != size; ++i) text.push_back(static_cast<char>('!' + i));
  return text;
}

class DataInCqes : public RdmaDataPath {
 protected:
  QpOptions both(unsigned stride) {
    cq_ = host_.create_cq(6, stride);
    const bool wide = stride == 128;
    return {.cqn = cq_.cqn,
            .cs_req = code(wide ? CsRequester::UP_TO_64B : CsRequester::UP_TO_32B),
            .cs_res = code(wide ? CsResponder::UP_TO_64B : CsResponder::UP_TO_32B)};
  }
  /// The CQEs of requester and responder after a SEND of `size` bytes into a zeroed buffer.
  void send_text(HostQp& a, HostQp& b, std::size_t size, std::uint32_t room = 64) {
    const auto from = host_.put_text(pattern(size) + " ");
    to_ = host_.allocate(128, 64);
    host_.post_receive(b, to_, room);
    send(a, wqe(a, WqeOpcode::SEND).data(from, static_cast<std::uint32_t>(size), kKey));
    host_.run();
    cqes_ = host_.poll_all(cq_);
  }
  const HostCqe& cqe_of(CqeCode opcode) {
    for (const auto& cqe : cqes_) {
      if (cqe.opcode == opcode) return cqe;
    }
    ADD_FAILURE() << "no such CQE";
    return cqes_.at(0);
  }
  bool is_untouched(pcie::Iova buffer, std::size_t size = 64) {
    const std::vector<std::byte> zeros(size);
    return std::memcmp(host_.at(buffer), zeros.data(), size) == 0;
  }

  HostCq cq_;
  std::vector<HostCqe> cqes_;
  pcie::Iova to_ = 0;
};

TEST_F(DataInCqes, AShortSendStandsInTheFirst32BytesOfTheCqe) {
  auto [a, b] = host_.connected(both(64));
  for (const std::size_t size : {1u, 24u, 32u}) {
    send_text(a, b, size);
    ASSERT_EQ(cqes_.size(), 2u);
    const auto& cqe = cqe_of(CqeCode::RESPONDER_SEND);
    EXPECT_EQ(format(cqe), Format::INLINE_32);
    EXPECT_EQ(cqe.byte_count, size);
    EXPECT_EQ(cqe.qpn, b.qpn);
    EXPECT_EQ(text(cqe.bytes, size), pattern(size));
    EXPECT_TRUE(is_untouched(to_));
    EXPECT_EQ(format(cqe_of(CqeCode::REQUESTER)), Format::NO_INLINE);
  }
}

TEST_F(DataInCqes, ALongerSendStandsInItsBuffer) {
  auto [a, b] = host_.connected(both(64));
  send_text(a, b, 33);
  ASSERT_EQ(cqes_.size(), 2u);
  EXPECT_EQ(format(cqe_of(CqeCode::RESPONDER_SEND)), Format::NO_INLINE);
  EXPECT_EQ(host_.text(to_, 33), pattern(33));
}

TEST_F(DataInCqes, AnEmptySendHasNoData) {
  auto [a, b] = host_.connected(both(64));
  host_.post_receive(b, host_.allocate(64, 64), 64);
  send(a, wqe(a, WqeOpcode::SEND));
  host_.run();
  cqes_ = host_.poll_all(cq_);
  EXPECT_EQ(format(cqe_of(CqeCode::RESPONDER_SEND)), Format::NO_INLINE);
}

TEST_F(DataInCqes, ACqeOf128BytesHasRoomFor64InFrontOfIt) {
  auto [a, b] = host_.connected(both(128));
  for (const std::size_t size : {1u, 33u, 64u}) {
    send_text(a, b, size);
    ASSERT_EQ(cqes_.size(), 2u);
    const auto& cqe = cqe_of(CqeCode::RESPONDER_SEND);
    EXPECT_EQ(format(cqe), Format::INLINE_64);
    EXPECT_EQ(cqe.byte_count, size);
    EXPECT_EQ(text(cqe.in_front, size), pattern(size));
    EXPECT_TRUE(is_untouched(to_));
  }
  send_text(a, b, 65, 128);
  EXPECT_EQ(format(cqe_of(CqeCode::RESPONDER_SEND)), Format::NO_INLINE);
  EXPECT_EQ(host_.text(to_, 65), pattern(65));
}

TEST_F(DataInCqes, ARequestFor64BytesInA64ByteCqeGets32) {
  auto options = both(64);
  options.cs_res = code(CsResponder::UP_TO_64B);
  auto [a, b] = host_.connected(options);
  send_text(a, b, 32);
  EXPECT_EQ(format(cqe_of(CqeCode::RESPONDER_SEND)), Format::INLINE_32);
  send_text(a, b, 33);
  EXPECT_EQ(format(cqe_of(CqeCode::RESPONDER_SEND)), Format::NO_INLINE);
}

TEST_F(DataInCqes, WithoutARequestDataAreInTheBuffers) {
  auto options = both(64);
  options.cs_req = options.cs_res = 0;
  auto [a, b] = host_.connected(options);
  send_text(a, b, 8);
  EXPECT_EQ(format(cqe_of(CqeCode::RESPONDER_SEND)), Format::NO_INLINE);
  EXPECT_EQ(host_.text(to_, 8), pattern(8));
}

TEST_F(DataInCqes, ASendThatHasNoRoomInItsBufferIsRefusedAsEver) {
  auto [a, b] = host_.connected(both(64));
  send_text(a, b, 9, 8);
  const auto& cqe = cqe_of(CqeCode::RESPONDER_ERROR);
  EXPECT_EQ(cqe.syndrome, Syndrome::LOCAL_LENGTH_ERROR);
}

TEST_F(DataInCqes, ImmediateDataStandBesideThem) {
  auto [a, b] = host_.connected(both(64));
  host_.post_receive(b, host_.allocate(64, 64), 64);
  send(a, wqe(a, WqeOpcode::SEND_IMM).immediate(0xCAFE).inline_data("twelve bytes"));
  host_.run();
  cqes_ = host_.poll_all(cq_);
  const auto& cqe = cqe_of(CqeCode::RESPONDER_SEND_WITH_IMMEDIATE);
  EXPECT_EQ(cqe.immediate, 0xCAFEu);
  EXPECT_EQ(text(cqe.bytes, 12), "twelve bytes");
}

TEST_F(DataInCqes, UnreliableConnectionsHaveDataInCqes) {
  auto options = both(64);
  options.service = test::Service::UC;
  auto [a, b] = host_.connected(options);
  send_text(a, b, 20);
  EXPECT_EQ(text(cqe_of(CqeCode::RESPONDER_SEND).bytes, 20), pattern(20));
}

TEST_F(DataInCqes, AWriteWithImmediateDataGoesToItsPlace) {
  auto [a, b] = host_.connected(both(64));
  host_.post_receive(b, host_.allocate(64, 64), 64);
  const auto target = host_.allocate(64, 64);
  send(a, wqe(a, WqeOpcode::RDMA_WRITE_IMM).remote(target, kKey).inline_data("placed"));
  host_.run();
  cqes_ = host_.poll_all(cq_);
  EXPECT_EQ(format(cqe_of(CqeCode::RESPONDER_RDMA_WRITE_WITH_IMMEDIATE)), Format::NO_INLINE);
  EXPECT_EQ(host_.text(target, 6), "placed");
}

TEST_F(DataInCqes, AShortReadBringsThem) {
  for (const unsigned stride : {64u, 128u}) {
    auto [a, b] = host_.connected(both(stride));
    const std::uint32_t size = stride == 64 ? 32 : 64;
    const auto from = host_.put_text(pattern(80));
    const auto to = host_.allocate(128, 64);
    send(a, wqe(a, WqeOpcode::RDMA_READ).remote(from, kKey).data(to, size, kKey));
    send(a, wqe(a, WqeOpcode::RDMA_READ).remote(from, kKey).data(to + 64, size + 1, kKey));
    host_.run();
    cqes_ = host_.poll_all(cq_);
    ASSERT_EQ(cqes_.size(), 2u);
    EXPECT_EQ(format(cqes_[0]), stride == 64 ? Format::INLINE_32 : Format::INLINE_64);
    EXPECT_EQ(text(stride == 64 ? cqes_[0].bytes : cqes_[0].in_front, size), pattern(size));
    EXPECT_EQ(cqes_[0].byte_count, size);
    EXPECT_TRUE(is_untouched(to, size));
    EXPECT_EQ(format(cqes_[1]), Format::NO_INLINE);
    EXPECT_EQ(host_.text(to + 64, size + 1), pattern(size + 1));
  }
}

TEST_F(DataInCqes, AReadWithoutCqePutsThemIntoMemory) {
  auto [a, b] = host_.connected(both(64));
  const auto from = host_.put_text("unsignaled");
  const auto to = host_.allocate(64, 64);
  send(a, wqe(a, WqeOpcode::RDMA_READ).unsignaled().remote(from, kKey).data(to, 10, kKey));
  host_.run();
  EXPECT_TRUE(host_.poll_all(cq_).empty());
  EXPECT_EQ(host_.text(to, 10), "unsignaled");
}

TEST_F(DataInCqes, AnAtomicPutsWhatStoodThereIntoMemory) {
  auto [a, b] = host_.connected(both(64));
  const auto remote = host_.allocate(64, 64);
  const auto to = host_.allocate(64, 64);
  std::uint64_t value = 40;
  std::memcpy(host_.at(remote), &value, 8);
  send(a, wqe(a, WqeOpcode::ATOMIC_FA).remote(remote, kKey).atomic(2, 0).data(to, 8, kKey));
  host_.run();
  cqes_ = host_.poll_all(cq_);
  ASSERT_EQ(cqes_.size(), 1u);
  EXPECT_EQ(format(cqes_[0]), Format::NO_INLINE);
  std::memcpy(&value, host_.at(to), 8);
  EXPECT_EQ(value, 40u);
  std::memcpy(&value, host_.at(remote), 8);
  EXPECT_EQ(value, 42u);
}

TEST_F(DataInCqes, ACqeThatBringsThemOverrunsAsOthersDo) {
  cq_ = host_.create_cq(1, 128);
  auto [a, b] = host_.connected({.cqn = cq_.cqn, .cs_res = code(CsResponder::UP_TO_64B)});
  for (int i = 0; i != 3; ++i) {
    host_.post_receive(b, host_.allocate(64, 64), 64);
    send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data("x"));
  }
  host_.run();
  EXPECT_EQ(host_.poll_all(cq_).size(), 2u);
  EXPECT_EQ(host_.query_state(b), state(spec::connectx::qp_state::ERR));
}

TEST_F(DataInCqes, UnknownSizesAreRefused) {
  const auto create = [&](unsigned cs_req, unsigned cs_res) {
    auto qp = host_.allocate_qp({.cs_req = cs_req, .cs_res = cs_res});
    return host_.call<spec::connectx::create_qp_out, spec::connectx::create_qp_in>(
        test::Opcode::CREATE_QP, [&](auto in) { host_.fill_create(in, qp); },
        FakeHost::page_list(qp.ring, 8192));
  };
  EXPECT_TRUE(create(0x11, 0x1));
  EXPECT_TRUE(create(0x22, 0x2));
  EXPECT_FALSE(create(0x12, 0x1));
  EXPECT_FALSE(create(0x11, 0x3));
}

}  // namespace
}  // namespace softhca::connectx
