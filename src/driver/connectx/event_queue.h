// An event queue (PRM 7.13): the device writes EQEs and raises one MSI-X vector if armed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "driver/connectx/command_queue.h"
#include "driver/dma_memory.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/opcodes.h"

namespace softhca::driver::connectx {

/// One event, copied out of the queue.
struct Event {
  spec::event_type type{};
  std::uint8_t sub_type = 0;
  std::array<std::byte, spec::eqe::event_data.kSize> data{};

  /// The event's data as one of the event_data_* structures.
  template <class Layout>
  util::View<Layout> as() const {
    static_assert(Layout::kSize <= spec::eqe::event_data.kSize);
    return util::View<Layout>(data);
  }
};

class EventQueue {
 public:
  struct Options {
    unsigned vector = 0;                   ///< MSI-X vector
    unsigned log_size = 8;                 ///< entries
    std::vector<spec::event_type> events;  ///< completion events need not be listed
    std::uint32_t uar = 0;                 ///< doorbell page
    /// CQs that processes create by their own commands (DevX) may use it for completion events.
    bool for_processes = false;
  };

  static util::Result<std::unique_ptr<EventQueue>> create(Host& host, CommandQueue& commands,
                                                          const Options& options);
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  std::uint32_t eqn() const { return eqn_; }
  unsigned vector() const { return vector_; }

  /// Returns the next event, if there is one. Reports the consumer index to the device from time to
  /// time, as arm() always does.
  std::optional<Event> poll();
  /// The next event, or one that is already queued, raises the interrupt once.
  void arm();
  /// DESTROY_EQ. The destructor does it too, but cannot report an error.
  util::Result<void> destroy();

 private:
  EventQueue(Host& host, CommandQueue& commands, const Options& options);
  util::Result<void> create_on_device(const Options& options);
  std::span<std::byte> entry(std::uint32_t index) const;
  void ring(std::size_t register_offset);

  Host& host_;
  CommandQueue& commands_;
  DmaBuffer ring_;
  std::uint32_t eqn_ = 0;
  unsigned vector_;
  unsigned log_size_;
  std::uint64_t doorbell_page_;
  std::uint32_t consumer_ = 0;
  std::uint32_t announced_ = 0;  ///< consumer index last reported to the device
  bool exists_ = false;
};

}  // namespace softhca::driver::connectx
