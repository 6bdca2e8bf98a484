// Signature keys: blocks followed by protection information, in memory, on the wire, or both
// (mlx5dv_wr_set_mkey_sig_block(3)).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "rdma/memory_key.h"
#include "rdma/scatter_gather.h"
#include "util/endian.h"

namespace softhca::rdma::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint16_t kApp = 0xABCD;
constexpr std::uint32_t kRef = 0x01234567;
constexpr std::uint32_t kMemoryPsv = 1;
constexpr std::uint32_t kWirePsv = 2;

class KeyValues : public SignatureValues {
 public:
  const Value* find_value(std::uint32_t number) const override {
    const auto found = values.find(number);
    return found == values.end() ? nullptr : &found->second;
  }
  std::map<std::uint32_t, Value> values;
};

BlockFormat dif(std::uint32_t psv, std::uint32_t block = 512) {
  BlockFormat format;
  format.block = block;
  format.guard = Guard::kCrcT10Dif;
  format.value = psv;
  format.refresh = true;
  format.app_tag = kApp;
  format.ref_tag = kRef;
  format.ref_tag_counts = true;
  return format;
}

SignatureRules on_wire(const BlockFormat& wire, std::uint8_t check_mask = 0xFF) {
  return {.memory = {}, .wire = wire, .check_mask = check_mask};
}
SignatureRules in_memory_only(const BlockFormat& memory, std::uint8_t check_mask = 0xFF) {
  return {.memory = memory, .wire = {}, .check_mask = check_mask};
}

/// A key over one page list of memory, and a signature key whose only piece is that key.
class SignatureKeyTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kSize = 64 * 1024;
  static constexpr std::uint64_t kStart = 0x5000;
  static constexpr MKey kReserved{0x300};
  static constexpr KeyUser kUser{Pd(3), Qpn(9), false, true};

  SignatureKeyTest() : memory_(kSize), keys_(dma_, KeyShape(8, 24), kReserved) {
    EXPECT_TRUE(dma_.map(0x10000, kSize, memory_.data(), pcie::DmaAccess::kReadWrite));
    keys_.set_signature_values(&values_);
    keys_.signature_errors().reserve();
    values_.values[kMemoryPsv] = values_.values[kWirePsv] = {.pd = Pd(3)};
    MemoryKey::Attributes plain;
    plain.key = MKey(0x100);
    plain.pd = Pd(3);
    plain.access = kEveryAccess;
    plain.start = 0x10000;
    plain.length = kSize;
    keys_.insert(plain);
    std::mt19937 random(1);
    data_.resize(16 * 512);
    for (auto& byte : data_) byte = std::byte(random());
  }

  MemoryKey& sign(const SignatureRules& rules, std::uint64_t length) {
    MemoryKey::Attributes attributes;
    attributes.key = MKey(0x200);
    attributes.pd = Pd(3);
    attributes.access = kEveryAccess;
    attributes.start = kStart;
    attributes.length = length;
    attributes.indirect = {{0x10000, static_cast<std::uint32_t>(length), MKey(0x100)}};
    auto key = std::make_unique<MemoryKey>(attributes);
    key->make_signable();
    key->signature()->set(rules);
    key->signature()->enable(true);
    key->refresh();
    keys_.erase_index(2);
    return keys_.insert(std::move(key));
  }
  /// data_, with the protection information after each block.
  Bytes protect(const BlockFormat& format) const {
    Bytes all;
    for (std::size_t block = 0; block != data_.size() / format.block; ++block) {
      const auto data = std::span(data_).subspan(block * format.block, format.block);
      all.insert(all.end(), data.begin(), data.end());
      const auto seed = format.seed_ones ? guard_ones(format.guard) : 0;
      const auto guard = guard_value(format.guard, add_to_guard(format.guard, seed, data, 0));
      std::array<std::byte, 8> behind{};
      if (format.has_tags()) {
        util::store_be16(behind.data(), static_cast<std::uint16_t>(guard));
        util::store_be16(behind.data() + 2, format.app_tag);
        util::store_be32(behind.data() + 4,
                         format.ref_tag + (format.ref_tag_counts ? std::uint32_t(block) : 0));
      } else {
        util::store_le32(behind.data(), guard);
      }
      all.insert(all.end(), behind.begin(), behind.begin() + format.protection());
    }
    return all;
  }
  void store(const Bytes& bytes) { std::ranges::copy(bytes, memory_.begin()); }
  Bytes stored(std::size_t size) const { return {memory_.begin(), memory_.begin() + size}; }
  Bytes read(MemoryKey& key, std::uint64_t offset, std::size_t size) {
    Bytes out(size);
    (void)keys_.read(key, kStart + offset, out);
    return out;
  }

  pcie::DmaSpace dma_;
  Bytes memory_;
  KeyValues values_;
  KeyTable keys_;
  Bytes data_;
};

