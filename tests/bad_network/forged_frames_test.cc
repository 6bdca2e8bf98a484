// Forged packets: with one wrong part, a packet changes no byte of memory and completes no request.
// The tests also show that the same packet does both if nothing is wrong.
#include <array>
#include <functional>
#include <span>
#include <string>

#include "strangers.h"

namespace softhca::bad_network {
namespace {

using driver::verbs::QpType;
using wire::Opcode;

using Change = std::function<void(Forged&)>;

class ForgedFramesTest : public StrangersTest, public testing::WithParamInterface<Opcode> {
 protected:
  static QpType type_of(Opcode opcode) {
    return wire::info(opcode).service == wire::Service::UD ? QpType::kUd : QpType::kRc;
  }
  static bool has(wire::ExtHeader header) { return wire::info(GetParam()).has(header); }

  void SetUp() override {
    make(type_of(GetParam()));
    const auto before = all_memory();
    inject(genuine(GetParam()));
    ASSERT_NE(all_memory(), before) << "nothing is wrong";
  }
  /// To new QPs, because an invalid request ends a connection.
  void expect_harmless(const std::string& what, const Change& change) {
    make(type_of(GetParam()));
    auto forged = genuine(GetParam());
    change(forged);
    const auto before = all_memory();
    inject(forged);
    EXPECT_TRUE(all_memory() == before) << what;
    EXPECT_EQ(successes(), 0u) << what;
  }
  /// With each of the lowest bits of a number wrong.
  void expect_harmless_bits(const std::string& what, unsigned bits,
                            const std::function<void(Forged&, std::uint32_t)>& flip) {
    for (unsigned bit = 0; bit != bits; ++bit) {
      expect_harmless(what + " bit " + std::to_string(bit),
                      [&](Forged& forged) { flip(forged, std::uint32_t{1} << bit); });
    }
  }
};

std::string name_of(const testing::TestParamInfo<Opcode>& info) {
  return std::string(wire::info(info.param).name);
}

constexpr auto kOpcodes = std::array{
    Opcode::RC_SEND_ONLY, Opcode::RC_RDMA_WRITE_ONLY, Opcode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
    Opcode::RC_FETCH_ADD, Opcode::RC_CMP_SWAP,        Opcode::UD_SEND_ONLY};
const std::span<const Opcode> kAll = kOpcodes;

INSTANTIATE_TEST_SUITE_P(Opcodes, ForgedFramesTest, testing::ValuesIn(kOpcodes), name_of);

/// UD has no order.
class ForgedPsnTest : public ForgedFramesTest {};
INSTANTIATE_TEST_SUITE_P(Opcodes, ForgedPsnTest, testing::ValuesIn(kAll.first(5)), name_of);
/// A SEND names no key and no address.
class ForgedKeyTest : public ForgedFramesTest {};
INSTANTIATE_TEST_SUITE_P(Opcodes, ForgedKeyTest, testing::ValuesIn(kAll.subspan(1)), name_of);
class ForgedPlaceTest : public ForgedFramesTest {};
INSTANTIATE_TEST_SUITE_P(Opcodes, ForgedPlaceTest, testing::ValuesIn(kAll.subspan(1, 4)), name_of);
/// An atomic has no length.
class ForgedLengthTest : public ForgedFramesTest {};
INSTANTIATE_TEST_SUITE_P(Opcodes, ForgedLengthTest, testing::ValuesIn(kAll.subspan(1, 2)), name_of);

TEST_P(ForgedFramesTest, AWrongQpn) {
  expect_harmless_bits("QPN", 24, [](Forged& forged, std::uint32_t bit) {
    forged.bth.dest_qp = wire::Qpn(forged.bth.dest_qp.value() ^ bit);
  });
}

TEST_P(ForgedPsnTest, AWrongPsn) {
  const auto add = [](std::uint32_t more) {
    return [more](Forged& forged) {
      forged.bth.psn = wire::Psn((forged.bth.psn.value() + more) & 0xffffff);
    };
  };
  for (unsigned bit = 0; bit != 24; ++bit) {
    expect_harmless("later PSN " + std::to_string(bit), add(std::uint32_t{1} << bit));
    expect_harmless("earlier PSN " + std::to_string(bit), add(-(std::uint32_t{1} << bit)));
  }
}

TEST_P(ForgedKeyTest, AWrongKey) {
  if (has(wire::ExtHeader::kReth)) {
    expect_harmless_bits("R_Key", 32, [](Forged& forged, std::uint32_t bit) {
      forged.ext.reth.rkey = wire::RKey(forged.ext.reth.rkey.value() ^ bit);
    });
  } else if (has(wire::ExtHeader::kAtomicEth)) {
    expect_harmless_bits("R_Key", 32, [](Forged& forged, std::uint32_t bit) {
      forged.ext.atomic.rkey = wire::RKey(forged.ext.atomic.rkey.value() ^ bit);
    });
  } else {
    expect_harmless_bits("Q_Key", 32, [](Forged& forged, std::uint32_t bit) {
      forged.ext.deth.qkey = wire::QKey(forged.ext.deth.qkey.value() ^ bit);
    });
  }
}

TEST_P(ForgedPlaceTest, AnAddressOutsideOfTheRegion) {
  const std::uint64_t offsets[] = {
      -8ull, -64ull, End::kMemory, End::kMemory - 7, 0x8000'0000'0000'0000, -0x1000ull, 1ull << 32};
  for (const auto offset : offsets) {
    expect_harmless("offset " + std::to_string(offset), [&](Forged& forged) {
      forged.ext.reth.virtual_address += offset;
      forged.ext.atomic.virtual_address += offset;
    });
  }
  for (const std::uint64_t address : {0ull, ~0ull, ~0ull - 63}) {
    expect_harmless("address " + std::to_string(address), [&](Forged& forged) {
      forged.ext.reth.virtual_address = address;
      forged.ext.atomic.virtual_address = address;
    });
  }
}

TEST_P(ForgedLengthTest, ALengthThatIsNotThatOfThePayload) {
  for (const std::uint32_t length : {0u, 1u, 63u, 65u, 4096u, 0x8000'0000u, 0xffff'ffffu}) {
    expect_harmless("length " + std::to_string(length),
                    [&](Forged& forged) { forged.ext.reth.dma_length = length; });
  }
}

// IBTA 10.9.3: the highest bit is not part of the number.
TEST_P(ForgedFramesTest, AWrongPkey) {
  expect_harmless_bits("P_Key", 15, [](Forged& forged, std::uint32_t bit) {
    forged.bth.pkey = static_cast<std::uint16_t>(forged.bth.pkey ^ bit);
  });
}

// IBTA 9.6.1.5: a connected QP takes packets of its peer only.
TEST_P(ForgedFramesTest, AWrongAddress) {
  const auto flip = [](wire::Gid& gid, unsigned bit) {
    gid.bytes[12 + bit / 8] ^= std::byte{1} << bit % 8;
  };
  for (unsigned bit = 0; bit != 32; ++bit) {
    expect_harmless("destination bit " + std::to_string(bit),
                    [&](Forged& forged) { flip(forged.address.destination_gid, bit); });
    if (type_of(GetParam()) == QpType::kUd) continue;
    expect_harmless("source bit " + std::to_string(bit),
                    [&](Forged& forged) { flip(forged.address.source_gid, bit); });
  }
}

TEST_P(ForgedFramesTest, AnOpcodeOfAnotherService) {
  for (const auto opcode : {Opcode::UC_SEND_ONLY, Opcode::UC_RDMA_WRITE_ONLY, Opcode::UD_SEND_ONLY,
                            Opcode::RC_SEND_ONLY, Opcode::XRC_FETCH_ADD}) {
    if (wire::info(opcode).service == wire::info(GetParam()).service) continue;
    expect_harmless(std::string(wire::info(opcode).name),
                    [&](Forged& forged) { forged.bth.opcode = opcode; });
  }
}

// Each bit that the ICRC covers (IBTA Annex A17 17.3.3), and each of the ICRC itself. A packet with
// a wrong one is dropped, so that the QP stays as it is.
TEST_P(ForgedFramesTest, AWrongBitAnywhere) {
  make(type_of(GetParam()));
  const auto forged = genuine(GetParam());
  const auto bytes = forged.bytes();
  const auto before = all_memory();
  constexpr std::size_t kIp = 14, kUdp = kIp + 20, kBth = kUdp + 8;
  const auto is_masked = [](std::size_t at) {
    return at == kUdp + 6 || at == kUdp + 7 || at == kBth + 4;  // UDP checksum, FECN and BECN
  };
  for (std::size_t at = kIp; at != bytes.size(); ++at) {
    // The IP header has a checksum of its own.
    if (is_masked(at)) continue;
    for (unsigned bit = 0; bit != 8; ++bit) {
      auto wrong = bytes;
      wrong[at] ^= std::byte{1} << bit;
      inject(std::move(wrong));
      ASSERT_TRUE(all_memory() == before) << "byte " << at << ", bit " << bit;
    }
  }
  EXPECT_EQ(successes(), 0u);
  inject(forged);
  EXPECT_FALSE(all_memory() == before) << "the QP would have taken it";
}

TEST_P(ForgedFramesTest, APacketThatIsCutOrTooLong) {
  make(type_of(GetParam()));
  const auto forged = genuine(GetParam());
  const auto bytes = forged.bytes();
  const auto before = all_memory();
  for (std::size_t size = 0; size != bytes.size(); ++size) {
    inject({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)});
    ASSERT_TRUE(all_memory() == before) << size << " bytes";
  }
  EXPECT_EQ(successes(), 0u);
  inject(forged);
  EXPECT_FALSE(all_memory() == before) << "the QP would have taken it";
}

// A READ of a stranger: the responses go to the peer, who did not ask, and drops them.
TEST_F(StrangersTest, AReadOfAStrangerReachesNobody) {
  make(QpType::kRc);
  auto forged = genuine(Opcode::RC_RDMA_READ_REQUEST);
  forged.payload.clear();
  const auto before = all_memory();
  inject(forged);
  EXPECT_TRUE(all_memory() == before);
  EXPECT_EQ(successes(), 0u);
}

/// An answer, and a request that it completes.
struct Answer {
  Opcode opcode;
  driver::SendOpcode request;
  std::uint32_t length;
  bool returns_data;
};
constexpr std::array kAnswers{
    Answer{Opcode::RC_ACKNOWLEDGE, driver::SendOpcode::kRdmaWrite, 64, false},
    Answer{Opcode::RC_RDMA_READ_RESPONSE_ONLY, driver::SendOpcode::kRdmaRead, 64, true},
    Answer{Opcode::RC_ATOMIC_ACKNOWLEDGE, driver::SendOpcode::kFetchAdd, 8, true}};

class ForgedAnswersTest : public StrangersTest, public testing::WithParamInterface<Answer> {
 protected:
  /// Makes a request under way, whose answers are lost.
  void SetUp() override {
    make(QpType::kRc);
    fleet_.faults().add(fabric::parse_fault("port=" + fleet_.port_name(1) + ",do=lose").value());
    const auto piece = a_->region.piece(1024, GetParam().length);
    ASSERT_EQ(a_->qp.post_send({.opcode = GetParam().request,
                                .pieces = {&piece, 1},
                                .remote_address = b_->region.address(),
                                .rkey = b_->region.rkey(),
                                .swap_or_add = 1}),
              driver::PostStatus::kOk);
    run();
  }
  /// The answer that completes it.
  Forged right() const {
    auto forged = genuine(GetParam().opcode);
    std::swap(forged.address.source_gid, forged.address.destination_gid);
    std::swap(forged.address.source_mac, forged.address.destination_mac);
    forged.bth.dest_qp = wire::Qpn(a_->qp.number());
    forged.ext.aeth = wire::Aeth::ack(wire::Msn(1));
    if (GetParam().opcode != Opcode::RC_RDMA_READ_RESPONSE_ONLY) forged.payload.clear();
    return forged;
  }
  void expect_harmless(const std::string& what, const Change& change) {
    auto forged = right();
    change(forged);
    const auto before = all_memory();
    inject(forged);
    EXPECT_TRUE(all_memory() == before) << what;
    EXPECT_EQ(successes(), 0u) << what;
  }
};
INSTANTIATE_TEST_SUITE_P(Answers, ForgedAnswersTest, testing::ValuesIn(kAnswers),
                         [](const auto& one) {
                           return std::string(wire::info(one.param.opcode).name);
                         });

// Last comes the right answer, so that each of the others could have been it.
TEST_P(ForgedAnswersTest, OnlyTheRightOneCompletesTheRequest) {
  for (unsigned bit = 0; bit != 24; ++bit) {
    expect_harmless("PSN bit " + std::to_string(bit), [&](Forged& forged) {
      forged.bth.psn = wire::Psn((forged.bth.psn.value() ^ 1u << bit));
    });
    expect_harmless("QPN bit " + std::to_string(bit), [&](Forged& forged) {
      forged.bth.dest_qp = wire::Qpn(a_->qp.number() ^ (1u << bit));
    });
  }
  for (unsigned bit = 0; bit != 32; ++bit) {
    expect_harmless("source bit " + std::to_string(bit), [&](Forged& forged) {
      forged.address.source_gid.bytes[12 + bit / 8] ^= std::byte{1} << bit % 8;
    });
  }
  const auto before = all_memory();
  inject(right());
  EXPECT_EQ(successes(), 1u);
  EXPECT_EQ(all_memory() != before, GetParam().returns_data);
}

}  // namespace
}  // namespace softhca::bad_network
