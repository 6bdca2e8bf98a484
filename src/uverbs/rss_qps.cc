#include "uverbs/rss_qps.h"

#include <algorithm>
#include <cstddef>

#include "spec/connectx/raw_queues.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"

namespace softhca::uverbs {

using Op = spec::command_opcode;

namespace {

constexpr std::size_t kKeySize = 40;

/// mlx5_rx_hash_fields: the parts of a frame that are hashed, source and destination in pairs.
struct HashFields {
  bool source_ipv4, destination_ipv4, source_ipv6, destination_ipv6;
  bool source_tcp, destination_tcp, source_udp, destination_udp;
  bool spi;
  explicit HashFields(std::uint64_t mask)
      : source_ipv4((mask & MLX5_RX_HASH_SRC_IPV4) != 0),
        destination_ipv4((mask & MLX5_RX_HASH_DST_IPV4) != 0),
        source_ipv6((mask & MLX5_RX_HASH_SRC_IPV6) != 0),
        destination_ipv6((mask & MLX5_RX_HASH_DST_IPV6) != 0),
        source_tcp((mask & MLX5_RX_HASH_SRC_PORT_TCP) != 0),
        destination_tcp((mask & MLX5_RX_HASH_DST_PORT_TCP) != 0),
        source_udp((mask & MLX5_RX_HASH_SRC_PORT_UDP) != 0),
        destination_udp((mask & MLX5_RX_HASH_DST_PORT_UDP) != 0),
        spi((mask & MLX5_RX_HASH_IPSEC_SPI) != 0) {}
  bool ipv4() const { return source_ipv4 || destination_ipv4; }
  bool ipv6() const { return source_ipv6 || destination_ipv6; }
  bool tcp() const { return source_tcp || destination_tcp; }
  bool udp() const { return source_udp || destination_udp; }
  /// Transport protocols that are named. A QP hashes the fields of one at most.
  int transports() const { return int{tcp()} + int{udp()} + int{spi}; }
};
Errno describe_hash(const mlx5_ib_create_qp_rss& in, std::size_t queues,
                    util::MutableView<spec::tir_context> tir) {
  // Unnamed bits are ignored.
  if ((in.rx_hash_fields_mask & MLX5_RX_HASH_INNER) != 0) return EOPNOTSUPP;
  if (in.rx_hash_function != MLX5_RX_HASH_FUNC_TOEPLITZ) return EOPNOTSUPP;
  if (in.rx_key_len != kKeySize) return EINVAL;
  tir.set(spec::tir_context::rx_hash_fn, static_cast<std::uint32_t>(spec::rx_hash_fn::TOEPLITZ));
  std::ranges::copy(std::as_bytes(std::span(in.rx_hash_key).first<kKeySize>()),
                    tir.sub(spec::tir_context::rx_hash_toeplitz_key).begin());
  // A table of one queue needs no hash.
  if (in.rx_hash_fields_mask == 0) return queues > 1 ? EINVAL : 0;
  const HashFields fields(in.rx_hash_fields_mask);
  if ((fields.ipv4() && fields.ipv6()) || fields.transports() > 1) return EINVAL;
  using Select = spec::rx_hash_field_select;
  using Bit = spec::rx_hash_field_bit;
  const auto select = tir.sub(spec::tir_context::rx_hash_field_selector_outer);
  select.set(Select::l3_prot_type, fields.ipv6());
  select.set(Select::l4_prot_type, fields.udp());
  std::uint32_t chosen = 0;
  if (fields.source_ipv4 || fields.source_ipv6) chosen |= bit(Bit::SRC_IP);
  if (fields.destination_ipv4 || fields.destination_ipv6) chosen |= bit(Bit::DST_IP);
  if (fields.source_tcp || fields.source_udp) chosen |= bit(Bit::L4_SPORT);
  if (fields.destination_tcp || fields.destination_udp) chosen |= bit(Bit::L4_DPORT);
  if (fields.spi) chosen |= bit(Bit::IPSEC_SPI);
  select.set(Select::selected_fields, chosen);
  return 0;
}

/// An RSS QP has no queues and no flags of creation (ib_uverbs' UVERBS_METHOD_QP_CREATE; mlx5_ib's
/// check_valid_flow, process_vendor_flags, process_create_flags, check_qp_attr).
Errno check_scaling_qp(const Request& request, const mlx5_ib_create_qp_rss& in) {
  if (request.get<std::uint32_t>(UVERBS_ATTR_CREATE_QP_TYPE) != IB_UVERBS_QPT_RAW_PACKET) {
    return EINVAL;
  }
  const auto caps = request.get<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP);
  if (caps.max_send_wr != 0 || caps.max_recv_wr != 0 || caps.max_recv_sge != 0) return EINVAL;
  if (request.has(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE) ||
      request.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) ||
      request.has(UVERBS_ATTR_CREATE_QP_SOURCE_QPN)) {
    return EINVAL;
  }
  const auto flags = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS);
  if ((flags & ~std::uint32_t{IB_UVERBS_QP_CREATE_SQ_SIG_ALL}) != 0) return EINVAL;
  if ((in.flags & ~(kHearItself | kHearOwnMulticast)) != 0) return EINVAL;
  return in.comp_mask != 0 ? EOPNOTSUPP : 0;
}

}  // namespace

ScalingQp::~ScalingQp() {
  if (tirn_ == 0) return;
  Command<spec::destroy_tir_in> in(Op::DESTROY_TIR);
  in.set(spec::destroy_tir_in::tirn, tirn_);
  report(device.commands().run(in));
}

Errno ScalingQp::create(const QpCreation& creation) {
  const auto in = creation.request.get<mlx5_ib_create_qp_rss>(UVERBS_ATTR_UHW_IN);
  auto& user = creation.file.user;
  ProtectionDomain* domain = nullptr;
  ReceiveTable* table = nullptr;
  auto wrong = creation.find(UVERBS_ATTR_CREATE_QP_PD_HANDLE, domain);
  if (wrong == 0) wrong = creation.find(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, table);
  if (wrong == 0) wrong = check_scaling_qp(creation.request, in);
  if (wrong != 0) return wrong;
  if (user.transport_domain() == 0) return ENOMEM;
  using In = spec::create_tir_in;
  Command<In> command(Op::CREATE_TIR);
  command.set(In::uid, user.uid());
  const auto tir = command.sub(In::tir_context);
  tir.set(spec::tir_context::disp_type, static_cast<std::uint32_t>(spec::tir_disp_type::INDIRECT));
  tir.set(spec::tir_context::indirect_table, table->number);
  tir.set(spec::tir_context::transport_domain, user.transport_domain());
  tir.set(spec::tir_context::self_lb_en_unicast, (in.flags & kHearItself) != 0);
  tir.set(spec::tir_context::self_lb_en_multicast, (in.flags & kHearOwnMulticast) != 0);
  wrong = describe_hash(in, table->queues.size(), tir);
  if (wrong != 0) return wrong;
  const auto out = device.commands().execute<spec::create_tir_out>(command);
  if (!out) return ENOMEM;
  pd = Use(domain);
  table_ = Use(table);
  tirn_ = out->get(spec::create_tir_out::tirn);
  return 0;
}

void ScalingQp::put_numbers(mlx5_ib_create_qp_resp& out) const {
  out.tirn = tirn_;
  out.comp_mask = MLX5_IB_CREATE_QP_RESP_MASK_TIRN;
}

}  // namespace softhca::uverbs