// "transmit it to the wire while generating an additional T10DIF field every 4K of data."
TEST_F(SignatureKeyTest, SignaturesAreGeneratedForTheWire) {
  store(data_);
  for (const std::uint32_t block : {512u, 4096u}) {
    auto& key = sign(on_wire(dif(kWirePsv, block)), data_.size());
    const auto wire = protect(dif(kWirePsv, block));
    EXPECT_EQ(read(key, 0, wire.size()), wire);
  }
  EXPECT_THAT(keys_.signature_errors().pending(), ::testing::IsEmpty());
}

// A retransmission may begin anywhere, even inside the protection information of a block.
TEST_F(SignatureKeyTest, AnyPartOfTheWireIsWhatItIsInTheWhole) {
  const SignatureRules cases[] = {
      on_wire(dif(kWirePsv)),
      in_memory_only(dif(kMemoryPsv)),
      {.memory = dif(kMemoryPsv),
       .wire = dif(kWirePsv),
       .check_mask = 0xFF,
       .same_structure = true,
       .copy_mask = 0xFF},
      {.memory = dif(kMemoryPsv), .wire = dif(kWirePsv, 4096), .check_mask = 0xFF},
  };
  for (const auto& rules : cases) {
    const auto in_memory = rules.memory.exists() ? protect(rules.memory) : data_;
    const auto on_wire = rules.wire.exists() ? protect(rules.wire) : data_;
    store(in_memory);
    auto& key = sign(rules, in_memory.size());
    std::mt19937 random(7);
    for (int round = 0; round != 300; ++round) {
      const auto offset = random() % on_wire.size();
      const auto size = std::min<std::size_t>(on_wire.size() - offset, random() % 3000);
      const Bytes part(on_wire.begin() + offset, on_wire.begin() + offset + size);
      ASSERT_TRUE(keys_.check(key.key(), kUser, kStart + offset, size, kRemoteRead));
      ASSERT_EQ(read(key, offset, size), part) << offset;
    }
    EXPECT_THAT(keys_.signature_errors().pending(), ::testing::IsEmpty());
  }
}

// "validate each T10DIF field against the previous 4K of data, strip the T10DIF field, and scatter
// the data alone".
TEST_F(SignatureKeyTest, SignaturesFromTheWireAreCheckedAndStripped) {
  auto& key = sign(on_wire(dif(kWirePsv)), data_.size());
  const auto wire = protect(dif(kWirePsv));
  ASSERT_TRUE(keys_.write(key, kStart, wire));
  EXPECT_EQ(stored(data_.size()), data_);
  EXPECT_EQ(memory_[data_.size()], std::byte{0}) << "and nothing behind it";
}

TEST_F(SignatureKeyTest, HoweverTheMessageIsCutMemoryIsTheSame) {
  const SignatureRules rules{.memory = dif(kMemoryPsv),
                             .wire = dif(kWirePsv),
                             .check_mask = 0xFF,
                             .same_structure = true,
                             .copy_mask = 0x3F};
  const auto wire = protect(dif(kWirePsv));
  for (const std::size_t cut : {1u, 7u, 256u, 513u, 1024u, 4096u}) {
    std::ranges::fill(memory_, std::byte{0});
    auto& key = sign(rules, wire.size());
    for (std::size_t at = 0; at < wire.size(); at += cut) {
      const auto part = std::span(wire).subspan(at, std::min(cut, wire.size() - at));
      ASSERT_TRUE(keys_.write(key, kStart + at, part));
    }
    EXPECT_EQ(stored(wire.size()), wire) << cut;
    EXPECT_THAT(keys_.signature_errors().pending(), ::testing::IsEmpty());
  }
}

