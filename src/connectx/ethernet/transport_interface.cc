#include "connectx/ethernet/transport_interface.h"

#include <bit>
#include <cstddef>
#include <utility>

#include "spec/connectx/cqe.h"

namespace softhca::connectx {

namespace {

using ethernet::L3Type;
using ethernet::L4Type;
using ethernet::PacketInfo;
using spec::connectx::rx_hash_field_select;
using spec::connectx::rx_hash_fn;
using spec::connectx::tir_context;

/// The hash type of a CQE (PRM Table 68): those of the selected HashField bits that were hashed.
std::uint8_t hash_type(const PacketInfo& packet, std::uint32_t fields) {
  using Type = spec::connectx::cqe_rx_hash_type;
  constexpr unsigned kSpi = 3;
  const unsigned l3 = packet.l3 == L3Type::kIpv4 ? 1 : packet.l3 == L3Type::kIpv6 ? 2 : 0;
  const unsigned l4 = packet.l4 == L4Type::kTcp ? 1 : packet.l4 == L4Type::kUdp ? 2 : 0;
  const bool spi = packet.ipsec_spi && (fields & ethernet::kHashIpsecSpi) != 0;
  util::Struct<Type> type;
  if (fields & ethernet::kHashSourceIp) type.set(Type::source_ip, l3);
  if (fields & ethernet::kHashDestinationIp) type.set(Type::destination_ip, l3);
  if (fields & ethernet::kHashSourcePort) type.set(Type::source_port, l4);
  if (fields & ethernet::kHashDestinationPort) type.set(Type::destination_port, l4);
  if (spi) {
    type.set(Type::source_port, kSpi);
    type.set(Type::destination_port, kSpi);
  }
  return std::to_integer<std::uint8_t>(type.bytes()[0]);
}

}  // namespace

void Tir::set(const SavedContext<tir_context>& context, Destination destination) {
  context_ = context;
  destination_ = std::move(destination);
  const auto view = context_.view();
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
  const TransportDomain own(context.get(tir_context::transport_domain));
  if (own == kNoDomain || own != domain) return true;
  return (multicast ? context.get(tir_context::self_lb_en_multicast)
                    : context.get(tir_context::self_lb_en_unicast)) != 0;
}

Tir::Hash Tir::hash(const PacketInfo& packet, std::uint32_t rqt_max_size) const {
  const ethernet::HashInput input(packet, hash_fields_, symmetric_);
  const auto bytes = input.bytes();
  // A packet with none of the selected fields has hash 0 and goes to the first RQ.
  if (bytes.empty()) return {};
  const auto type = hash_type(packet, hash_fields_);
  if (toeplitz_) return {toeplitz_->hash(bytes), type};
  const auto log_size = static_cast<unsigned>(std::bit_width(rqt_max_size) - 1);
  return {ethernet::inverted_xor8(bytes, log_size), type};
}

}  // namespace softhca::connectx
