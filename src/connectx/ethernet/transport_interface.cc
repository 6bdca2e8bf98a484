#include "connectx/ethernet/transport_interface.h"

#include <bit>

namespace softhca::connectx {

namespace {

using ethernet::L3Type;
using ethernet::L4Type;
using ethernet::PacketInfo;
using spec::connectx::rx_hash_field_select;
using spec::connectx::rx_hash_fn;
using spec::connectx::tir_context;
using spec::connectx::tir_disp_type;

/// Codes of rx_hash_type (PRM Table 68), for each of its four parts, by which of HashField is
/// selected.
std::uint8_t hash_type(const PacketInfo& packet, std::uint32_t fields) {
  const unsigned l3 = packet.l3 == L3Type::kIpv4 ? 1 : packet.l3 == L3Type::kIpv6 ? 2 : 0;
  const unsigned l4 = packet.l4 == L4Type::kTcp ? 1 : packet.l4 == L4Type::kUdp ? 2 : 0;
  unsigned type = 0;
  if (fields & ethernet::kHashSourceIp) type |= l3;
  if (fields & ethernet::kHashDestinationIp) type |= l3 << 2;
  if (fields & ethernet::kHashSourcePort) type |= l4 << 4;
  if (fields & ethernet::kHashDestinationPort) type |= l4 << 6;
  constexpr unsigned kSpi = 3;
  if (packet.ipsec_spi && (fields & ethernet::kHashIpsecSpi)) type |= kSpi << 4 | kSpi << 6;
  return static_cast<std::uint8_t>(type);
}

}  // namespace

void Tir::set_context(const SavedContext<tir_context>& context) {
  context_ = context;
  const auto view = context_.view();
  disp_type_ = tir_disp_type(view.get(tir_context::disp_type));
  inline_rqn_ = Rqn(view.get(tir_context::inline_rqn));
  indirect_table_ = Rqtn(view.get(tir_context::indirect_table));
  hash_fields_ = view.get(tir_context::rx_hash_field_selector_outer)
                     .get(rx_hash_field_select::selected_fields);
  symmetric_ = view.get(tir_context::rx_hash_symmetric) != 0;
  toeplitz_.reset();
  if (rx_hash_fn(view.get(tir_context::rx_hash_fn)) == rx_hash_fn::TOEPLITZ) {
    toeplitz_ = std::make_unique<ethernet::Toeplitz>(view.get(tir_context::rx_hash_toeplitz_key));
  }
}

bool Tir::accepts_loopback(TransportDomain domain, bool multicast) const {
  const auto context = context_.view();
  if (TransportDomain(context.get(tir_context::transport_domain)) != domain) return true;
  return (multicast ? context.get(tir_context::self_lb_en_multicast)
                    : context.get(tir_context::self_lb_en_unicast)) != 0;
}

Tir::Hash Tir::hash(const PacketInfo& packet, std::uint32_t rqt_max_size) const {
  const ethernet::HashInput input(packet, hash_fields_, symmetric_);
  const auto bytes = input.bytes();
  // Without any of the fields there is nothing to spread by: all such packets go to the first RQ.
  if (bytes.empty()) return {};
  const auto type = hash_type(packet, hash_fields_);
  if (toeplitz_) return {toeplitz_->hash(bytes), type};
  const auto log_size = static_cast<unsigned>(std::bit_width(rqt_max_size) - 1);
  return {ethernet::inverted_xor8(bytes, log_size), type};
}

}  // namespace softhca::connectx