// "generating and scattering additional CRC32 field after every 512 bytes that are scattered."
TEST_F(SignatureKeyTest, SignaturesAreGeneratedForMemory) {
  auto crc = dif(kMemoryPsv);
  crc.guard = Guard::kCrc32;
  crc.seed_ones = true;
  values_.values[kMemoryPsv].crc = 0xFFFFFFFF;
  const auto in_memory = protect(crc);
  EXPECT_EQ(in_memory.size(), data_.size() / 512 * 516);
  auto& key = sign(in_memory_only(crc), in_memory.size());
  ASSERT_TRUE(keys_.write(key, kStart, data_));
  EXPECT_EQ(stored(in_memory.size()), in_memory);
  EXPECT_EQ(read(key, 0, data_.size()), data_);
}

/// Byte in the third block.
struct Wrong {
  std::size_t byte;
  SignaturePart part;
};

class WrongBlock : public SignatureKeyTest, public ::testing::WithParamInterface<Wrong> {};

TEST_P(WrongBlock, IsReportedOnceWithWhatIsWrongAndMovesAllTheSame) {
  for (const bool reads : {true, false}) {
    auto all = protect(dif(kMemoryPsv));
    const auto good = util::load_be32(&all[2 * 520 + 512]);
    all[2 * 520 + GetParam().byte] ^= std::byte{1};
    all[3 * 520 + GetParam().byte] ^= std::byte{1};
    const bool in_data = GetParam().byte < 512;
    auto changed = data_;
    if (in_data) changed[2 * 512 + GetParam().byte] = all[2 * 520 + GetParam().byte];
    if (in_data) changed[3 * 512 + GetParam().byte] = all[3 * 520 + GetParam().byte];
    const auto rules = reads ? in_memory_only(dif(kMemoryPsv)) : on_wire(dif(kWirePsv));
    auto& key = sign(rules, reads ? all.size() : data_.size());
    if (reads) {
      store(all);
      EXPECT_EQ(read(key, 0, data_.size()), changed);
    } else {
      EXPECT_FALSE(keys_.write(key, kStart, all));
      EXPECT_EQ(stored(data_.size()), changed);
    }
    EXPECT_EQ(keys_.fault(), Reason::kSignatureMismatch);
    ASSERT_EQ(keys_.signature_errors().pending().size(), 1u);
    const auto& error = keys_.signature_errors().pending()[0];
    EXPECT_EQ(error.key, key.key());
    EXPECT_EQ(error.side, reads ? SignatureSide::kMemory : SignatureSide::kWire);
    EXPECT_EQ(error.part, GetParam().part);
    EXPECT_EQ(error.offset, 2u * 520);
    // The value computed from the data, or the one stored after them.
    EXPECT_EQ(in_data ? error.expected : error.actual, good);
    keys_.signature_errors().clear();
    // No further error is reported until the driver acknowledges this one.
    (void)read(key, 0, data_.size());
    EXPECT_THAT(keys_.signature_errors().pending(), ::testing::IsEmpty());
    if (!reads) continue;
    key.signature()->arm();
    (void)read(key, 0, data_.size());
    EXPECT_EQ(keys_.signature_errors().pending().size(), 1u);
    keys_.signature_errors().clear();
  }
}

INSTANTIATE_TEST_SUITE_P(SignatureKeys, WrongBlock,
                         ::testing::Values(Wrong{100, SignaturePart::kGuard},
                                           Wrong{513, SignaturePart::kGuard},
                                           Wrong{515, SignaturePart::kAppTag},
                                           Wrong{519, SignaturePart::kRefTag}));

TEST_F(SignatureKeyTest, BytesWithoutTheirBitInTheCheckMaskAreNotChecked) {
  for (std::size_t byte = 0; byte != 8; ++byte) {
    auto all = protect(dif(kMemoryPsv));
    all[512 + byte] ^= std::byte{0x10};
    store(all);
    const auto bit = static_cast<std::uint8_t>(0x80 >> byte);
    for (const bool checks : {false, true}) {
      auto& key =
          sign(in_memory_only(dif(kMemoryPsv), static_cast<std::uint8_t>(checks ? bit : ~bit)),
               all.size());
      (void)read(key, 0, data_.size());
      EXPECT_EQ(keys_.signature_errors().pending().size(), checks ? 1u : 0u) << byte;
      keys_.signature_errors().clear();
    }
  }
}

