// An event queue (JingZhao 3.2.4; its entries: docs/jingzhao.md, gap 3).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "driver/dma_memory.h"
#include "driver/jingzhao/command_interface.h"
#include "driver/jingzhao/memory_key.h"
#include "spec/jingzhao/context.h"
#include "spec/jingzhao/cqe.h"

namespace softhca::driver::jingzhao {

class Hca;

struct Event {
  spec::event_type type{};
  std::uint32_t number = 0;   ///< of the CQ or QP
  std::uint8_t subtype = 0;   ///< PORT_CHANGE: port_change_subtype
  std::uint8_t syndrome = 0;  ///< CQ_ERROR: cq_error_syndrome
};

class EventQueue {
 public:
  static constexpr unsigned kLogEntries = 9;

  /// The queue is armed on creation.
  static util::Result<std::unique_ptr<EventQueue>> create(Hca& hca, std::uint32_t eqn,
                                                          unsigned vector);
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  unsigned vector() const { return vector_; }
  /// Returns the next event, if there is one.
  std::optional<Event> poll();
  /// The next event, or one that was not polled yet, raises the vector once.
  void arm();
  util::Result<void> destroy();

 private:
  EventQueue(Hca& hca, std::uint32_t eqn, unsigned vector)
      : hca_(hca), eqn_(eqn), vector_(vector) {}

  Hca& hca_;
  std::uint32_t eqn_;
  unsigned vector_;
  DmaBuffer memory_;
  std::unique_ptr<MemoryKey> key_;
  std::uint32_t consumer_ = 0;
  bool exists_ = false;
};

}  // namespace softhca::driver::jingzhao
