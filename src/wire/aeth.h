// The ACK extended transport header: acknowledgements, read and atomic responses (IBTA 9.3.5).
#pragma once

#include "util/field.h"
#include "wire/serial24.h"

namespace softhca::wire {

struct AethLayout {
  static constexpr std::size_t kSize = 4;
  template <unsigned Hi, unsigned Lo>
  using Bits = util::Field<AethLayout, util::ByteOrder::kBig, 0, Hi, Lo>;
  static constexpr Bits<31, 24> syndrome{};
  static constexpr Bits<30, 29> kind{};
  static constexpr Bits<28, 24> value{};
  static constexpr Bits<23, 0> msn{};
};

/// IBTA 9.7.5.1.1 Table 45: syndrome bits 6:5.
enum class AethKind : std::uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };

/// IBTA 9.7.5.1.1 Table 46: syndrome bits 4:0 of a NAK.
enum class NakCode : std::uint8_t {
  kPsnSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccessError = 2,
  kRemoteOperationalError = 3,
  kInvalidRdRequest = 4,
};

struct Aeth {
  /// IBTA 9.7.7.2.3: the credit count of a responder that gives no end-to-end credits.
  static constexpr std::uint8_t kCreditsInvalid = 0x1f;

  AethKind kind = AethKind::kAck;
  /// Credit code of an ACK, timer code of an RNR NAK, NakCode of a NAK; 5 bits.
  std::uint8_t value = kCreditsInvalid;
  Msn msn;

  static Aeth ack(Msn msn, std::uint8_t credits = kCreditsInvalid) {
    return {AethKind::kAck, credits, msn};
  }
  static Aeth rnr_nak(Msn msn, std::uint8_t timer) { return {AethKind::kRnrNak, timer, msn}; }
  static Aeth nak(Msn msn, NakCode code) {
    return {AethKind::kNak, static_cast<std::uint8_t>(code), msn};
  }
  /// @pre kind == AethKind::kNak
  NakCode nak_code() const { return NakCode(value); }

  static Aeth parse(util::View<AethLayout> view) {
    return {AethKind(view.get(AethLayout::kind)),
            static_cast<std::uint8_t>(view.get(AethLayout::value)), Msn(view.get(AethLayout::msn))};
  }
  void emit(util::MutableView<AethLayout> out) const {
    out.set(AethLayout::syndrome, 0);
    out.set(AethLayout::kind, static_cast<std::uint32_t>(kind));
    out.set(AethLayout::value, value);
    out.set(AethLayout::msn, msn.value());
  }
  friend bool operator==(const Aeth&, const Aeth&) = default;
};

}  // namespace softhca::wire
