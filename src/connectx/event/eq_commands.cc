// CREATE_EQ, DESTROY_EQ, QUERY_EQ, GEN_EQE (PRM 12.6).

#include <algorithm>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/event/event_queue.h"
#include "connectx/queue/shared_doorbells.h"
#include "spec/connectx/eq.h"
#include "util/bits.h"

namespace softhca::connectx {

namespace {

using EqContext = spec::connectx::eq_context;
using CreateEq = spec::connectx::create_eq_in;

/// event_bitmask is four quadwords; bit n of quadword i is event type 64 * i + n (mlx5 driver
/// interface).
constexpr std::size_t kTypesPerWord = 64;

std::bitset<256> read_events(std::span<const std::byte> mask) {
  std::bitset<256> events;
  for (std::size_t type = 0; type < events.size(); ++type) {
    const auto word = util::load_be64(mask.data() + type / kTypesPerWord * sizeof(std::uint64_t));
    events[type] = util::has_bit(word, static_cast<unsigned>(type % kTypesPerWord));
  }
  return events;
}

void write_events(const std::bitset<256>& events, std::span<std::byte> mask) {
  for (std::size_t type = 0; type < events.size(); ++type) {
    auto* at = mask.data() + type / kTypesPerWord * sizeof(std::uint64_t);
    const auto bit = std::uint64_t{events[type]} << type % kTypesPerWord;
    util::store_be64(at, util::load_be64(at) | bit);
  }
}

CommandResult check_eq(DriverState& driver, util::View<EqContext> context) {
  constexpr std::string_view kSection = "PRM 12.6.1";
  if (context.get(EqContext::log_eq_size) > driver.limits().log_max_eq_sz) {
    return refuse(Status::EXCEED_LIM, kSection, "log_eq_size above log_max_eq_sz");
  }
  if (!driver.resources().uars().contains(UarPage(context.get(EqContext::uar_page)))) {
    return refuse(Status::BAD_RESOURCE, kSection, "unknown UAR");
  }
  // An EQ has no doorbell record, and a register of a shared page keeps only the last store to it.
  if (driver.shared_doorbells() != nullptr &&
      SharedDoorbells::contains(UarPage(context.get(EqContext::uar_page)))) {
    return refuse(Status::BAD_RESOURCE, kSection, "this UAR is mapped into a guest's processes");
  }
  if (context.get(EqContext::intr) >= driver.msix_vectors()) {
    return refuse(Status::BAD_INDEX, kSection, "intr is not an MSI-X vector of the device");
  }
  if (context.get(EqContext::page_offset) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 94", "page_offset must be 0");
  }
  if (context.get(EqContext::ec) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 94", "collapsed EQs are not implemented");
  }
  return {};
}

CommandResult unknown_eq(std::string_view section) {
  return refuse(Status::BAD_RESOURCE, section, "unknown EQ");
}

}  // namespace

CommandResult create_eq(DriverState& driver, const Command& command) {
  using Out = spec::connectx::create_eq_out;
  constexpr std::string_view kSection = "PRM 12.6.1";
  const auto in = command.input<CreateEq>();
  const auto context = in.get(CreateEq::eq_context_entry);
  if (auto result = check_eq(driver, context); !result) return result;
  EventQueue::Attributes attributes;
  attributes.log_size = context.get(EqContext::log_eq_size);
  attributes.uar_page = UarPage(context.get(EqContext::uar_page));
  attributes.vector = static_cast<std::uint16_t>(context.get(EqContext::intr));
  attributes.overrun_ignore = context.get(EqContext::oi) != 0;
  attributes.log_page_size = context.get(EqContext::log_page_size);
  attributes.events = read_events(in.get(CreateEq::event_bitmask));
  auto queue = driver.queue_mapper().map({.log_page_size = attributes.log_page_size,
                                          .size = std::uint64_t{kEqeSize} << attributes.log_size,
                                          .pas = command.in_tail(CreateEq::pas_offset),
                                          .is_written = true},
                                         kSection);
  if (!queue) return tl::unexpected(queue.error());
  attributes.queue = *std::move(queue);
  attributes.uar_use = driver.resources().uars().use(attributes.uar_page);
  const auto* eq = driver.event_queues().create(std::move(attributes));
  if (eq == nullptr) return refuse(Status::NO_RESOURCES, kSection, "all EQs are in use");
  command.output<Out>().set(Out::eq_number, eq->eqn().value());
  return {};
}

CommandResult destroy_eq(DriverState& driver, const Command& command) {
  using In = spec::connectx::destroy_eq_in;
  const Eqn eqn(command.input<In>().get(In::eq_number));
  const auto* eq = driver.event_queues().find(eqn);
  if (eq == nullptr) return unknown_eq("PRM 12.6.2");
  if (eq->in_use()) return refuse(Status::BAD_RES_STATE, "PRM 12.6.2", "CQs report to the EQ");
  command.work.charge(eq->ring().memory().dismantle_work());
  driver.event_queues().destroy(eqn);
  return {};
}

CommandResult query_eq(DriverState& driver, const Command& command) {
  using In = spec::connectx::query_eq_in;
  using Out = spec::connectx::query_eq_out;
  using Arm = spec::connectx::eq_arm_state;
  auto* eq = driver.event_queues().find(Eqn(command.input<In>().get(In::eq_number)));
  if (eq == nullptr) return unknown_eq("PRM 12.6.3");
  const auto out = command.output<Out>();
  const auto context = out.sub(Out::eq_context_entry);
  const auto& attributes = eq->attributes();
  context.set(EqContext::status, static_cast<std::uint8_t>(eq->status()));
  context.set(EqContext::oi, attributes.overrun_ignore);
  context.set(EqContext::st, static_cast<std::uint8_t>(eq->armed() ? Arm::ARMED : Arm::FIRED));
  context.set(EqContext::log_eq_size, attributes.log_size);
  context.set(EqContext::uar_page, attributes.uar_page.value());
  context.set(EqContext::intr, attributes.vector);
  context.set(EqContext::log_page_size, attributes.log_page_size);
  context.set(EqContext::consumer_counter, eq->ring().consumer());
  context.set(EqContext::producer_counter, eq->ring().producer());
  write_events(attributes.events, out.sub(Out::event_bitmask));
  write_page_list(command.out.subspan(Out::pas_offset), eq->ring().memory().pages());
  return {};
}

CommandResult gen_eqe(DriverState& driver, const Command& command) {
  using In = spec::connectx::gen_eqe_in;
  using Eqe = spec::connectx::eqe;
  const auto in = command.input<In>();
  auto* eq = driver.event_queues().find(Eqn(in.get(In::eq_number)));
  if (eq == nullptr) return unknown_eq("PRM 12.6.4");
  const util::View<Eqe> eqe(in.get(In::eqe));
  EventData data;
  std::ranges::copy(eqe.get(Eqe::event_data), data.begin());
  if (!eq->post(static_cast<std::uint8_t>(eqe.get(Eqe::event_type)),
                static_cast<std::uint8_t>(eqe.get(Eqe::event_sub_type)), data)) {
    return refuse(Status::NO_RESOURCES, "PRM 12.6.4", "the EQ is full, or its memory is gone");
  }
  return {};
}

}  // namespace softhca::connectx
