// The states of a queue pair, and MODIFY QP as a table: the transitions, their services, and the
// attributes that each requires or permits.
//
// IBTA 10.3.1 and 11.2.4.2 Tables 90 to 92; JingZhao tables A1-1 to A1-3 say the same in their own
// words (they mark MAX_QP_RD_ATOMIC and MAX_DEST_RD_ATOMIC as unused). XRC: IBTA Annex A14. DC:
// mlx5 driver interface 7.4; its path comes with each request, so no transition sets one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "spec/infiniband/services.h"

namespace softhca::spec::infiniband {

enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqError, kSqDrain, kError };
inline constexpr std::size_t kQpStates = 7;

constexpr std::string_view to_string(QpState state) {
  constexpr std::array<std::string_view, kQpStates> kNames = {"RESET", "INIT", "RTR", "RTS",
                                                              "SQE",   "SQD",  "ERR"};
  return kNames[static_cast<std::size_t>(state)];
}

/// The attributes of MODIFY QP, by their bit in an attribute mask (the verbs' numbers; JingZhao
/// table A1-3). STATE is part of every transition, so no list contains it.
enum class QpAttribute : std::uint8_t {
  kState = 0,
  kCurrentState = 1,
  kSqDrainNotify = 2,
  kAccessFlags = 3,
  kPkeyIndex = 4,
  kPort = 5,
  kQkey = 6,
  kAddressVector = 7,
  kPathMtu = 8,
  kTimeout = 9,
  kRetryCount = 10,
  kRnrRetry = 11,
  kRqPsn = 12,
  kMaxRdAtomic = 13,  ///< READs and atomics in flight as requester
  kAlternatePath = 14,
  kMinRnrTimer = 15,
  kSqPsn = 16,
  kMaxDestRdAtomic = 17,  ///< READs and atomics in flight as responder
  kPathMigrationState = 18,
  kCapacity = 19,
  kDestinationQpn = 20,
};
inline constexpr std::size_t kQpAttributes = 21;

/// A set of attributes; `bits()` is the verbs' attribute mask.
class QpAttributeSet {
 public:
  constexpr QpAttributeSet() = default;
  constexpr QpAttributeSet(std::initializer_list<QpAttribute> attributes) {
    for (const auto attribute : attributes) bits_ |= bit(attribute);
  }
  /// Converts a mask; unknown bits are dropped.
  static constexpr QpAttributeSet from_bits(std::uint32_t bits) {
    QpAttributeSet set;
    set.bits_ = bits & ((1u << kQpAttributes) - 1);
    return set;
  }
  static constexpr QpAttributeSet all() { return from_bits(UINT32_MAX); }

  constexpr std::uint32_t bits() const { return bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(QpAttribute attribute) const { return (bits_ & bit(attribute)) != 0; }
  constexpr bool covers(QpAttributeSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr QpAttributeSet operator|(QpAttributeSet other) const {
    return from_bits(bits_ | other.bits_);
  }
  constexpr QpAttributeSet operator&(QpAttributeSet other) const {
    return from_bits(bits_ & other.bits_);
  }
  friend constexpr bool operator==(QpAttributeSet, QpAttributeSet) = default;

 private:
  static constexpr std::uint32_t bit(QpAttribute attribute) {
    return 1u << static_cast<unsigned>(attribute);
  }
  std::uint32_t bits_ = 0;
};

/// A legal transition of MODIFY QP.
struct QpTransition {
  QpState from;
  QpState to;
  QpTypes types;
  QpAttributeSet required = {};
  QpAttributeSet optional = {};

  /// The attributes to apply from a command that marks `given` as present; required ones always
  /// count.
  constexpr QpAttributeSet taken(QpAttributeSet given) const {
    return required | (optional & given);
  }
};

/// All transitions, by ascending `from` and `to`. For one pair of states each type has one row.
std::span<const QpTransition> qp_transition_table();
/// Null if a QP of this type may not make this transition.
const QpTransition* find_transition(QpType type, QpState from, QpState to);

/// The activities of a QP in a state (IBTA 10.3.1).
struct QpStateRules {
  QpState state;
  bool sends = false;     ///< starts send requests
  bool finishes = false;  ///< retransmits and takes responses for begun requests
  bool receives = false;  ///< takes requests and responds to them
  bool flushes_send = false;
  bool flushes_receive = false;
};

inline constexpr std::array<QpStateRules, kQpStates> kQpStateRules{{
    {.state = QpState::kReset},
    {.state = QpState::kInit},
    {.state = QpState::kRtr, .receives = true},
    {.state = QpState::kRts, .sends = true, .finishes = true, .receives = true},
    {.state = QpState::kSqError, .receives = true, .flushes_send = true},
    {.state = QpState::kSqDrain, .finishes = true, .receives = true},
    {.state = QpState::kError, .flushes_send = true, .flushes_receive = true},
}};

constexpr const QpStateRules& state_rules(QpState state) {
  return kQpStateRules[static_cast<std::size_t>(state)];
}

}  // namespace softhca::spec::infiniband
