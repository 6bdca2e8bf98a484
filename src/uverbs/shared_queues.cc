#include "uverbs/shared_queues.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <utility>

#include "spec/connectx/caps.h"
#include "spec/connectx/raw_queues.h"
#include "spec/connectx/resources.h"
#include "spec/connectx/srq.h"
#include "uverbs/abi.h"
#include "uverbs/device_command.h"
#include "uverbs/objects.h"
#include "uverbs/program_pages.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

using spec::command_opcode;
using spec::hca_cap;

namespace {

using namespace rules;

constexpr AttributeRule kCreateSrq[] = {made(UVERBS_ATTR_CREATE_SRQ_HANDLE),
                                        object(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE),
                                        object(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, false),
                                        object(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, false),
                                        value_in(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 8),
                                        value_in(UVERBS_ATTR_CREATE_SRQ_MAX_WR, 4),
                                        value_in(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 4),
                                        value_in(UVERBS_ATTR_CREATE_SRQ_LIMIT, 4),
                                        value_in(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, 4, false),
                                        const_in(UVERBS_ATTR_CREATE_SRQ_TYPE, 4),
                                        descriptor(UVERBS_ATTR_CREATE_SRQ_EVENT_FD),
                                        value_out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, 4),
                                        value_out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, 4),
                                        value_out(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, 4, false),
                                        kDriverIn,
                                        kDriverOut};
constexpr AttributeRule kDestroySrq[] = {object(UVERBS_ATTR_DESTROY_SRQ_HANDLE),
                                         value_out(UVERBS_ATTR_DESTROY_SRQ_RESP, 4)};

constexpr std::uint32_t kStrideMin = 32;
/// Size of the segment that links WQEs, and of each scatter entry.
constexpr std::uint32_t kSegment = 16;
constexpr unsigned kLogSegment = 4;
/// The scatter entries of the largest WQE (mlx5_ib: max_wqe_sz_rq).
constexpr std::uint32_t kGatherMax = 31;
/// op_mod of ARM_XRC_SRQ, as the mlx5 driver sets it.
constexpr std::uint32_t kXrcSrq = 1;

/// Whether the device checks signatures of its WQEs. mlx5_ib ignores other flags.
bool is_signed(const mlx5_ib_create_srq& in) { return (in.flags & MLX5_SRQ_FLAG_SIGNATURE) != 0; }

/// The program's request, rounded to what the device takes.
struct Shape {
  std::uint32_t entries;
  std::uint32_t stride;  ///< bytes
  std::uint64_t size() const { return std::uint64_t{entries} * stride; }
  std::uint32_t gathers() const { return (stride - kSegment) / kSegment; }
};

Shape shape_of(std::uint32_t max_wr, std::uint32_t max_sge) {
  return {.entries = std::bit_ceil(max_wr + 1),
          .stride = std::max(kStrideMin, std::bit_ceil(kSegment + max_sge * kSegment))};
}

bool make_rmp(SharedReceiveQueue& srq, const Shape& shape, std::uint32_t pdn,
              const mlx5_ib_create_srq& in) {
  Command<spec::create_rmp_in> create(command_opcode::CREATE_RMP,
                                      pages_of(in.buf_addr, shape.size()) * sizeof(std::uint64_t));
  create.set(spec::create_rmp_in::uid, srq.uid);
  const auto rmp = create.sub(spec::create_rmp_in::rmp_context);
  rmp.set(spec::rmp_context::state, static_cast<std::uint32_t>(spec::rmp_state::RDY));
  const auto wq = rmp.sub(spec::rmp_context::wq);
  wq.set(spec::wq::wq_type, static_cast<std::uint32_t>(spec::wq_type::LINKED_LIST));
  wq.set(spec::wq::wq_signature, is_signed(in));
  wq.set(spec::wq::pd, pdn);
  wq.set(spec::wq::dbr_addr, Device::bus_address(in.db_addr));
  wq.set(spec::wq::log_wq_stride, log2_of(shape.stride));
  wq.set(spec::wq::log_wq_sz, log2_of(shape.entries));
  wq.set(spec::wq::page_offset, page_offset_of(in.buf_addr));
  store_pages(create.all().subspan(spec::create_rmp_in::kSize), in.buf_addr);
  const auto out = srq.device.commands().execute<spec::create_rmp_out>(create);
  if (!out) return false;
  srq.number = out->get(spec::create_rmp_out::rmpn);
  return true;
}

