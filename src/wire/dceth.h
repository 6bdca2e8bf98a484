// The extended transport header of DC requests: the dynamic connection of a request, and the key
// that admits it to the target. No document defines one; this is softhca's own (README.md).
#pragma once

#include <cstdint>
#include <cstring>

#include "spec/infiniband/transport.h"
#include "wire/ids.h"
#include "wire/serial24.h"

namespace softhca::wire {

using DcEthLayout = spec::infiniband::dceth;

struct DcEth {
  std::uint64_t key = 0;     ///< the target's
  bool may_connect = false;  ///< no request of this connection was answered yet
  Qpn source_qp;             ///< the initiator, which receives the responses
  std::uint32_t session = 0;
  Psn first_psn;

  static DcEth parse(util::View<DcEthLayout> view) {
    using L = DcEthLayout;
    return {.key = view.get(L::dc_access_key),
            .may_connect = view.get(L::may_connect) != 0,
            .source_qp = Qpn(view.get(L::source_qp)),
            .session = view.get(L::session),
            .first_psn = Psn(view.get(L::first_psn))};
  }
  void emit(util::MutableView<DcEthLayout> out) const {
    using L = DcEthLayout;
    std::memset(out.bytes().data(), 0, L::kSize);
    out.set(L::dc_access_key, key);
    out.set(L::may_connect, may_connect);
    out.set(L::source_qp, source_qp.value());
    out.set(L::session, session);
    out.set(L::first_psn, first_psn.value());
  }
  friend bool operator==(const DcEth&, const DcEth&) = default;
};

}  // namespace softhca::wire
