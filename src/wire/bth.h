// The base transport header, which every packet has (IBTA 9.2).
#pragma once

#include <array>
#include <cstring>

#include "spec/infiniband/constants.h"
#include "spec/infiniband/transport.h"
#include "wire/ids.h"
#include "wire/opcode.h"
#include "wire/serial24.h"

namespace softhca::wire {

using BthLayout = spec::infiniband::bth;
/// The byte with FECN, BECN and Resv8a, which the ICRC masks (IBTA Annex A17 17.3.3).
inline constexpr util::Field<BthLayout, util::ByteOrder::kBig, 4, 31, 24> kBthResv8a{};

using BthView = util::View<BthLayout>;

struct Bth {
  Opcode opcode{};
  bool solicited_event = false;
  bool mig_req = false;
  std::uint8_t pad_count = 0;  ///< bytes, 0 to 3
  std::uint8_t tver = 0;       ///< transport header version, 0
  std::uint16_t pkey = spec::infiniband::kDefaultPkey;
  bool fecn = false;
  bool becn = false;
  Qpn dest_qp;
  bool ack_req = false;
  Psn psn;

  static Bth parse(BthView view) {
    using L = BthLayout;
    Bth bth;
    bth.opcode = Opcode(view.get(L::opcode));
    bth.solicited_event = view.get(L::solicited_event) != 0;
    bth.mig_req = view.get(L::mig_req) != 0;
    bth.pad_count = static_cast<std::uint8_t>(view.get(L::pad_count));
    bth.tver = static_cast<std::uint8_t>(view.get(L::transport_version));
    bth.pkey = static_cast<std::uint16_t>(view.get(L::pkey));
    bth.fecn = view.get(L::fecn) != 0;
    bth.becn = view.get(L::becn) != 0;
    bth.dest_qp = Qpn(view.get(L::dest_qp));
    bth.ack_req = view.get(L::ack_req) != 0;
    bth.psn = Psn(view.get(L::psn));
    return bth;
  }
  void emit(util::MutableView<BthLayout> out) const {
    using L = BthLayout;
    // Composed in a local copy, so that the compiler builds each word in a register.
    std::array<std::byte, L::kSize> bytes{};
    const util::MutableView<L> header(bytes);
    header.set(L::opcode, static_cast<std::uint32_t>(opcode));
    header.set(L::solicited_event, solicited_event);
    header.set(L::mig_req, mig_req);
    header.set(L::pad_count, pad_count);
    header.set(L::transport_version, tver);
    header.set(L::pkey, pkey);
    header.set(L::fecn, fecn);
    header.set(L::becn, becn);
    header.set(L::dest_qp, dest_qp.value());
    header.set(L::ack_req, ack_req);
    header.set(L::psn, psn.value());
    std::memcpy(out.bytes().data(), bytes.data(), L::kSize);
  }
  friend bool operator==(const Bth&, const Bth&) = default;
};

}  // namespace softhca::wire
