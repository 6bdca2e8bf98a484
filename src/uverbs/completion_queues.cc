#include "uverbs/completion_queues.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>
#include <cerrno>
#include <memory>
#include <utility>

#include "spec/connectx/cq.h"
#include "uverbs/device_command.h"
#include "uverbs/doorbell_pages.h"
#include "uverbs/objects.h"
#include "uverbs/program_pages.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

using spec::command_opcode;
using spec::hca_cap;

namespace {

using namespace rules;

constexpr AttributeRule kCreateCq[] = {made(UVERBS_ATTR_CREATE_CQ_HANDLE),
                                       value_in(UVERBS_ATTR_CREATE_CQ_CQE, 4),
                                       value_in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8),
                                       descriptor(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL),
                                       value_in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4),
                                       flags_in(UVERBS_ATTR_CREATE_CQ_FLAGS),
                                       value_out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4),
                                       descriptor(UVERBS_ATTR_CREATE_CQ_EVENT_FD),
                                       kDriverIn,
                                       kDriverOut};
constexpr AttributeRule kDestroyCq[] = {object(UVERBS_ATTR_DESTROY_CQ_HANDLE),
                                        value_out(UVERBS_ATTR_DESTROY_CQ_RESP, 8)};

constexpr std::uint32_t kModerate = 1;  // IB_CQ_MODERATE
constexpr std::uint16_t kModerationPeriodMax = 0xfff;
constexpr std::uint8_t kCompressionFormats =
    MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM;
constexpr std::uint32_t kCreateFlags =
    IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
constexpr std::uint32_t kPadded = MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD;

/// The checks of mlx5_ib for a CQ of `wanted` entries.
Errno check_cq(const Device& device, const mlx5_ib_create_cq& in, std::uint32_t wanted) {
  const auto caps = device.capabilities();
  if (wanted == 0 || wanted >= 1u << caps.get(hca_cap::log_max_cq_sz)) return EINVAL;
  if (in.cqe_size != 64 && in.cqe_size != 128) return EINVAL;
  const bool compresses = in.cqe_comp_en != 0;
  if ((compresses && caps.get(hca_cap::cqe_compression) == 0) ||
      (in.flags & ~(MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX | kPadded)) != 0) {
    return EOPNOTSUPP;
  }
  // mlx5_ib accepts exactly one format, and compresses only 64-byte CQEs.
  if (compresses && (!std::has_single_bit(in.cqe_comp_res_format) || in.cqe_size != 64 ||
                     (in.cqe_comp_res_format & ~kCompressionFormats) != 0)) {
    return EOPNOTSUPP;
  }
  const bool padded = (in.flags & kPadded) != 0;
  if (padded && (in.cqe_size != 128 || caps.get(hca_cap::cqe_128_always) == 0)) return EOPNOTSUPP;
  if ((in.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) == 0) return EOPNOTSUPP;
  return 0;
}

/// Runs CREATE_CQ. False if the device refuses it.
bool make_cq(CompletionQueue& cq, const mlx5_ib_create_cq& in, bool ignores_overrun) {
  auto& device = cq.device;
  const auto size = std::uint64_t{cq.entries} * in.cqe_size;
  Command<spec::create_cq_in> create(command_opcode::CREATE_CQ,
                                     pages_of(in.buf_addr, size) * sizeof(std::uint64_t));
  create.set(spec::create_cq_in::uid, cq.uid);
  using Cqc = spec::cq_context;
  const auto context = create.sub(spec::create_cq_in::cq_context_entry);
  context.set(Cqc::log_cq_size, log2_of(cq.entries));
  context.set(Cqc::cqe_sz, cq.size_code());
  context.set(Cqc::page_offset, page_offset_of(in.buf_addr));
  context.set(Cqc::uar_page, in.uar_page_index);
  context.set(Cqc::c_eqn, device.hca().completion_events().eqn());
  context.set(Cqc::oi, ignores_overrun);
  context.set(Cqc::cqe_compression_en, in.cqe_comp_en != 0);
  // Userspace passes a format as a bit; the CQ context holds the bit's number.
  if (in.cqe_comp_en != 0) {
    context.set(Cqc::mini_cqe_res_format, log2_of(in.cqe_comp_res_format));
  }
  context.set(Cqc::dbr_addr, Device::bus_address(in.db_addr));
  store_pages(create.all().subspan(spec::create_cq_in::pas_offset), in.buf_addr);
  const auto out = device.commands().execute<spec::create_cq_out>(create);
  if (!out) return false;
  cq.cqn = out->get(spec::create_cq_out::cqn);
  cq.exists = true;
  device.add_completion_target(cq.cqn, cq);
  // Without a channel no completion event is delivered, so the arm word need not be polled.
  if (cq.channel != nullptr) {
    device.records().add_completion_queue(cq.cqn, in.uar_page_index,
                                          reinterpret_cast<std::uint32_t*>(in.db_addr + 4));
  }
  return true;
}

}  // namespace