TEST_F(SignatureKeyTest, BitsOfTheApplicationTagBeyondItsMaskAreNotChecked) {
  auto all = protect(dif(kMemoryPsv));
  all[514] ^= std::byte{0x10};
  store(all);
  auto format = dif(kMemoryPsv);
  format.app_mask = 0x0FFF;
  (void)read(sign(in_memory_only(format), all.size()), 0, data_.size());
  EXPECT_THAT(keys_.signature_errors().pending(), ::testing::IsEmpty());
  format.app_mask = 0x1FFF;
  (void)read(sign(in_memory_only(format), all.size()), 0, data_.size());
  EXPECT_EQ(keys_.signature_errors().pending().size(), 1u);
}

// mlx5dv: "Do not check block guard if application tag is 0xFFFF", or only if the reference tag is
// all ones, too.
TEST_F(SignatureKeyTest, BlocksWhoseTagsEscapeAreNotChecked) {
  using Escape = BlockFormat::Escape;
  for (const bool ref : {false, true}) {
    auto all = protect(dif(kMemoryPsv));
    all[3] ^= std::byte{1};
    all[514] = all[515] = std::byte{0xFF};
    if (ref) std::fill_n(&all[516], 4, std::byte{0xFF});
    store(all);
    for (const auto escape : {Escape::kNone, Escape::kAppTag, Escape::kAppAndRefTag}) {
      auto format = dif(kMemoryPsv);
      format.escape = escape;
      (void)read(sign(in_memory_only(format), all.size()), 0, data_.size());
      const bool escapes = escape == Escape::kAppTag || (escape == Escape::kAppAndRefTag && ref);
      EXPECT_EQ(keys_.signature_errors().pending().size(), escapes ? 0u : 1u);
      keys_.signature_errors().clear();
    }
  }
}

// "If corresponding bit in copy_mask is set, byte of the signature field is copied from the input
// domain to the output domain."
TEST_F(SignatureKeyTest, BytesOfTheCopyMaskAreCopiedAndTheOthersGenerated) {
  auto memory = dif(kMemoryPsv);
  memory.guard = Guard::kIpChecksum;
  memory.ref_tag = 77;
  const auto in_memory = protect(memory);
  const SignatureRules rules{.memory = memory,
                             .wire = dif(kWirePsv),
                             .check_mask = 0xFF,
                             .same_structure = true,
                             .copy_mask = 0x0F};
  auto expected = protect(dif(kWirePsv));
  for (std::size_t at = 516; at < expected.size(); at += 520) {
    std::copy_n(&in_memory[at], 4, &expected[at]);
  }
  store(in_memory);
  auto& key = sign(rules, in_memory.size());
  EXPECT_EQ(read(key, 0, expected.size()), expected);
  EXPECT_THAT(keys_.signature_errors().pending(), ::testing::IsEmpty());
  // In the opposite direction, memory gets the wire's reference tag.
  const auto wire = protect(dif(kWirePsv));
  ASSERT_TRUE(keys_.write(key, kStart, wire));
  EXPECT_EQ(util::load_be32(&memory_[516]), kRef);
  EXPECT_EQ(util::load_be16(&memory_[512]), util::load_be16(&in_memory[512]));
}

// The SET_PSV value is the seed of the first block; later blocks use the format's seed.
TEST_F(SignatureKeyTest, TheFirstBlockBeginsWithThePsvsGuardAndOthersWithTheFormats) {
  auto ones = dif(kWirePsv);
  ones.seed_ones = true;
  values_.values[kWirePsv].guard = 0xFFFF;
  store(data_);
  const auto wire = protect(ones);
  EXPECT_EQ(read(sign(on_wire(ones), data_.size()), 0, wire.size()), wire);
  values_.values[kWirePsv].guard = 0;
  const auto got = read(sign(on_wire(ones), data_.size()), 0, wire.size());
  EXPECT_NE(util::load_be16(&got[512]), util::load_be16(&wire[512]));
  EXPECT_EQ(util::load_be16(&got[1032]), util::load_be16(&wire[1032]));
}

