// The ACK extended transport header: acknowledgements, read and atomic responses (IBTA 9.3.5).
#pragma once

#include "spec/infiniband/constants.h"
#include "spec/infiniband/transport.h"
#include "wire/serial24.h"

namespace softhca::wire {

using AethLayout = spec::infiniband::aeth;

using AethType = spec::infiniband::aeth_type;
using NakCode = spec::infiniband::nak_code;

struct Aeth {
  static constexpr std::uint8_t kCreditsInvalid = spec::infiniband::kCreditCountInvalid;

  /// A packet from the wire may hold the reserved value 2.
  AethType type = AethType::ACK;
  /// Credit code of an ACK, timer code of an RNR NAK, NakCode of a NAK; 5 bits.
  std::uint8_t value = kCreditsInvalid;
  Msn msn;

  static Aeth ack(Msn msn, std::uint8_t credits = kCreditsInvalid) {
    return {AethType::ACK, credits, msn};
  }
  static Aeth rnr_nak(Msn msn, std::uint8_t timer) { return {AethType::RNR_NAK, timer, msn}; }
  static Aeth nak(Msn msn, NakCode code) {
    return {AethType::NAK, static_cast<std::uint8_t>(code), msn};
  }
  /// @pre type == AethType::NAK
  NakCode nak_code() const { return NakCode(value); }

  static Aeth parse(util::View<AethLayout> view) {
    return {AethType(view.get(AethLayout::type)),
            static_cast<std::uint8_t>(view.get(AethLayout::value)), Msn(view.get(AethLayout::msn))};
  }
  void emit(util::MutableView<AethLayout> out) const {
    std::memset(out.bytes().data(), 0, AethLayout::kSize);
    out.set(AethLayout::type, static_cast<std::uint32_t>(type));
    out.set(AethLayout::value, value);
    out.set(AethLayout::msn, msn.value());
  }
  friend bool operator==(const Aeth&, const Aeth&) = default;
};

}  // namespace softhca::wire