/// Without the program's uid, as in Linux: the domain is the kernel's.
bool make_xrc_srq(SharedReceiveQueue& srq, const Shape& shape, std::uint32_t pdn,
                  const mlx5_ib_create_srq& in) {
  Command<spec::create_xrc_srq_in> create(
      command_opcode::CREATE_XRC_SRQ, pages_of(in.buf_addr, shape.size()) * sizeof(std::uint64_t));
  using Xsrq = spec::xrc_srq_context;
  const auto context = create.sub(spec::create_xrc_srq_in::xrc_srq_context_entry);
  context.set(Xsrq::wq_signature, is_signed(in));
  context.set(Xsrq::log_xrc_srq_size, log2_of(shape.entries));
  context.set(Xsrq::log_rq_stride, log2_of(shape.stride) - kLogSegment);
  context.set(Xsrq::xrcd, static_cast<XrcDomain*>(srq.xrcd.get())->shared->number());
  context.set(Xsrq::cqn, static_cast<CompletionQueue*>(srq.cq.get())->cqn);
  context.set(Xsrq::user_index, in.uidx);
  context.set(Xsrq::page_offset, page_offset_of(in.buf_addr));
  context.set(Xsrq::pd, pdn);
  context.set(Xsrq::dbr_addr, Device::bus_address(in.db_addr));
  store_pages(create.all().subspan(spec::create_xrc_srq_in::pas_offset), in.buf_addr);
  const auto out = srq.device.commands().execute<spec::create_xrc_srq_out>(create);
  if (!out) return false;
  srq.number = out->get(spec::create_xrc_srq_out::xrc_srqn);
  return true;
}

/// Requests an event when fewer than `limit` WQEs are left. False if the device refuses.
bool arm(SharedReceiveQueue& srq, std::uint32_t limit) {
  auto& commands = srq.device.commands();
  if (srq.is_xrc) {
    Command<spec::arm_xrc_srq_in> in(command_opcode::ARM_XRC_SRQ);
    in.set(spec::arm_xrc_srq_in::op_mod, kXrcSrq);
    in.set(spec::arm_xrc_srq_in::xrc_srqn, srq.number);
    in.set(spec::arm_xrc_srq_in::lwm, limit);
    return commands.run(in).has_value();
  }
  Command<spec::modify_rmp_in> in(command_opcode::MODIFY_RMP);
  constexpr auto kReady = static_cast<std::uint32_t>(spec::rmp_state::RDY);
  in.set(spec::modify_rmp_in::rmpn, srq.number);
  in.set(spec::modify_rmp_in::rmp_state, kReady);
  in.sub(spec::modify_rmp_in::modify_bitmask).set(spec::rmp_bitmask::lwm, 1);
  const auto rmp = in.sub(spec::modify_rmp_in::rmp_context);
  rmp.set(spec::rmp_context::state, kReady);
  rmp.sub(spec::rmp_context::wq).set(spec::wq::lwm, limit);
  return commands.run(in).has_value();
}

}  // namespace

std::span<const Method<SharedQueueCommands>> SharedQueueCommands::methods() {
  static constexpr Method<SharedQueueCommands> kMethods[] = {
      {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, kCreateSrq, &SharedQueueCommands::create_srq},
      {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, kDestroySrq,
       &SharedQueueCommands::destroy_srq},
  };
  return kMethods;
}

std::span<const WriteCommand<SharedQueueCommands>> SharedQueueCommands::write_commands() {
  static constexpr WriteCommand<SharedQueueCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_MODIFY_SRQ, 16, 0}, &SharedQueueCommands::modify_srq},
      {{IB_USER_VERBS_CMD_QUERY_SRQ, 16, 16}, &SharedQueueCommands::query_srq},
  };
  return kCommands;
}

/// Finds the objects that the SRQ uses, by their handles.
Errno SharedQueueCommands::find_objects(const Request& request, SharedReceiveQueue& srq) {
  ProtectionDomain* pd = nullptr;
  auto missing = file_.find(request, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, pd);
  if (missing != 0) return missing;
  srq.pd = Use(pd);
  missing = file_.events.find_async(request, UVERBS_ATTR_CREATE_SRQ_EVENT_FD, srq.async.file);
  if (missing != 0 || !srq.is_xrc) return missing;
  XrcDomain* xrcd = nullptr;
  CompletionQueue* cq = nullptr;
  missing = file_.find(request, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, xrcd);
  if (missing == 0) missing = file_.find(request, UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, cq);
  if (missing != 0) return missing;
  srq.xrcd = Use(xrcd);
  srq.cq = Use(cq);
  return 0;
}

