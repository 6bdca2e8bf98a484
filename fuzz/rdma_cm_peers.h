// Peers that send any management datagram: built from communication IDs found on the wire, or a
// recorded one with words changed.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <memory>
#include <span>

#include "cm/message.h"
#include "fabric/switch.h"
#include "rdma_cm/qp1_on_wire.h"
#include "script.h"
#include "util/endian.h"

namespace softhca::rdma_cm {

inline const driver::Gid kOwn = driver::Gid::from_ipv4(198, 18, 0, 1);
inline const driver::Gid kGuest = driver::Gid::from_ipv4(198, 19, 0, 1);
inline const driver::Gid kOwnLinkLocal{{std::byte{0xfe}, std::byte{0x80}}};

class Peers {
 public:
  Peers(fuzz::Script& script, fabric::Switch& network)
      : script_(script), network_(network), port_(network.create_port("peer")) {
    network.set_tap(&ear_);
  }
  ~Peers() { network_.set_tap(nullptr); }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// A datagram of a kind that a peer could send.
  void send_new() {
    static constexpr cm_attribute kKinds[] = {
        cm_attribute::REQ,      cm_attribute::REP,  cm_attribute::RTU, cm_attribute::REJ,
        cm_attribute::DREQ,     cm_attribute::DREP, cm_attribute::MRA, cm_attribute::SIDR_REQ,
        cm_attribute::SIDR_REP, cm_attribute::REQ};
    const auto kind = kKinds[script_.byte() % std::size(kKinds)];
    const auto from = sender();
    cm::Message<cm::spec::cm_req> message(kind, script_.byte());
    auto mad = message.mad();
    const auto body = std::span(mad).subspan(cm::spec::mad_header::kSize);
    const auto put = [&](std::size_t at, std::uint32_t value) {
      util::store_be32(body.data() + at, value);
    };
    put(0, comm_id());
    if (kind == cm_attribute::REQ || kind == cm_attribute::SIDR_REQ) {
      // service_id, and the address that it is for (Annex A11).
      const auto how = script_.byte();
      const std::uint32_t space = (how & 0x80) != 0 ? RDMA_PS_UDP : RDMA_PS_TCP;
      util::store_be64(body.data() + 8, std::uint64_t{space} << 16 | (7000u + how % 4));
      const std::size_t cma = kind == cm_attribute::REQ ? 0x8c : 0x10;
      put(cma, ((how & 0x40) != 0 ? 6u : 4u) << 20 | 5000u);
      std::ranges::copy(from.bytes, body.begin() + static_cast<long>(cma) + 4);
      std::ranges::copy(kOwn.bytes, body.begin() + static_cast<long>(cma) + 20);
    } else {
      put(4, comm_id());
    }
    change(body);
    send(mad, from);
  }
  /// A recorded datagram.
  void send_old() {
    if (ear_.heard.empty()) return;
    auto mad = ear_.heard[script_.byte() % ear_.heard.size()];
    change(mad);
    send(mad, sender());
  }

 private:
  using cm_attribute = cm::cm_attribute;

  driver::Gid sender() {
    switch (script_.byte() % 4) {
      case 0:
        return kOwn;
      case 1:
        return kOwnLinkLocal;
      default:
        return kGuest;
    }
  }
  /// A communication ID that one end uses.
  std::uint32_t comm_id() {
    const auto which = script_.byte();
    if (ear_.heard.empty() || which >= 0xf0) return which;
    const auto& mad = ear_.heard[which / 2 % ear_.heard.size()];
    return util::load_be32(mad.data() + cm::spec::mad_header::kSize + (which & 1) * 4);
  }
  void change(std::span<std::byte> bytes) {
    for (unsigned n = script_.byte() % 8; n != 0; --n) {
      const auto at = script_.byte() % (bytes.size() / 4) * 4;
      util::store_be32(bytes.data() + at, script_.dword());
    }
  }
  void send(const cm::Mad& mad, const driver::Gid& from) {
    (void)port_->transmit(qp1_frame(mad, from, from.is_ipv4() ? kOwn : kOwnLinkLocal));
  }

  static constexpr std::size_t kMadsKept = 16;
  fuzz::Script& script_;
  fabric::Switch& network_;
  Ear ear_{kMadsKept};
  std::unique_ptr<fabric::Port> port_;
};

}  // namespace softhca::rdma_cm
