// Signature keys: data in blocks with protection behind each, in memory and on the wire. The
// protection on one side is checked, stripped, passed on or generated for the other.
//
// Addresses of such a key are wire offsets: blocks with their wire protection. Everything follows
// from the address, so a retransmission, or an access that starts in the middle, yields the same
// bytes. Progress is kept for speed only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/guard.h"
#include "rdma/types.h"

namespace softhca::rdma {

/// The device's store of initial values of signatures: the protection signature values (PSV), which
/// work requests set.
class SignatureValues {
 public:
  struct Value {
    Pd pd;
    std::uint32_t crc = 0;    ///< seed of the first block's guard, in formats without tags
    std::uint16_t guard = 0;  ///< seed of the first block's guard, in formats with tags
    std::uint16_t app_tag = 0;
    std::uint32_t ref_tag = 0;
  };
  virtual ~SignatureValues() = default;
  /// Null if no PSV has this number.
  virtual const Value* find_value(std::uint32_t number) const = 0;
};

/// The bytes behind a block: a guard alone, or guard, application tag and reference tag.
struct Protection {
  static constexpr std::size_t kMax = 8;
  std::array<std::byte, kMax> bytes{};
};

/// How one side protects its blocks.
struct BlockFormat {
  enum class Escape : std::uint8_t { kNone, kAppTag, kAppAndRefTag };

  std::uint32_t block = 0;  ///< data bytes of a block; 0: no protection
  Guard guard = Guard::kCrcT10Dif;
  std::uint32_t value = 0;  ///< number of the PSV
  bool seed_ones = false;   ///< seed of all blocks but the first: all ones instead of 0
  // T10-DIF.
  bool refresh = false;  ///< take the tags from below, not from the PSV
  std::uint16_t app_tag = 0;
  std::uint32_t ref_tag = 0;
  bool ref_tag_counts = false;  ///< increments with each block
  Escape escape = Escape::kNone;
  std::uint16_t app_mask = 0xFFFF;  ///< bits to check

  bool exists() const { return block != 0; }
  bool has_tags() const { return guard != Guard::kCrc32; }
  std::uint32_t protection() const { return has_tags() ? 8 : 4; }
  /// Bytes from one block to the next, with protection.
  std::uint64_t stride() const { return std::uint64_t{block} + protection(); }
  /// The protection of block `number`. `sum`: the running checksum of its data.
  Protection make(const SignatureValues::Value& start, std::uint64_t number,
                  std::uint32_t sum) const;
  /// True if this protection says that it is not to be checked.
  bool escapes(const Protection& found) const;
};

enum class SignatureSide : std::uint8_t { kWire, kMemory };
enum class SignaturePart : std::uint8_t { kGuard, kAppTag, kRefTag };

/// A block with wrong protection.
struct SignatureError {
  MKey key;
  SignatureSide side = SignatureSide::kWire;
  SignaturePart part = SignaturePart::kGuard;
  std::uint64_t offset = 0;    ///< offset of the block, counting the protection of earlier blocks
  std::uint32_t expected = 0;  ///< guard and application tag found behind the block
  std::uint32_t expected_ref_tag = 0;
  std::uint32_t actual = 0;  ///< guard and application tag computed from its data and the key
  std::uint32_t actual_ref_tag = 0;
};

struct SignatureRules {
  BlockFormat memory{};
  BlockFormat wire{};
  /// One bit for each byte of the protection; the top bit is the first byte.
  std::uint8_t check_mask = 0;
  bool same_structure = false;  ///< both sides have the same format; bytes in copy_mask are passed
                                ///< on
  std::uint8_t copy_mask = 0;
};

/// A position in the wire bytes of a signature key.
struct SignaturePlace {
  std::uint64_t data;        ///< data bytes before it
  std::uint32_t protection;  ///< protection bytes before it, of the block that ends here
  bool behind_block;         ///< inside the wire protection of a block, or right before it
};

/// The signature state of a key, besides its pieces.
class BlockSignature {
 public:
  bool exists() const { return exists_; }
  const SignatureRules& rules() const { return rules_; }
  /// True if rules were ever set.
  bool known() const { return known_; }
  void set(const SignatureRules& rules) {
    rules_ = rules;
    known_ = true;
    forget_progress();
  }
  /// Turns the rules on or off. @pre known(), or not `enabled`
  void enable(bool enabled) { exists_ = enabled; }
  /// Reports the next error. After one report no other follows until the driver re-arms.
  void arm() { armed_ = true; }
  bool armed() const { return armed_; }
  void disarm() { armed_ = false; }

  SignaturePlace place(std::uint64_t wire_offset) const;
  /// Memory offset of a data byte, counting the protection of all earlier blocks.
  std::uint64_t memory_offset(std::uint64_t data) const;
  /// Memory bytes that wire bytes [0, end) need.
  std::uint64_t memory_end(std::uint64_t wire_end) const {
    return memory_offset(place(wire_end).data);
  }

  /// State after the last access, for the next one to continue from.
  struct Progress {
    std::uint64_t next = UINT64_MAX;  ///< wire offset of the next access
    bool reads = false;
    std::uint32_t memory_sum = 0;  ///< memory_sum and wire_sum: checksums of the partial block
    std::uint32_t wire_sum = 0;
    Protection wire{};  ///< wire protection to send, or as much as has arrived
  };
  Progress progress;
  void forget_progress() { progress = {}; }

 private:
  SignatureRules rules_;
  bool known_ = false;
  bool exists_ = false;
  bool armed_ = true;
};

}  // namespace softhca::rdma
