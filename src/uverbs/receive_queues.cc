#include "uverbs/receive_queues.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "spec/connectx/raw_queues.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/objects.h"
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
                                       kDriverIn,
                                       kDriverOut};
constexpr AttributeRule kDestroyWq[] = {object(UVERBS_ATTR_DESTROY_WQ_HANDLE),
                                        value_out(UVERBS_ATTR_DESTROY_WQ_RESP, 4)};
constexpr AttributeRule kDestroyTable[] = {object(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE)};

/// Flags that Linux knows. Others are EINVAL; those that the card does not offer, EOPNOTSUPP.
constexpr std::uint32_t kWqFlags = IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING |
                                   IB_UVERBS_WQ_FLAGS_SCATTER_FCS | IB_UVERBS_WQ_FLAGS_DELAY_DROP |
                                   IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING;

/// False: the program asks for what only other cards do. mlx5_ib looks at the fields of striding
/// only if comp_mask asks for it, and ignores driver flags without a name.
bool is_offered(const mlx5_ib_create_wq& in, std::uint32_t flags) {
  return (flags & ~std::uint32_t{IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING}) == 0 && in.comp_mask == 0;
}

}  // namespace

std::span<const Method<ReceiveQueueCommands>> ReceiveQueueCommands::methods() {
  static constexpr Method<ReceiveQueueCommands> kMethods[] = {
      {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, kCreateWq, &ReceiveQueueCommands::create_wq},
      {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, kDestroyWq, &ReceiveQueueCommands::destroy_wq},
      {UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, kDestroyTable,
       &ReceiveQueueCommands::destroy_table},
  };
  return kMethods;
}

std::span<const WriteCommand<ReceiveQueueCommands>> ReceiveQueueCommands::write_commands() {
  static constexpr WriteCommand<ReceiveQueueCommands> kCommands[] = {
      {{extended(IB_USER_VERBS_EX_CMD_MODIFY_WQ), 24, 0}, &ReceiveQueueCommands::modify_wq},
      {{extended(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL), 12, 16, kListFollows},
       &ReceiveQueueCommands::create_table},
  };
  return kCommands;
}

Errno ReceiveQueueCommands::create_wq(Request& request) {
  const auto in = request.get<mlx5_ib_create_wq>(UVERBS_ATTR_UHW_IN);
  const auto flags = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_FLAGS);
  if ((flags & ~kWqFlags) != 0) return EINVAL;
  constexpr std::uint32_t kRq = 0;  // ib_wq_type
  if (request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_TYPE) != kRq) return EINVAL;
  if (!is_offered(in, flags)) return EOPNOTSUPP;
  const auto most = 1u << file_.device.capabilities().get(hca_cap::log_max_wq_sz);
  if (request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_MAX_WR) > most) return EINVAL;
  if (!std::has_single_bit(in.rq_wqe_count) || in.rq_wqe_count > most ||
      in.rq_wqe_shift < kLogStrideMin || in.rq_wqe_shift > kLogStrideMax) {
    return EINVAL;
  }
  ProtectionDomain* pd = nullptr;
  CompletionQueue* cq = nullptr;
  auto missing = file_.find(request, UVERBS_ATTR_CREATE_WQ_PD_HANDLE, pd);
  if (missing == 0) missing = file_.find(request, UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, cq);
  if (missing != 0) return missing;
  const auto size = std::uint64_t{in.rq_wqe_count} << in.rq_wqe_shift;
  if (!is_place_of_wq(in.buf_addr, in.db_addr)) return EINVAL;
  if (!are_there(file_.memory, in.buf_addr, size, in.db_addr)) return EFAULT;
  auto wq = std::make_unique<ReceiveQueue>(file_.device);
  missing = file_.events.find_async(request, UVERBS_ATTR_CREATE_WQ_EVENT_FD, wq->async.file);
  if (missing != 0) return missing;
  if (const auto refused = wq->locked.take(file_.memory.locked(), in.buf_addr, size);
      refused != 0) {
    return refused;
  }
  wq->pd = Use(pd);
  wq->cq = Use(cq);
  wq->memory = {.begin = in.buf_addr, .size = size};
  wq->record = in.db_addr;
  wq->async.user_handle = request.get<std::uint64_t>(UVERBS_ATTR_CREATE_WQ_USER_HANDLE);
  if (!wq->queue.make({.uid = file_.user.uid(),
                       .pdn = pd->pdn,
                       .cqn = cq->cqn,
                       .user_index = in.user_index,
                       .record = in.db_addr,
                       .queue = in.buf_addr,
                       .entries = in.rq_wqe_count,
                       .log_stride = in.rq_wqe_shift,
                       .strips_vlan = flags != 0,
                       .is_signed = (in.flags & MLX5_WQ_FLAG_SIGNATURE) != 0})) {
    return ENOMEM;
  }
  file_.device.add_queue_target(wq->queue.number(), *wq);
  const auto number = wq->queue.number();
  const auto wr = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_MAX_WR);
  const auto sge = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_WQ_MAX_SGE);
  return Reply(request, file_.objects, std::move(wq))
      .put_handle(UVERBS_ATTR_CREATE_WQ_HANDLE)
      .put(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, wr)
      .put(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, sge)
      .put(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, number)
      .put(UVERBS_ATTR_UHW_OUT,
           mlx5_ib_create_wq_resp{.response_length = sizeof(mlx5_ib_create_wq_resp), .reserved = 0})
      .end();
}