TEST_F(SignatureKeyTest, WithoutRefreshTheTagsAreThePsvs) {
  auto format = dif(kWirePsv);
  format.refresh = false;
  values_.values[kWirePsv].app_tag = 0x1111;
  values_.values[kWirePsv].ref_tag = 500;
  store(data_);
  const auto got = read(sign(on_wire(format), data_.size()), 0, 2 * 520);
  EXPECT_EQ(util::load_be16(&got[514]), 0x1111);
  EXPECT_EQ(util::load_be32(&got[1036]), 501u);
}

// A key's length is that of its memory, and its addresses are those on the wire.
TEST_F(SignatureKeyTest, ItsRangeEndsWhereItsMemoryDoes) {
  const auto key = sign(on_wire(dif(kWirePsv)), 1024).key();
  EXPECT_TRUE(keys_.check(key, kUser, kStart, 1040, kLocalRead));
  EXPECT_EQ(keys_.check(key, kUser, kStart, 1041, kLocalRead).reason, Reason::kKeyRange);
  EXPECT_EQ(keys_.check(key, kUser, kStart - 1, 1, kLocalRead).reason, Reason::kKeyRange);
  EXPECT_EQ(keys_.check(key, kUser, kStart, UINT64_MAX, kLocalRead).reason, Reason::kKeyRange);
  const auto stripped = sign(in_memory_only(dif(kMemoryPsv)), 1040).key();
  EXPECT_TRUE(keys_.check(stripped, kUser, kStart, 1024, kLocalRead));
  EXPECT_EQ(keys_.check(stripped, kUser, kStart, 1025, kLocalRead).reason, Reason::kKeyRange);
}

TEST_F(SignatureKeyTest, AtomicsAndUsersThatMayNotSignAreRefused) {
  const auto key = sign(on_wire(dif(kWirePsv)), 1024).key();
  EXPECT_EQ(keys_.check(key, kUser, kStart, 8, kRemoteAtomic).reason, Reason::kKeySigned);
  KeyUser other = kUser;
  other.may_sign = false;
  EXPECT_EQ(keys_.check(key, other, kStart, 8, kLocalRead).reason, Reason::kKeySigned);
}

TEST_F(SignatureKeyTest, WithoutItsPsvItGivesNoAccess) {
  auto& key = sign(on_wire(dif(kWirePsv)), 1024);
  store(data_);
  values_.values.erase(kWirePsv);
  Bytes out(100);
  EXPECT_FALSE(keys_.read(key, kStart, out));
  EXPECT_EQ(keys_.fault(), Reason::kSignatureValueGone);
}

// mlx5_ib puts the reserved LKey into the list of a key with contiguous data.
TEST_F(SignatureKeyTest, PiecesMayHaveTheReservedLkeyOfAKeyThatAllowsIt) {
  store(data_);
  auto& key = sign(on_wire(dif(kWirePsv)), 512);
  KeyPieces pieces;
  pieces.add({0x10000, 512, kReserved});
  key.load_pieces(std::move(pieces), {});
  key.refresh();
  Bytes out(512);
  EXPECT_FALSE(keys_.read(key, kStart, out));
  EXPECT_EQ(keys_.fault(), Reason::kReservedKeyForbidden);
  key.allow_reserved_pieces(true);
  EXPECT_TRUE(keys_.read(key, kStart, out));
  EXPECT_TRUE(std::ranges::equal(out, std::span(data_).first(512)));
}

// A packet that faults on a missing page is received again.
TEST_F(SignatureKeyTest, AWriteThatFailsInTheMiddleCanBeRepeated) {
  auto& key = sign(on_wire(dif(kWirePsv)), data_.size());
  auto wire = protect(dif(kWirePsv));
  wire[3] ^= std::byte{1};
  const auto first = std::span(wire).first(516);
  ASSERT_TRUE(keys_.write(key, kStart, first));
  auto& plain = *keys_.find(MKey(0x100));
  plain.set_free(true);
  EXPECT_FALSE(keys_.write(key, kStart + 516, std::span(wire).subspan(516)));
  EXPECT_EQ(keys_.fault(), Reason::kKeyInvalidated);
  EXPECT_THAT(keys_.signature_errors().pending(), ::testing::IsEmpty());
  plain.set_free(false);
  EXPECT_FALSE(keys_.write(key, kStart + 516, std::span(wire).subspan(516)));
  EXPECT_EQ(keys_.signature_errors().pending().size(), 1u)
      << "the guard of which four bytes had come";
}

}  // namespace
}  // namespace softhca::rdma::test
