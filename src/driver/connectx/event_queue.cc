#include "driver/connectx/event_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "driver/connectx/uar.h"
#include "util/bits.h"
#include "util/log.h"

namespace softhca::driver::connectx {

using spec::command_opcode;
using spec::create_eq_in;
using spec::create_eq_out;
using spec::destroy_eq_in;
using spec::eq_context;
using spec::eq_doorbell_register;
using spec::eqe;

namespace {

/// UID of objects that the kernel shares with all user contexts (the mlx5 driver's
/// MLX5_SHARED_RESOURCE_UID).
constexpr std::uint16_t kSharedUid = 0xffff;

}  // namespace

EventQueue::EventQueue(Host& host, CommandQueue& commands, const Options& options)
    : host_(host),
      commands_(commands),
      vector_(options.vector),
      log_size_(options.log_size),
      doorbell_page_(uar_offset(options.uar)) {}

EventQueue::~EventQueue() {
  if (const auto done = destroy(); !done) {
    util::log(util::LogLevel::kWarning, "EQ {:#x}: {}", eqn_, done.error().message);
  }
}

util::Result<std::unique_ptr<EventQueue>> EventQueue::create(Host& host, CommandQueue& commands,
                                                             const Options& options) {
  std::unique_ptr<EventQueue> queue(new EventQueue(host, commands, options));
  if (auto done = queue->create_on_device(options); !done) return tl::unexpected(done.error());
  return queue;
}

util::Result<void> EventQueue::create_on_device(const Options& options) {
  const auto size = eqe::kSize << log_size_;
  auto ring = DmaBuffer::allocate(host_, size);
  if (!ring) return tl::unexpected(ring.error());
  ring_ = std::move(*ring);
  // Software owns an entry whose owner bit equals the lap's parity (PRM 7.13.2.1). In the first lap
  // that is 0, so every entry must have 1 until the device has written it.
  for (std::uint32_t i = 0; i < 1u << log_size_; ++i) {
    util::MutableView<eqe>(entry(i)).set(eqe::owner, 1);
  }

  Request<create_eq_in> in(command_opcode::CREATE_EQ, page_list_size(size));
  if (options.for_processes) in.set(create_eq_in::uid, kSharedUid);
  const auto context = in.sub(create_eq_in::eq_context_entry);
  context.set(eq_context::log_eq_size, log_size_);
  context.set(eq_context::uar_page, options.uar);
  context.set(eq_context::intr, vector_);
  // Four big-endian words of 64 bits; event type n is bit n % 64 of word n / 64.
  const auto mask = in.sub(create_eq_in::event_bitmask);
  for (const auto type : options.events) {
    const auto n = static_cast<std::size_t>(type);
    mask[n / 64 * 8 + 7 - n % 64 / 8] |= std::byte{1} << n % 8;
  }
  store_page_list(in.all().subspan(create_eq_in::pas_offset), ring_);
  const auto out = commands_.execute<create_eq_out>(in);
  if (!out) return tl::unexpected(out.error());
  eqn_ = out->get(create_eq_out::eq_number);
  exists_ = true;
  return {};
}

util::Result<void> EventQueue::destroy() {
  if (!std::exchange(exists_, false)) return {};
  Request<destroy_eq_in> in(command_opcode::DESTROY_EQ);
  in.set(destroy_eq_in::eq_number, eqn_);
  return commands_.run(in);
}

std::span<std::byte> EventQueue::entry(std::uint32_t index) const {
  const auto slot = index & ((1u << log_size_) - 1);
  return ring_.bytes().subspan(slot * eqe::kSize, eqe::kSize);
}

std::optional<Event> EventQueue::poll() {
  const util::View<eqe> e(entry(consumer_));
  if (e.get(eqe::owner) != util::has_bit(consumer_, log_size_)) return std::nullopt;
  std::atomic_thread_fence(std::memory_order_acquire);
  Event event;
  event.type = static_cast<spec::event_type>(e.get(eqe::event_type));
  event.sub_type = static_cast<std::uint8_t>(e.get(eqe::event_sub_type));
  std::ranges::copy(e.get(eqe::event_data), event.data.begin());
  ++consumer_;
  if (consumer_ - announced_ >= 1u << (log_size_ - 1)) {
    ring(spec::uar_page::eq_eqn.kOffset);
  }
  return event;
}

void EventQueue::arm() { ring(spec::uar_page::eq_arm_eqn.kOffset); }

void EventQueue::ring(std::size_t register_offset) {
  util::Struct<eq_doorbell_register> doorbell;
  doorbell.set(eq_doorbell_register::eqn, eqn_);
  doorbell.set(eq_doorbell_register::consumer_index,
               consumer_ & eq_doorbell_register::consumer_index.kMax);
  host_.write_bar(kUarBar, doorbell_page_ + register_offset, doorbell.bytes());
  announced_ = consumer_;
}

}  // namespace softhca::driver::connectx
