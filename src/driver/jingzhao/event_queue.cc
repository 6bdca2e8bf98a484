#include "driver/jingzhao/event_queue.h"

#include <array>
#include <atomic>

#include "driver/jingzhao/hca.h"
#include "driver/jingzhao/owned_entries.h"
#include "util/log.h"

namespace softhca::driver::jingzhao {

using spec::eq_context;
using spec::eqe;

util::Result<std::unique_ptr<EventQueue>> EventQueue::create(Hca& hca, std::uint32_t eqn,
                                                             unsigned vector) {
  std::unique_ptr<EventQueue> made(new EventQueue(hca, eqn, vector));
  auto memory = DmaBuffer::allocate(hca.host(), std::size_t{eqe::kSize} << kLogEntries);
  if (!memory) return tl::unexpected(memory.error());
  made->memory_ = std::move(*memory);
  give_all(made->memory_.bytes());
  auto key = MemoryKey::of_queue(hca, 0, made->memory_);
  if (!key) return tl::unexpected(key.error());
  made->key_ = std::move(*key);
  util::Struct<eq_context> context;
  context.set(eq_context::tr, 1);
  context.set(eq_context::state_armed, 1);
  context.set(eq_context::start, made->memory_.iova());
  context.set(eq_context::logsize, kLogEntries);
  context.set(eq_context::intr, vector);
  context.set(eq_context::lkey, made->key_->key());
  const auto done =
      hca.run({.op = spec::command_opcode::SW2HW_EQ, .in_modifier = eqn, .in = context.bytes()});
  if (!done) return tl::unexpected(done.error());
  made->exists_ = true;
  return made;
}

EventQueue::~EventQueue() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "EQ {}: {}", eqn_, done.error().message);
  }
}

util::Result<void> EventQueue::destroy() {
  if (!std::exchange(exists_, false)) return {};
  return hca_.run({.op = spec::command_opcode::HW2SW_EQ, .in_modifier = eqn_});
}

std::optional<Event> EventQueue::poll() {
  const auto mask = (std::uint32_t{1} << kLogEntries) - 1;
  const auto entry =
      memory_.bytes().subspan(std::size_t{consumer_ & mask} * eqe::kSize, eqe::kSize);
  if (!is_ours(entry)) return std::nullopt;
  const util::View<eqe> view(entry);
  Event event{.type = spec::event_type(view.get(eqe::type)),
              .number = view.get(eqe::number),
              .subtype = static_cast<std::uint8_t>(view.get(eqe::subtype))};
  if (event.type == spec::event_type::CQ_ERROR) {
    const util::View<spec::cq_error_eqe> error(entry);
    event.syndrome = static_cast<std::uint8_t>(error.get(spec::cq_error_eqe::syndrome));
  }
  give_back(entry);
  ++consumer_;
  return event;
}

void EventQueue::arm() {
  std::array<std::byte, sizeof(std::uint32_t)> doorbell;
  util::store_le32(doorbell.data(), eqn_);
  hca_.host().write_bar(kUarBar, hca_.uar() + spec::uar_page::arm_eqn.kOffset, doorbell);
}

}  // namespace softhca::driver::jingzhao