Errno ReceiveQueueCommands::destroy_wq(Request& request) {
  std::uint32_t events = 0;  // ib_uverbs_ex_destroy_wq_resp
  const auto wrong =
      destroy_object<ReceiveQueue>(file_.objects, request.number(UVERBS_ATTR_DESTROY_WQ_HANDLE),
                                   [&](ReceiveQueue& wq) { events = wq.async.take_back(); });
  return wrong != 0 ? wrong : request.put(UVERBS_ATTR_DESTROY_WQ_RESP, events);
}

Errno ReceiveQueueCommands::modify_wq(Request& request) {
  enum : std::uint32_t { kState = 1, kCurrentState = 2, kFlags = 4 };  // ib_wq_attr_mask
  const auto in = request.get<ib_uverbs_ex_modify_wq>(UVERBS_ATTR_CORE_IN);
  if (in.attr_mask == 0) return EINVAL;
  if ((in.attr_mask & ~std::uint32_t{kState | kCurrentState | kFlags}) != 0) return EINVAL;
  ReceiveQueue* wq = nullptr;
  if (const auto missing = file_.objects.find(in.wq_handle, wq); missing != 0) return missing;
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
  // mlx5_ib_modify_wq changes one flag, refuses another, and does not look at the rest.
  if ((in.flags_mask & IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING) != 0) return EOPNOTSUPP;
  if ((in.flags_mask & kStrips) == 0) return wq->queue.change(to) ? 0 : EINVAL;
  return wq->queue.change(to, (in.flags & kStrips) != 0) ? 0 : EINVAL;
}

Errno ReceiveQueueCommands::create_table(Request& request) {
  constexpr std::uint32_t kLogMax = IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE;
  struct Head {
    std::uint32_t comp_mask, log_size;
  };
  const auto head = request.get<Head>(UVERBS_ATTR_CORE_IN);
  if (head.comp_mask != 0) return EOPNOTSUPP;
  if (head.log_size > kLogMax ||
      head.log_size > file_.device.capabilities().get(hca_cap::log_max_rqt_size)) {
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
  auto table = std::make_unique<ReceiveTable>(file_.device);
  using In = spec::create_rqt_in;
  Command<In> in(Op::CREATE_RQT, count * spec::rqt_entry::kSize);
  in.set(In::uid, file_.user.uid());
  const auto context = in.sub(In::rqt_context);
  context.set(spec::rqt_context::rqt_max_size, count);
  context.set(spec::rqt_context::rqt_actual_size, count);
  auto list = in.all().subspan(In::kSize);
  for (const auto handle : std::span(all).subspan(sizeof head / sizeof(std::uint32_t))) {
    ReceiveQueue* wq = nullptr;
    if (const auto missing = file_.objects.find(handle, wq); missing != 0) return missing;
    table->queues.emplace_back(wq);
    util::MutableView<spec::rqt_entry>(list).set(spec::rqt_entry::rq_num, wq->queue.number());
    list = list.subspan(spec::rqt_entry::kSize);
  }
  const auto out = file_.device.commands().execute<spec::create_rqt_out>(in);
  if (!out) return ENOMEM;
  const auto number = table->number = out->get(spec::create_rqt_out::rqtn);
  Reply reply(request, file_.objects, std::move(table));
  const ib_uverbs_ex_create_rwq_ind_table_resp answer{.comp_mask = 0,
                                                      .response_length = sizeof answer,
                                                      .ind_tbl_handle = reply.handle(),
                                                      .ind_tbl_num = number};
  const mlx5_ib_create_rwq_ind_tbl_resp own{.response_length = sizeof own, .reserved = 0};
  return reply.put(UVERBS_ATTR_CORE_OUT, answer).put(UVERBS_ATTR_UHW_OUT, own).end();
}

Errno ReceiveQueueCommands::destroy_table(Request& request) {
  return destroy_object<ReceiveTable>(file_.objects,
                                      request.number(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE));
}

}  // namespace softhca::uverbs