std::span<const Method<CompletionQueueCommands>> CompletionQueueCommands::methods() {
  static constexpr Method<CompletionQueueCommands> kMethods[] = {
      {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, kCreateCq, &CompletionQueueCommands::create_cq},
      {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, kDestroyCq,
       &CompletionQueueCommands::destroy_cq},
  };
  return kMethods;
}

std::span<const WriteCommand<CompletionQueueCommands>> CompletionQueueCommands::write_commands() {
  static constexpr WriteCommand<CompletionQueueCommands> kCommands[] = {
      {{IB_USER_VERBS_CMD_RESIZE_CQ, 16, 4}, &CompletionQueueCommands::resize_cq},
      {{extended(IB_USER_VERBS_EX_CMD_MODIFY_CQ), 16, 0}, &CompletionQueueCommands::modify_cq},
  };
  return kCommands;
}

Errno CompletionQueueCommands::create_cq(Request& request) {
  const auto flags = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_FLAGS);
  if ((flags & ~kCreateFlags) != 0) return EINVAL;
  const auto in = request.get<mlx5_ib_create_cq>(UVERBS_ATTR_UHW_IN);
  const auto wanted = request.get<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE);
  if (const auto wrong = check_cq(file_.device, in, wanted); wrong != 0) return wrong;
  if (request.get<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR) != 0) return EINVAL;
  auto* const page = find_page(file_.objects, in.uar_page_index);
  if (page == nullptr) return EINVAL;
  auto cq = std::make_unique<CompletionQueue>(file_.device);
  cq->uid = file_.user.uid();
  cq->uar = Use(page);
  if (request.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)) {
    const auto number = request.number(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
    cq->channel = file_.events.find_channel(static_cast<int>(number));
    if (cq->channel == nullptr) return EBADF;
  }
  cq->entries = std::bit_ceil(wanted + 1);
  cq->user_handle = request.get<std::uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
  if (const auto wrong =
          file_.events.find_async(request, UVERBS_ATTR_CREATE_CQ_EVENT_FD, cq->async.file);
      wrong != 0) {
    return wrong;
  }
  cq->async.user_handle = cq->user_handle;
  cq->entry_size = in.cqe_size;
  cq->padded = (in.flags & kPadded) != 0;
  const auto size = std::uint64_t{cq->entries} * in.cqe_size;
  if (!are_aligned(in.buf_addr, in.db_addr, kCqRecordAlignment)) return EINVAL;
  if (!are_there(file_.memory, in.buf_addr, size, in.db_addr)) return EFAULT;
  if (const auto wrong = cq->locked.take(file_.memory.locked(), in.buf_addr, size); wrong != 0) {
    return wrong;
  }
  cq->record = in.db_addr;
  cq->entries_memory = {.begin = in.buf_addr, .size = size};
  if (!make_cq(*cq, in, (flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0)) return ENOMEM;
  const auto cqn = cq->cqn;
  const auto user_handle = cq->user_handle;
  const std::uint32_t last = cq->entries - 1;
  const auto wrong =
      Reply(request, file_.objects, std::move(cq))
          .put_handle(UVERBS_ATTR_CREATE_CQ_HANDLE)
          .put(UVERBS_ATTR_CREATE_CQ_RESP_CQE, last)
          .put(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{.cqn = cqn, .reserved = 0})
          .end();
  if (wrong == 0 && made_) made_(user_handle);
  return wrong;
}

Errno CompletionQueueCommands::destroy_cq(Request& request) {
  ib_uverbs_destroy_cq_resp out{};
  // Events that the program has not read are withdrawn. libibverbs waits until the program has
  // acknowledged those that it has read, so report only these.
  const auto wrong = destroy_object<CompletionQueue>(
      file_.objects, request.number(UVERBS_ATTR_DESTROY_CQ_HANDLE), [&](CompletionQueue& cq) {
        const auto unread = cq.channel == nullptr ? 0 : cq.channel->pipe.take_back(cq.user_handle);
        out.comp_events_reported = cq.completions_reported - static_cast<std::uint32_t>(unread);
        out.async_events_reported = cq.async.take_back();
      });
  return wrong != 0 ? wrong : request.put(UVERBS_ATTR_DESTROY_CQ_RESP, out);
}

Errno CompletionQueueCommands::resize_cq(Request& request) {
  const auto in = request.get<ib_uverbs_resize_cq>(UVERBS_ATTR_CORE_IN);
  const auto own = request.get<mlx5_ib_resize_cq>(UVERBS_ATTR_UHW_IN);
  CompletionQueue* cq = nullptr;
  if (const auto missing = file_.objects.find(in.cq_handle, cq); missing != 0) return missing;
  if (in.cqe == 0 || in.cqe >= 1u << file_.device.capabilities().get(hca_cap::log_max_cq_sz)) {
    return EINVAL;
  }
  const std::uint32_t entries = std::bit_ceil(in.cqe + 1);
  const auto size = std::uint64_t{entries} * own.cqe_size;
  if (own.cqe_size != cq->entry_size) return EINVAL;
  if (own.buf_addr % kPagePart != 0) return EINVAL;
  if (!is_there(file_.memory, own.buf_addr, size)) return EFAULT;
  LockedPages locked;
  if (const auto wrong = locked.take(file_.memory.locked(), own.buf_addr, size); wrong != 0) {
    return wrong;
  }
  using Field = spec::resize_cq_field_bit;
  Command<spec::modify_cq_in> command(command_opcode::MODIFY_CQ,
                                      pages_of(own.buf_addr, size) * sizeof(std::uint64_t));
  command.set(spec::modify_cq_in::op_mod,
              static_cast<std::uint32_t>(spec::modify_cq_op_mod::RESIZE));
  command.set(spec::modify_cq_in::cqn, cq->cqn);
  command.set(spec::modify_cq_in::modify_field_select,
              bit(Field::LOG_CQ_SIZE) | bit(Field::PAGE_OFFSET) | bit(Field::LOG_PAGE_SIZE));
  const auto context = command.sub(spec::modify_cq_in::cq_context_entry);
  context.set(spec::cq_context::log_cq_size, log2_of(entries));
  context.set(spec::cq_context::cqe_sz, cq->size_code());
  context.set(spec::cq_context::page_offset, page_offset_of(own.buf_addr));
  store_pages(command.all().subspan(spec::modify_cq_in::pas_offset), own.buf_addr);
  if (!file_.device.commands().run(command)) return EINVAL;
  cq->entries = entries;
  cq->locked = std::move(locked);
  cq->entries_memory = {.begin = own.buf_addr, .size = size};
  return request.put(UVERBS_ATTR_CORE_OUT,
                     ib_uverbs_resize_cq_resp{.cqe = entries - 1, .reserved = 0});
}

Errno CompletionQueueCommands::modify_cq(Request& request) {
  const auto in = request.get<ib_uverbs_ex_modify_cq>(UVERBS_ATTR_CORE_IN);
  CompletionQueue* cq = nullptr;
  if (const auto missing = file_.objects.find(in.cq_handle, cq); missing != 0) return missing;
  if (in.attr_mask == 0) return EINVAL;
  if ((in.attr_mask & ~kModerate) != 0) return EOPNOTSUPP;
  using Field = spec::modify_cq_field_bit;
  Command<spec::modify_cq_in> command(command_opcode::MODIFY_CQ);
  command.set(spec::modify_cq_in::cqn, cq->cqn);
  command.set(spec::modify_cq_in::modify_field_select,
              bit(Field::CQ_PERIOD) | bit(Field::CQ_MAX_COUNT));
  const auto context = command.sub(spec::modify_cq_in::cq_context_entry);
  if (in.attr.cq_period > kModerationPeriodMax) return EINVAL;
  context.set(spec::cq_context::cq_period, in.attr.cq_period);
  context.set(spec::cq_context::cq_max_count, in.attr.cq_count);
  return file_.device.commands().run(command) ? 0 : EINVAL;
}

}  // namespace softhca::uverbs
