// The datagrams of joined hubs: a head, a body, and a tag that authenticates both. Numbers are
// big-endian.
//
//   head   magic (4), version (1), kind (1), whether the sender is the session's joiner (2),
//          fabric (8), sender (8), sequence (8), ack (8)
//   body   as the kind says
//   tag    BLAKE2b of all before, with the key of the session and direction; that of the fabric in
//          kHello, kChallenge and kRefuse
//
// A session begins so:
//
//   joiner -> listener   kHello      nonce, cookie of zeros
//   listener -> joiner   kChallenge  a cookie. The listener keeps nothing
//   joiner -> listener   kHello      the same nonce, the cookie
//   listener -> joiner   kWelcome    the listener's nonce: both ends know the keys of the session
//   joiner -> listener   any datagram of the session: the listener has the session from now on
//
// Every answer is shorter than the kHello that caused it.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "trunk/keys.h"

namespace softhca::trunk {

enum class Kind : std::uint8_t {
  kHello = 1,
  kChallenge,
  kWelcome,
  kRefuse,
  // In a session:
  kAck,      ///< nothing but the head's ack
  kMembers,  ///< the sender's processes: once a second, and when they change
  kFrames,   ///< whole frames
  kPiece,    ///< a part of a frame
  kProbe,    ///< zeros: whether the path carries datagrams of this size
  kProbed,   ///< the size of a kProbe that has arrived
  kGoodbye,
};

struct Head {
  Kind kind = Kind::kAck;
  bool from_joiner = false;
  std::uint64_t fabric = 0;
  std::uint64_t sender = 0;    ///< random number of the sending hub
  std::uint64_t sequence = 0;  ///< of the session and direction, from 1; 0 outside of sessions
  std::uint64_t ack = 0;       ///< highest sequence that the sender has received

  friend bool operator==(const Head&, const Head&) = default;
};
inline constexpr std::size_t kHeadSize = 40;
inline constexpr std::size_t kOverhead = kHeadSize + kTagSize;
/// The largest UDP payload that is sent: an Ethernet MTU of 9000.
inline constexpr std::size_t kDatagramMax = 8972;
/// Every path of IPv6 carries this (RFC 8200 5), and nearly every path of IPv4.
inline constexpr std::size_t kDatagramMin = 1232;

enum class Refusal : std::uint8_t {
  kKey = 1,  ///< the tag is wrong. The refusal's own tag is then wrong for the joiner, too
  kFabric,
  kSelf,     ///< a hub joins itself
  kNumbers,  ///< both hubs have processes of the same block of numbers
  kFull,     ///< no more hubs
};

/// Blocks of 256 numbers (hub/numbers.h).
using Blocks = std::bitset<256>;
/// Living processes, by block. An empty block is its hub's as well.
using Members = std::map<unsigned, std::bitset<256>>;

/// Body of kHello.
struct Hello {
  Nonce nonce{};
  Tag cookie{};
  Blocks blocks;  ///< of the joiner
};
inline constexpr std::size_t kHelloBody = 128;  ///< with zeros at the end

/// Body of kWelcome.
struct Welcome {
  Nonce joiner{};
  Nonce listener{};
  Blocks blocks;  ///< of the listener
};

/// A datagram under construction.
class Draft {
 public:
  void start(const Head& head);
  void clear() { size_ = 0; }
  /// Changes the head's ack.
  void set_ack(std::uint64_t ack);
  /// Appends `size` bytes of the body, for the caller to fill. @pre they fit into kDatagramMax
  std::span<std::byte> extend(std::size_t size);
  void put(std::span<const std::byte> bytes);
  void put_u8(std::uint8_t value);
  void put_u16(std::uint16_t value);
  void put_u32(std::uint32_t value);
  /// Appends zeros until the datagram has `size` bytes with its tag.
  void pad(std::size_t size);
  /// Bytes so far, with the tag to come.
  std::size_t size() const { return size_ + kTagSize; }
  bool has_body() const { return size_ > kHeadSize; }
  /// Appends the tag. The result is valid until the next start().
  std::span<const std::byte> seal(const Key& key);

 private:
  std::array<std::byte, kDatagramMax> bytes_;
  std::size_t size_ = 0;
};

/// Nothing: no datagram of this version.
std::optional<Head> parse_head(std::span<const std::byte> datagram);
/// @pre parse_head() has accepted it
std::span<const std::byte> body_of(std::span<const std::byte> datagram);
bool opens(std::span<const std::byte> datagram, const Key& key);

void put(Draft& draft, const Hello& hello);
void put(Draft& draft, const Welcome& welcome);
/// @pre members.size() <= kBlocksMax
void put(Draft& draft, const Members& members);
inline constexpr std::size_t kBlocksMax = 32;  ///< they fit into kDatagramMin

std::optional<Hello> parse_hello(std::span<const std::byte> body);
std::optional<Welcome> parse_welcome(std::span<const std::byte> body);
std::optional<Members> parse_members(std::span<const std::byte> body);

/// Body of kPiece: a part of frame `frame`, which has `total` bytes.
struct Piece {
  std::uint32_t frame = 0;
  std::uint32_t total = 0;
  std::uint32_t offset = 0;
  std::span<const std::byte> bytes;
};
inline constexpr std::size_t kPieceHead = 12;
inline constexpr std::size_t kFrameHead = 2;  ///< in kFrames, the length before each frame
std::optional<Piece> parse_piece(std::span<const std::byte> body);
/// Takes the next frame off the body of kFrames. Empty: there is none, or the rest is malformed.
std::span<const std::byte> next_frame(std::span<const std::byte>& body);

}  // namespace softhca::trunk
