// Signature keys: blocks of data with protection behind each, in memory and on the wire. What a
// block has on one side is checked, taken away, passed on or made anew for the other.
//
// Addresses of such a key are those of the wire: its bytes are the blocks with the protection that
// they have there. All follows from the address, so that what is sent again, or begun in the
// middle, is as it was; what is under way is kept only to be quick.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/guard.h"
#include "rdma/types.h"

namespace softhca::rdma {

/// Where a device keeps the values that signatures begin with: the protection signature values
/// (PSV) that work requests set.
class SignatureValues {
 public:
  struct Value {
    Pd pd;
    std::uint32_t crc = 0;    ///< seed of the first block's guard, where that is all
    std::uint16_t guard = 0;  ///< the same with tags
    std::uint16_t app_tag = 0;
    std::uint32_t ref_tag = 0;
  };
  virtual ~SignatureValues() = default;
  /// Null if there is none.
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

  std::uint32_t block = 0;  ///< bytes of data; 0: nothing is protected
  Guard guard = Guard::kCrcT10Dif;
  std::uint32_t value = 0;  ///< number of the PSV
  bool seed_ones = false;   ///< of the blocks after the first
  // T10-DIF.
  bool refresh = false;  ///< the tags are those below, and not the PSV's
  std::uint16_t app_tag = 0;
  std::uint32_t ref_tag = 0;
  bool ref_tag_counts = false;  ///< one more with each block
  Escape escape = Escape::kNone;
  std::uint16_t app_mask = 0xFFFF;  ///< bits that are checked

  bool exists() const { return block != 0; }
  bool has_tags() const { return guard != Guard::kCrc32; }
  std::uint32_t protection() const { return has_tags() ? 8 : 4; }
  /// Bytes from one block to the next.
  std::uint64_t stride() const { return std::uint64_t{block} + protection(); }
  /// What stands behind block `number` if its guard's sum is `sum`.
  Protection make(const SignatureValues::Value& start, std::uint64_t number,
                  std::uint32_t sum) const;
  /// Whether what stands there says that it is not to be checked.
  bool escapes(const Protection& found) const;
};

enum class SignatureSide : std::uint8_t { kWire, kMemory };
enum class SignaturePart : std::uint8_t { kGuard, kAppTag, kRefTag };

/// A block whose protection is not what it should be.
struct SignatureError {
  MKey key;
  SignatureSide side = SignatureSide::kWire;
  SignaturePart part = SignaturePart::kGuard;
  std::uint64_t offset = 0;    ///< of the block, with the protection of those before
  std::uint32_t expected = 0;  ///< guard and application tag: what stands behind the block
  std::uint32_t expected_ref_tag = 0;
  std::uint32_t actual = 0;  ///< and what its data, and the key, say
  std::uint32_t actual_ref_tag = 0;
};

struct SignatureRules {
  BlockFormat memory{};
  BlockFormat wire{};
  /// A bit for each byte of the protection, the first byte the highest.
  std::uint8_t check_mask = 0;
  bool same_structure = false;  ///< and these are passed on as they are
  std::uint8_t copy_mask = 0;
};

/// A place between the bytes of a signature key.
struct SignaturePlace {
  std::uint64_t data;        ///< bytes of data before it
  std::uint32_t protection;  ///< of the wire's protection of the block that ends there
  bool behind_block;         ///< it is in that, or right in front of it
};

/// What a signature key has besides its pieces.
class BlockSignature {
 public:
  bool exists() const { return exists_; }
  const SignatureRules& rules() const { return rules_; }
  /// Whether there are rules, from now or before.
  bool known() const { return known_; }
  void set(const SignatureRules& rules) {
    rules_ = rules;
    known_ = true;
    forget_progress();
  }
  /// Whether they are kept to. @pre known(), or not `enabled`
  void enable(bool enabled) { exists_ = enabled; }
  /// The next error is told. Only the first is, until the driver says that it has heard of it.
  void arm() { armed_ = true; }
  bool armed() const { return armed_; }
  void disarm() { armed_ = false; }

  SignaturePlace place(std::uint64_t wire_offset) const;
  /// Offset in memory of the data, behind the protection of all blocks before.
  std::uint64_t memory_offset(std::uint64_t data) const;
  /// Bytes of memory that [0, end) of the wire needs.
  std::uint64_t memory_end(std::uint64_t wire_end) const {
    return memory_offset(place(wire_end).data);
  }

  /// How far the last access has come: where the next one goes on, mostly.
  struct Progress {
    std::uint64_t next = UINT64_MAX;  ///< offset on the wire
    bool reads = false;
    std::uint32_t memory_sum = 0;  ///< of the block under way
    std::uint32_t wire_sum = 0;
    Protection wire{};  ///< to be sent, or as far as it has come
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
