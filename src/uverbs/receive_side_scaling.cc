// Receive WQs, RWQ indirection tables, and RSS QPs that spread frames over a table (kernel
// interface 4.12).
#include "uverbs/receive_side_scaling.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <vector>

#include "spec/connectx/raw_queues.h"
#include "uverbs/abi.h"
#include "uverbs/context.h"
#include "uverbs/device_command.h"
#include "uverbs/method.h"
#include "uverbs/program_pages.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

using spec::hca_cap;
using Op = spec::command_opcode;

namespace {

using namespace rules;

constexpr AttributeRule kCreateWq[] = {made(UVERBS_ATTR_CREATE_WQ_HANDLE),
                                       object(UVERBS_ATTR_CREATE_WQ_PD_HANDLE),
                                       object(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE),
                                       value_in(UVERBS_ATTR_CREATE_WQ_USER_HANDLE, 8),
                                       const_in(UVERBS_ATTR_CREATE_WQ_TYPE, 4),
                                       descriptor(UVERBS_ATTR_CREATE_WQ_EVENT_FD),
                                       value_in(UVERBS_ATTR_CREATE_WQ_MAX_WR, 4),
                                       value_in(UVERBS_ATTR_CREATE_WQ_MAX_SGE, 4),
                                       flags_in(UVERBS_ATTR_CREATE_WQ_FLAGS),
                                       value_out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, 4),
                                       value_out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, 4),
                                       value_out(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, 4, false),
                                       in(UVERBS_ATTR_UHW_IN, 0, false),
                                       out(UVERBS_ATTR_UHW_OUT, 0, false)};
constexpr AttributeRule kDestroyWq[] = {object(UVERBS_ATTR_DESTROY_WQ_HANDLE),
                                        value_out(UVERBS_ATTR_DESTROY_WQ_RESP, 4)};
constexpr AttributeRule kDestroyTable[] = {object(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE)};

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

/// Flags that Linux knows. Others are EINVAL; those that the card does not offer, EOPNOTSUPP.
constexpr std::uint32_t kWqFlags = IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING |
                                   IB_UVERBS_WQ_FLAGS_SCATTER_FCS | IB_UVERBS_WQ_FLAGS_DELAY_DROP |
                                   IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING;

/// False: the program asks for what only other cards do.
bool is_offered(const mlx5_ib_create_wq& in, std::uint32_t flags) {
  return (flags & ~std::uint32_t{IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING}) == 0 && in.flags == 0 &&
         in.comp_mask == 0 && in.two_byte_shift_en == 0;
}

}  // namespace

std::span<const Context::Method> Context::scaling_methods() {
  static constexpr Method kMethods[] = {
      {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, kCreateWq, &Context::create_wq},
      {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, kDestroyWq, &Context::destroy_wq},
      {UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, kDestroyTable,
       &Context::destroy<ReceiveTable, UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE>},
  };
  return kMethods;
}

Errno Context::create_wq(Request& request) {
  const auto in = request.get<mlx5_ib_create_wq>(UVERBS_ATTR_UHW_IN);
  const auto flags = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_FLAGS);
  if ((flags & ~kWqFlags) != 0) return EINVAL;
  constexpr std::uint32_t kRq = 0;  // ib_wq_type
  if (request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_TYPE) != kRq) return EINVAL;
  if (!is_offered(in, flags)) return EOPNOTSUPP;
  const auto most = 1u << device_.capabilities().get(hca_cap::log_max_wq_sz);
  if (request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_MAX_WR) > most) return EINVAL;
  if (!std::has_single_bit(in.rq_wqe_count) || in.rq_wqe_count > most ||
      in.rq_wqe_shift < kLogStrideMin || in.rq_wqe_shift > kLogStrideMax) {
    return EINVAL;
  }
  ProtectionDomain* pd = nullptr;
  CompletionQueue* cq = nullptr;
  auto missing = objects_.find(request.number(UVERBS_ATTR_CREATE_WQ_PD_HANDLE), pd);
  if (missing == 0) missing = objects_.find(request.number(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE), cq);
  if (missing != 0) return missing;
  const auto size = std::uint64_t{in.rq_wqe_count} << in.rq_wqe_shift;
  if (!is_place_of_wq(in.buf_addr, in.db_addr)) return EINVAL;
  if (!is_there(memory_, in.buf_addr, size) || !is_there(memory_, in.db_addr, kRecordSize)) {
    return EFAULT;
  }
  auto wq = std::make_unique<ReceiveQueue>(device_);
  missing = events_.find_async(request, UVERBS_ATTR_CREATE_WQ_EVENT_FD, wq->async.file);
  if (missing != 0) return missing;
  if (const auto refused = wq->locked.take(memory_.locked(), in.buf_addr, size); refused != 0) {
    return refused;
  }
  wq->pd = Use(pd);
  wq->cq = Use(cq);
  wq->memory = {.begin = in.buf_addr, .size = size};
  wq->record = in.db_addr;
  wq->async.user_handle = request.get<std::uint64_t>(UVERBS_ATTR_CREATE_WQ_USER_HANDLE);
  if (!wq->queue.make({.uid = user_.uid(),
                       .pdn = pd->pdn,
                       .cqn = cq->cqn,
                       .user_index = in.user_index,
                       .record = in.db_addr,
                       .queue = in.buf_addr,
                       .entries = in.rq_wqe_count,
                       .log_stride = in.rq_wqe_shift,
                       .strips_vlan = flags != 0})) {
    return ENOMEM;
  }
  device_.add_queue_target(wq->queue.number(), *wq);
  const auto number = wq->queue.number();
  const auto handle = objects_.add(std::move(wq));
  const auto wr = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_MAX_WR);
  const auto sge = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_MAX_SGE);
  auto wrong = request.put_number(UVERBS_ATTR_CREATE_WQ_HANDLE, handle);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, wr);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, sge);
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, number);
  const mlx5_ib_create_wq_resp own{.response_length = sizeof own, .reserved = 0};
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_UHW_OUT, own);
  if (wrong != 0) objects_.remove(handle);
  return wrong;
}

