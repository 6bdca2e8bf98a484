#include "trunk/datagram.h"

#include <algorithm>
#include <cassert>

#include "util/endian.h"

namespace softhca::trunk {
namespace {

constexpr std::uint32_t kMagic = 0x5348'5452;  // "SHTR"
constexpr std::uint8_t kVersion = 1;

/// Offsets in the head.
enum : std::size_t {
  kMagicAt = 0,
  kVersionAt = 4,
  kKindAt = 5,
  kSideAt = 6,
  kFabricAt = 8,
  kSenderAt = 16,
  kSequenceAt = 24,
  kAckAt = 32,
};

constexpr std::size_t kSetBytes = 32;
constexpr std::size_t kMembersEntry = 1 + kSetBytes;
static_assert(kOverhead + 1 + kBlocksMax * kMembersEntry <= kDatagramMin);
constexpr std::size_t kWelcomeBody = 2 * sizeof(Nonce) + kSetBytes;
static_assert(kWelcomeBody < kHelloBody);

/// A set of 256 as bytes, of which the least significant bit of the first is number 0.
void put_set(Draft& draft, const std::bitset<256>& set) {
  const auto bytes = draft.extend(kSetBytes);
  std::ranges::fill(bytes, std::byte{0});
  for (std::size_t i = 0; i != set.size(); ++i) {
    if (set[i]) bytes[i / 8] |= static_cast<std::byte>(1u << i % 8);
  }
}

std::bitset<256> parse_set(std::span<const std::byte> bytes) {
  std::bitset<256> set;
  for (std::size_t i = 0; i != set.size(); ++i) {
    set[i] = (bytes[i / 8] & static_cast<std::byte>(1u << i % 8)) != std::byte{0};
  }
  return set;
}

template <std::size_t N>
std::array<std::byte, N> take(std::span<const std::byte>& bytes) {
  std::array<std::byte, N> taken;
  std::ranges::copy(bytes.first(N), taken.begin());
  bytes = bytes.subspan(N);
  return taken;
}

}  // namespace

void Draft::start(const Head& head) {
  auto* const at = bytes_.data();
  util::store_be32(at + kMagicAt, kMagic);
  at[kVersionAt] = std::byte{kVersion};
  at[kKindAt] = static_cast<std::byte>(head.kind);
  util::store_be16(at + kSideAt, head.from_joiner ? 1 : 0);
  util::store_be64(at + kFabricAt, head.fabric);
  util::store_be64(at + kSenderAt, head.sender);
  util::store_be64(at + kSequenceAt, head.sequence);
  util::store_be64(at + kAckAt, head.ack);
  size_ = kHeadSize;
}

void Draft::set_ack(std::uint64_t ack) { util::store_be64(bytes_.data() + kAckAt, ack); }

std::span<std::byte> Draft::extend(std::size_t size) {
  assert(size_ + size + kTagSize <= kDatagramMax);
  const std::span room(bytes_.data() + size_, size);
  size_ += size;
  return room;
}

void Draft::put(std::span<const std::byte> bytes) {
  std::ranges::copy(bytes, extend(bytes.size()).begin());
}
void Draft::put_u8(std::uint8_t value) { extend(1)[0] = std::byte{value}; }
void Draft::put_u16(std::uint16_t value) { util::store_be16(extend(sizeof value).data(), value); }
void Draft::put_u32(std::uint32_t value) { util::store_be32(extend(sizeof value).data(), value); }

void Draft::pad(std::size_t size) {
  if (this->size() < size) std::ranges::fill(extend(size - this->size()), std::byte{0});
}

std::span<const std::byte> Draft::seal(const Key& key) {
  const auto tag = tag_of(key, std::span(bytes_.data(), size_));
  std::ranges::copy(tag, bytes_.begin() + static_cast<std::ptrdiff_t>(size_));
  return {bytes_.data(), size_ + kTagSize};
}

std::optional<Head> parse_head(std::span<const std::byte> datagram) {
  if (datagram.size() < kOverhead || datagram.size() > kDatagramMax) return std::nullopt;
  const auto* const at = datagram.data();
  if (util::load_be32(at + kMagicAt) != kMagic || at[kVersionAt] != std::byte{kVersion}) {
    return std::nullopt;
  }
  const auto kind = static_cast<Kind>(at[kKindAt]);
  const auto side = util::load_be16(at + kSideAt);
  if (kind < Kind::kHello || kind > Kind::kGoodbye || side > 1) return std::nullopt;
  return Head{.kind = kind,
              .from_joiner = side == 1,
              .fabric = util::load_be64(at + kFabricAt),
              .sender = util::load_be64(at + kSenderAt),
              .sequence = util::load_be64(at + kSequenceAt),
              .ack = util::load_be64(at + kAckAt)};
}

std::span<const std::byte> body_of(std::span<const std::byte> datagram) {
  return datagram.subspan(kHeadSize, datagram.size() - kOverhead);
}

bool opens(std::span<const std::byte> datagram, const Key& key) {
  if (datagram.size() < kOverhead) return false;
  const auto signed_part = datagram.first(datagram.size() - kTagSize);
  return is_tag(key, signed_part, datagram.last(kTagSize));
}

void put(Draft& draft, const Hello& hello) {
  draft.put(hello.nonce);
  draft.put(hello.cookie);
  put_set(draft, hello.blocks);
  draft.pad(kOverhead + kHelloBody);
}

void put(Draft& draft, const Welcome& welcome) {
  draft.put(welcome.joiner);
  draft.put(welcome.listener);
  put_set(draft, welcome.blocks);
}

void put(Draft& draft, const Members& members) {
  assert(members.size() <= kBlocksMax);
  draft.put_u8(static_cast<std::uint8_t>(members.size()));
  for (const auto& [block, set] : members) {
    draft.put_u8(static_cast<std::uint8_t>(block));
    put_set(draft, set);
  }
}

std::optional<Hello> parse_hello(std::span<const std::byte> body) {
  if (body.size() != kHelloBody) return std::nullopt;
  Hello hello;
  hello.nonce = take<sizeof(Nonce)>(body);
  hello.cookie = take<kTagSize>(body);
  hello.blocks = parse_set(body);
  return hello;
}

std::optional<Welcome> parse_welcome(std::span<const std::byte> body) {
  if (body.size() != kWelcomeBody) return std::nullopt;
  Welcome welcome;
  welcome.joiner = take<sizeof(Nonce)>(body);
  welcome.listener = take<sizeof(Nonce)>(body);
  welcome.blocks = parse_set(body);
  return welcome;
}

std::optional<Members> parse_members(std::span<const std::byte> body) {
  if (body.empty()) return std::nullopt;
  const auto count = static_cast<std::size_t>(body[0]);
  if (count > kBlocksMax || body.size() < 1 + count * kMembersEntry) return std::nullopt;
  Members members;
  for (std::size_t i = 0; i != count; ++i) {
    const auto entry = body.subspan(1 + i * kMembersEntry, kMembersEntry);
    members[static_cast<unsigned>(entry[0])] = parse_set(entry.subspan(1));
  }
  return members;
}

std::optional<Piece> parse_piece(std::span<const std::byte> body) {
  if (body.size() <= kPieceHead) return std::nullopt;
  Piece piece{.frame = util::load_be32(body.data()),
              .total = util::load_be32(body.data() + 4),
              .offset = util::load_be32(body.data() + 8),
              .bytes = body.subspan(kPieceHead)};
  if (piece.offset > piece.total || piece.bytes.size() > piece.total - piece.offset) {
    return std::nullopt;
  }
  return piece;
}

std::span<const std::byte> next_frame(std::span<const std::byte>& body) {
  if (body.size() < kFrameHead) return {};
  const auto size = util::load_be16(body.data());
  if (size > body.size() - kFrameHead) return {};
  const auto frame = body.subspan(kFrameHead, size);
  body = body.subspan(kFrameHead + size);
  return frame;
}

}  // namespace softhca::trunk