Errno SharedQueueCommands::create_srq(Request& request) {
  const auto type = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_TYPE);
  if (type != IB_UVERBS_SRQT_BASIC && type != IB_UVERBS_SRQT_XRC) return EOPNOTSUPP;
  const auto max_wr = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_WR);
  const auto max_sge = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_SGE);
  if (max_wr >= 1u << file_.device.capabilities().get(hca_cap::log_max_srq_sz) ||
      max_sge > kGatherMax) {
    return EINVAL;
  }
  auto srq = std::make_unique<SharedReceiveQueue>(file_.device);
  srq->is_xrc = type == IB_UVERBS_SRQT_XRC;
  srq->uid = srq->is_xrc ? 0 : file_.user.uid();
  if (const auto missing = find_objects(request, *srq); missing != 0) return missing;
  const auto in = request.get<mlx5_ib_create_srq>(UVERBS_ATTR_UHW_IN);
  const auto shape = shape_of(max_wr, max_sge);
  if (!is_place_of_wq(in.buf_addr, in.db_addr)) return EINVAL;
  if (!are_there(file_.memory, in.buf_addr, shape.size(), in.db_addr)) return EFAULT;
  if (const auto wrong = srq->locked.take(file_.memory.locked(), in.buf_addr, shape.size());
      wrong != 0) {
    return wrong;
  }
  const auto pdn = static_cast<ProtectionDomain*>(srq->pd.get())->pdn;
  const bool made =
      srq->is_xrc ? make_xrc_srq(*srq, shape, pdn, in) : make_rmp(*srq, shape, pdn, in);
  if (!made) return ENOMEM;
  srq->exists = true;
  srq->async.user_handle = request.get<std::uint64_t>(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE);
  srq->max_wr = shape.entries - 1;
  srq->max_sge = shape.gathers();
  srq->queue = {.begin = in.buf_addr, .size = shape.size()};
  srq->record = in.db_addr;
  // mlx5_ib ignores UVERBS_ATTR_CREATE_SRQ_LIMIT: only ibv_modify_srq arms the event.
  file_.device.add_shared_target(srq->number, *srq);
  const auto& queue = *srq;
  return Reply(request, file_.objects, std::move(srq))
      .put_handle(UVERBS_ATTR_CREATE_SRQ_HANDLE)
      .put(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, queue.max_wr)
      .put(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, queue.max_sge)
      .put(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, queue.number)
      .put(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_srq_resp{.srqn = queue.number, .reserved = 0})
      .end();
}

Errno SharedQueueCommands::destroy_srq(Request& request) {
  ib_uverbs_destroy_srq_resp out{};
  const auto wrong = destroy_object<SharedReceiveQueue>(
      file_.objects, request.number(UVERBS_ATTR_DESTROY_SRQ_HANDLE),
      [&](SharedReceiveQueue& srq) { out.events_reported = srq.async.take_back(); });
  return wrong != 0 ? wrong : request.put(UVERBS_ATTR_DESTROY_SRQ_RESP, out);
}

Errno SharedQueueCommands::modify_srq(Request& request) {
  enum : std::uint32_t { kMaxWr = 1, kLimit = 2 };  // ib_srq_attr_mask
  const auto in = request.get<ib_uverbs_modify_srq>(kCoreIn);
  SharedReceiveQueue* srq = nullptr;
  if (const auto missing = file_.objects.find(in.srq_handle, srq); missing != 0) return missing;
  if ((in.attr_mask & kMaxWr) != 0) return EINVAL;
  if ((in.attr_mask & kLimit) == 0) return 0;
  if (in.srq_limit >= srq->max_wr + 1) return EINVAL;
  return arm(*srq, in.srq_limit) ? 0 : EINVAL;
}

Errno SharedQueueCommands::query_srq(Request& request) {
  const auto in = request.get<ib_uverbs_query_srq>(kCoreIn);
  SharedReceiveQueue* srq = nullptr;
  if (const auto missing = file_.objects.find(in.srq_handle, srq); missing != 0) return missing;
  ib_uverbs_query_srq_resp out{};
  out.max_wr = srq->max_wr;
  out.max_sge = srq->max_sge;
  if (srq->is_xrc) {
    Command<spec::query_xrc_srq_in> ask(command_opcode::QUERY_XRC_SRQ);
    ask.set(spec::query_xrc_srq_in::xrc_srqn, srq->number);
    const auto answer = file_.device.commands().execute<spec::query_xrc_srq_out>(ask);
    if (!answer) return EINVAL;
    out.srq_limit =
        answer->get(spec::query_xrc_srq_out::xrc_srq_context_entry).get(spec::xrc_srq_context::lwm);
  } else {
    Command<spec::query_rmp_in> ask(command_opcode::QUERY_RMP);
    ask.set(spec::query_rmp_in::rmpn, srq->number);
    const auto answer = file_.device.commands().execute<spec::query_rmp_out>(ask);
    if (!answer) return EINVAL;
    out.srq_limit =
        answer->get(spec::query_rmp_out::rmp_context).get(spec::rmp_context::wq).get(spec::wq::lwm);
  }
  return request.put(kCoreOut, out);
}

}  // namespace softhca::uverbs