Errno Context::destroy_wq(Request& request) {
  const auto handle = request.number(UVERBS_ATTR_DESTROY_WQ_HANDLE);
  ReceiveQueue* wq = nullptr;
  if (const auto missing = objects_.find(handle, wq); missing != 0) return missing;
  if (wq->users != 0) return EBUSY;
  if (const auto wrong = wq->end(); wrong != 0) return wrong;
  const std::uint32_t events = wq->async.take_back();  // ib_uverbs_ex_destroy_wq_resp
  objects_.remove(handle);
  return request.put(UVERBS_ATTR_DESTROY_WQ_RESP, events);
}

Errno Context::modify_wq(Request& request) {
  enum : std::uint32_t { kState = 1, kCurrentState = 2, kFlags = 4 };  // ib_wq_attr_mask
  const auto in = request.get<ib_uverbs_ex_modify_wq>(UVERBS_ATTR_CORE_IN);
  ReceiveQueue* wq = nullptr;
  if (const auto missing = objects_.find(in.wq_handle, wq); missing != 0) return missing;
  if (in.attr_mask == 0) return EINVAL;
  if ((in.attr_mask & ~std::uint32_t{kState | kCurrentState | kFlags}) != 0) return EINVAL;
  constexpr std::uint32_t kStrips = IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING;
  static constexpr spec::rq_state kStates[] = {spec::rq_state::RST, spec::rq_state::RDY,
                                               spec::rq_state::ERR};
  const auto wrong = [&](std::uint32_t which, std::uint32_t state) {
    return (in.attr_mask & which) != 0 && state >= std::size(kStates);
  };
  if (wrong(kCurrentState, in.curr_wq_state) || wrong(kState, in.wq_state)) return EINVAL;
  if ((in.attr_mask & kCurrentState) != 0 && kStates[in.curr_wq_state] != wq->queue.state()) {
    return EINVAL;
  }
  const auto to = (in.attr_mask & kState) != 0 ? kStates[in.wq_state] : wq->queue.state();
  if ((in.attr_mask & kFlags) == 0) return wq->queue.change(to) ? 0 : EINVAL;
  if ((in.flags_mask & ~kStrips) != 0) return EOPNOTSUPP;
  if ((in.flags_mask & kStrips) == 0) return wq->queue.change(to) ? 0 : EINVAL;
  return wq->queue.change(to, (in.flags & kStrips) != 0) ? 0 : EINVAL;
}

