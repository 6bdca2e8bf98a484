// CREATE_CQ, DESTROY_CQ, QUERY_CQ, MODIFY_CQ (PRM 12.7).

#include <optional>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/event/completion_queue.h"
#include "connectx/event/event_queue.h"
#include "spec/connectx/cq.h"

namespace softhca::connectx {

namespace {

using CqContext = spec::connectx::cq_context;
using CreateCq = spec::connectx::create_cq_in;
using CqeSize = spec::connectx::cqe_size;
using MiniCqe = spec::connectx::mini_cqe_format;

CommandResult unknown_cq(std::string_view section) {
  return refuse(Status::BAD_RESOURCE, section, "unknown CQ");
}

std::optional<MiniCqe> compression_of(util::View<CqContext> context) {
  if (context.get(CqContext::cqe_compression_en) == 0) return std::nullopt;
  return static_cast<MiniCqe>(context.get(CqContext::mini_cqe_res_format));
}

CommandResult check_compression(util::View<CqContext> context) {
  constexpr std::string_view kTable = "PRM Table 76";
  const auto format = compression_of(context);
  if (!format) return {};
  if (context.get(CqContext::cqe_sz) != static_cast<std::uint32_t>(CqeSize::BYTES_64)) {
    return refuse(Status::BAD_PARAM, kTable, "cqe_compression_en with CQEs of 128 bytes");
  }
  if (*format != MiniCqe::HASH && *format != MiniCqe::CHECKSUM) {
    return refuse(Status::BAD_PARAM, kTable, "mini_cqe_res_format without its capability");
  }
  if (context.get(CqContext::cqe_compression_layout) != 0) {
    return refuse(Status::BAD_PARAM, "mlx5 driver interface: CQ context",
                  "cqe_compression_layout without its capability");
  }
  return {};
}

CommandResult check_cq(DriverState& driver, util::View<CqContext> context) {
  constexpr std::string_view kSection = "PRM 12.7.1";
  constexpr std::string_view kTable = "PRM Table 76";
  if (context.get(CqContext::log_cq_size) > driver.limits().log_max_cq_sz) {
    return refuse(Status::EXCEED_LIM, kSection, "log_cq_size above log_max_cq_sz");
  }
  if (!driver.resources().uars().contains(UarPage(context.get(CqContext::uar_page)))) {
    return refuse(Status::BAD_RESOURCE, kSection, "unknown UAR");
  }
  if (driver.event_queues().find(Eqn(context.get(CqContext::c_eqn))) == nullptr) {
    return refuse(Status::BAD_RESOURCE, kSection, "unknown EQ");
  }
  if (context.get(CqContext::cqe_sz) > static_cast<std::uint32_t>(CqeSize::BYTES_128_PADDED)) {
    return refuse(Status::BAD_PARAM, kTable, "unknown cqe_sz");
  }
  if (context.get(CqContext::scqe_break_moderation_en) != 0) {
    return refuse(Status::BAD_PARAM, kTable, "scqe_break_moderation_en without its capability");
  }
  if (auto result = check_compression(context); !result) return result;
  if (context.get(CqContext::cq_period_mode) != 0) {
    return refuse(Status::BAD_PARAM, kTable, "cq_period_mode without its capability");
  }
  if (context.get(CqContext::apu_cq) != 0) {
    return refuse(Status::BAD_PARAM, "mlx5 driver interface: CQ context",
                  "apu_cq is not a capability");
  }
  return {};
}

void write_context(const CompletionQueue& cq, util::MutableView<CqContext> context) {
  const auto& attributes = cq.attributes();
  context.set(CqContext::status, static_cast<std::uint8_t>(cq.status()));
  const auto cqe_size = attributes.stride == 64 ? CqeSize::BYTES_64
                        : attributes.padded     ? CqeSize::BYTES_128_PADDED
                                                : CqeSize::BYTES_128;
  context.set(CqContext::cqe_sz, static_cast<std::uint8_t>(cqe_size));
  context.set(CqContext::cc, attributes.collapsed);
  context.set(CqContext::oi, attributes.overrun_ignore);
  if (attributes.compression) {
    context.set(CqContext::cqe_compression_en, 1);
    context.set(CqContext::mini_cqe_res_format, static_cast<std::uint8_t>(*attributes.compression));
  }
  context.set(CqContext::st, static_cast<std::uint8_t>(cq.arm_state()));
  context.set(CqContext::page_offset, attributes.page_offset);
  context.set(CqContext::log_cq_size, attributes.log_size);
  context.set(CqContext::uar_page, attributes.uar_page.value());
  context.set(CqContext::cq_period, attributes.period);
  context.set(CqContext::cq_max_count, attributes.max_count);
  context.set(CqContext::c_eqn, attributes.eqn.value());
  context.set(CqContext::log_page_size, attributes.log_page_size);
  context.set(CqContext::last_notified_index, cq.last_notified());
  context.set(CqContext::last_solicit_index, cq.last_solicited());
  context.set(CqContext::consumer_counter, cq.ring().consumer());
  context.set(CqContext::producer_counter, cq.ring().producer());
  context.set(CqContext::dbr_addr, attributes.queue.dbr_addr);
}

}  // namespace

CommandResult create_cq(DriverState& driver, const Command& command) {
  using Out = spec::connectx::create_cq_out;
  constexpr std::string_view kSection = "PRM 12.7.1";
  const auto in = command.input<CreateCq>();
  const auto context = in.get(CreateCq::cq_context_entry);
  if (auto result = check_cq(driver, context); !result) return result;
  CompletionQueue::Attributes attributes;
  attributes.log_size = context.get(CqContext::log_cq_size);
  attributes.stride =
      context.get(CqContext::cqe_sz) == static_cast<std::uint32_t>(CqeSize::BYTES_64) ? 64 : 128;
  attributes.padded =
      context.get(CqContext::cqe_sz) == static_cast<std::uint32_t>(CqeSize::BYTES_128_PADDED);
  attributes.overrun_ignore = context.get(CqContext::oi) != 0;
  attributes.collapsed = context.get(CqContext::cc) != 0;
  attributes.compression = compression_of(context);
  attributes.uar_page = UarPage(context.get(CqContext::uar_page));
  attributes.eqn = Eqn(context.get(CqContext::c_eqn));
  attributes.period = static_cast<std::uint16_t>(context.get(CqContext::cq_period));
  attributes.max_count = static_cast<std::uint16_t>(context.get(CqContext::cq_max_count));
  attributes.log_page_size = context.get(CqContext::log_page_size);
  attributes.page_offset = context.get(CqContext::page_offset);
  QueuePlace place{.log_page_size = attributes.log_page_size,
                   .page_offset = attributes.page_offset,
                   .size = std::uint64_t{attributes.stride} << attributes.log_size,
                   .pas = command.in_tail(CreateCq::pas_offset),
                   .dbr_addr = context.get(CqContext::dbr_addr),
                   .is_written = true,
                   .record_alignment = kCqRecordAlignment};
  place.set_umem(in.get(CreateCq::cq_umem_valid) != 0, in.get(CreateCq::cq_umem_id),
                 in.get(CreateCq::cq_umem_offset));
  place.set_dbr_umem(context.get(CqContext::dbr_umem_valid) != 0,
                     context.get(CqContext::dbr_umem_id));
  auto queue = driver.queue_mapper().map(place, kSection);
  if (!queue) return tl::unexpected(queue.error());
  attributes.queue = *std::move(queue);
  attributes.uar_use = driver.resources().uars().use(attributes.uar_page);
  attributes.eq_use = driver.event_queues().find(attributes.eqn)->use();
  auto* cq = driver.completion_queues().create(std::move(attributes));
  if (cq == nullptr) return refuse(Status::NO_RESOURCES, kSection, "all CQs are in use");
  if (driver.shared_doorbells() != nullptr) cq->listen(*driver.shared_doorbells());
  command.output<Out>().set(Out::cqn, cq->cqn().value());
  return {};
}

CommandResult destroy_cq(DriverState& driver, const Command& command) {
  using In = spec::connectx::destroy_cq_in;
  const Cqn cqn(command.input<In>().get(In::cqn));
  const auto* cq = driver.completion_queues().find(cqn);
  if (cq == nullptr) return unknown_cq("PRM 12.7.2");
  if (cq->in_use()) return refuse(Status::BAD_RES_STATE, "PRM 12.7.2", "queues complete to the CQ");
  command.work.charge(cq->dismantle_work());
  driver.completion_queues().destroy(cqn);
  return {};
}

CommandResult query_cq(DriverState& driver, const Command& command) {
  using In = spec::connectx::query_cq_in;
  using Out = spec::connectx::query_cq_out;
  const auto* cq = driver.completion_queues().find(Cqn(command.input<In>().get(In::cqn)));
  if (cq == nullptr) return unknown_cq("PRM 12.7.3");
  write_context(*cq, command.output<Out>().sub(Out::cq_context_entry));
  write_page_list(command.out.subspan(Out::pas_offset),
                  cq->attributes().queue.reported(cq->ring().memory().pages()));
  return {};
}

namespace {

using Modify = spec::connectx::modify_cq_in;

// no format: the bits are numbered in the document.
template <class Bit>
constexpr std::uint32_t mask(Bit bit) {
  return 1u << static_cast<unsigned>(bit);
}

/// MODIFY_CQ of the size (PRM 7.12.6).
CommandResult resize_cq(DriverState& driver, const Command& command, CompletionQueue& cq) {
  using Bit = spec::connectx::resize_cq_field_bit;
  constexpr std::string_view kSection = "PRM 7.12.6";
  const auto in = command.input<Modify>();
  const auto context = in.get(Modify::cq_context_entry);
  const auto select = in.get(Modify::modify_field_select);
  if ((select & ~(mask(Bit::LOG_CQ_SIZE) | mask(Bit::PAGE_OFFSET) | mask(Bit::LOG_PAGE_SIZE))) !=
      0) {
    return refuse(Status::BAD_PARAM, kSection, "unknown bits of resize_field_select");
  }
  const auto& now = cq.attributes();
  const auto chosen = [&](Bit bit, auto field, std::uint32_t before) {
    return (select & mask(bit)) != 0 ? context.get(field) : before;
  };
  const auto log_size = chosen(Bit::LOG_CQ_SIZE, CqContext::log_cq_size, now.log_size);
  if (log_size > driver.limits().log_max_cq_sz) {
    return refuse(Status::EXCEED_LIM, kSection, "log_cq_size above log_max_cq_sz");
  }
  if (cq.failed() || now.collapsed) {
    return refuse(Status::BAD_RES_STATE, kSection, "the CQ has failed, or has one entry (cc)");
  }
  (void)cq.flush();
  const auto unread = cq.unread();
  if (!unread || unread->in_ring >= cq.ring().size()) {
    return refuse(Status::BAD_RES_STATE, kSection, "no room for the CQE that ends the old buffer");
  }
  if (unread->in_ring + unread->held >= std::uint64_t{1} << log_size) {
    return refuse(Status::BAD_SIZE, kSection, "the CQ has more CQEs than the new buffer");
  }
  QueuePlace place{
      .log_page_size = chosen(Bit::LOG_PAGE_SIZE, CqContext::log_page_size, now.log_page_size),
      .page_offset = chosen(Bit::PAGE_OFFSET, CqContext::page_offset, now.page_offset),
      .size = std::uint64_t{now.stride} << log_size,
      .pas = command.in_tail(Modify::pas_offset),
      .is_written = true};
  place.set_umem(in.get(Modify::cq_umem_valid) != 0, in.get(Modify::cq_umem_id),
                 in.get(Modify::cq_umem_offset));
  auto queue = driver.queue_mapper().map(place, kSection);
  if (!queue) return tl::unexpected(queue.error());
  if (!cq.resize(*std::move(queue), log_size, place.log_page_size, place.page_offset)) {
    return refuse(Status::BAD_RES_STATE, kSection, "the old buffer is not mapped any more");
  }
  return {};
}

}  // namespace

CommandResult modify_cq(DriverState& driver, const Command& command) {
  using In = Modify;
  using Bit = spec::connectx::modify_cq_field_bit;
  constexpr std::string_view kSection = "PRM 12.7.4";
  using Kind = spec::connectx::modify_cq_op_mod;
  const auto in = command.input<In>();
  const auto kind = static_cast<Kind>(command.op_mod);
  if (kind != Kind::MODIFY && kind != Kind::RESIZE) {
    return refuse(Status::BAD_OP, kSection, "unknown op_mod");
  }
  auto* cq = driver.completion_queues().find(Cqn(in.get(In::cqn)));
  if (cq == nullptr) return unknown_cq(kSection);
  if (kind == Kind::RESIZE) return resize_cq(driver, command, *cq);
  const auto select = in.get(In::modify_field_select);
  if ((select & ~(mask(Bit::CQ_PERIOD) | mask(Bit::CQ_MAX_COUNT))) != 0) {
    return refuse(Status::BAD_PARAM, kSection, "a field whose capability is not set");
  }
  const auto context = in.get(In::cq_context_entry);
  auto period = cq->attributes().period;
  auto max_count = cq->attributes().max_count;
  if ((select & mask(Bit::CQ_PERIOD)) != 0) {
    period = static_cast<std::uint16_t>(context.get(CqContext::cq_period));
  }
  if ((select & mask(Bit::CQ_MAX_COUNT)) != 0) {
    max_count = static_cast<std::uint16_t>(context.get(CqContext::cq_max_count));
  }
  cq->set_moderation(period, max_count);
  return {};
}

}  // namespace softhca::connectx