Errno Context::create_receive_table(Request& request) {
  constexpr std::uint32_t kLogMax = IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE;
  struct Head {
    std::uint32_t comp_mask, log_size;
  };
  const auto head = request.get<Head>(UVERBS_ATTR_CORE_IN);
  if (head.comp_mask != 0) return EOPNOTSUPP;
  if (head.log_size > kLogMax ||
      head.log_size > device_.capabilities().get(hca_cap::log_max_rqt_size)) {
    return EINVAL;
  }
  const auto count = 1u << head.log_size;
  std::vector<std::uint32_t> all(sizeof head / sizeof(std::uint32_t) + count);
  if (request.size(UVERBS_ATTR_CORE_IN) < all.size() * sizeof(std::uint32_t)) return ENOSPC;
  if (const auto wrong =
          request.copy_in(UVERBS_ATTR_CORE_IN, std::as_writable_bytes(std::span(all)));
      wrong != 0) {
    return wrong;
  }
  auto table = std::make_unique<ReceiveTable>(device_);
  using In = spec::create_rqt_in;
  Command<In> in(Op::CREATE_RQT, count * spec::rqt_entry::kSize);
  in.set(In::uid, user_.uid());
  const auto context = in.sub(In::rqt_context);
  context.set(spec::rqt_context::rqt_max_size, count);
  context.set(spec::rqt_context::rqt_actual_size, count);
  auto list = in.all().subspan(In::kSize);
  for (const auto handle : std::span(all).subspan(sizeof head / sizeof(std::uint32_t))) {
    ReceiveQueue* wq = nullptr;
    if (const auto missing = objects_.find(handle, wq); missing != 0) return missing;
    table->queues.emplace_back(wq);
    util::MutableView<spec::rqt_entry>(list).set(spec::rqt_entry::rq_num, wq->queue.number());
    list = list.subspan(spec::rqt_entry::kSize);
  }
  const auto out = device_.commands().execute<spec::create_rqt_out>(in);
  if (!out) return ENOMEM;
  const auto number = table->number = out->get(spec::create_rqt_out::rqtn);
  const auto handle = objects_.add(std::move(table));
  const ib_uverbs_ex_create_rwq_ind_table_resp answer{.comp_mask = 0,
                                                      .response_length = sizeof answer,
                                                      .ind_tbl_handle = handle,
                                                      .ind_tbl_num = number};
  auto wrong = request.put(UVERBS_ATTR_CORE_OUT, answer);
  const mlx5_ib_create_rwq_ind_tbl_resp own{.response_length = sizeof own, .reserved = 0};
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_UHW_OUT, own);
  if (wrong != 0) objects_.remove(handle);
  return wrong;
}

Errno create_scaling_qp(const OpenFile& file, Request& request) {
  const auto in = request.get<mlx5_ib_create_qp_rss>(UVERBS_ATTR_UHW_IN);
  ProtectionDomain* pd = nullptr;
  ReceiveTable* table = nullptr;
  const auto of_table = request.number(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE);
  auto missing = file.objects.find(request.number(UVERBS_ATTR_CREATE_QP_PD_HANDLE), pd);
  if (missing == 0) missing = file.objects.find(of_table, table);
  if (missing != 0) return missing;
  if (const auto wrong = check_scaling_qp(request, in); wrong != 0) return wrong;
  if (file.user.transport_domain() == 0) return ENOMEM;
  using In = spec::create_tir_in;
  Command<In> create(Op::CREATE_TIR);
  create.set(In::uid, file.user.uid());
  const auto tir = create.sub(In::tir_context);
  tir.set(spec::tir_context::disp_type, static_cast<std::uint32_t>(spec::tir_disp_type::INDIRECT));
  tir.set(spec::tir_context::indirect_table, table->number);
  tir.set(spec::tir_context::transport_domain, file.user.transport_domain());
  tir.set(spec::tir_context::self_lb_en_unicast, (in.flags & kHearItself) != 0);
  tir.set(spec::tir_context::self_lb_en_multicast, (in.flags & kHearOwnMulticast) != 0);
  if (const auto wrong = describe_hash(in, table->queues.size(), tir); wrong != 0) return wrong;
  auto qp = std::make_unique<QueuePair>(file.device);
  const auto out = file.device.commands().execute<spec::create_tir_out>(create);
  if (!out) return ENOMEM;
  qp->type = IB_UVERBS_QPT_RAW_PACKET;
  qp->pd = Use(pd);
  qp->receive_table = Use(table);
  qp->scaling_tirn = out->get(spec::create_tir_out::tirn);
  mlx5_ib_create_qp_resp own{};
  own.bfreg_index = UINT32_MAX;
  if (file.user.uid() != 0) {
    own.tirn = qp->scaling_tirn;
    own.comp_mask = MLX5_IB_CREATE_QP_RESP_MASK_TIRN;
  }
  return Reply(request, file.objects, std::move(qp))
      .put_handle(UVERBS_ATTR_CREATE_QP_HANDLE)
      .put(UVERBS_ATTR_CREATE_QP_RESP_CAP, ib_uverbs_qp_cap{})
      .put(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, std::uint32_t{0})
      .put(UVERBS_ATTR_UHW_OUT, own)
      .end();
}

}  // namespace softhca::uverbs
