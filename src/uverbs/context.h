// One open device file and the ioctl() calls on it (kernel interface 3, 4).
#pragma once

#include <cstdint>
#include <optional>

#include "uverbs/clock_page.h"
#include "uverbs/commands.h"
#include "uverbs/context_options.h"
#include "uverbs/device.h"
#include "uverbs/devx_channels.h"
#include "uverbs/doorbell_pages.h"
#include "uverbs/event_files.h"
#include "uverbs/lost_memory.h"
#include "uverbs/memory_regions.h"
#include "uverbs/object_table.h"
#include "uverbs/open_file.h"
#include "uverbs/user_context.h"
#include "uverbs/user_memory.h"

namespace softhca::uverbs {

class Context {
 public:
  using Options = ContextOptions;

  /// `device` and `memory` must outlive this.
  Context(Device& device, const UserMemory& memory, Options options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Serves ioctl(RDMA_VERBS_IOCTL). Returns 0 or a number of errno.h.
  Errno serve(std::uint64_t argument);
  /// The ib_access_flags of the region with this handle; nothing if there is none.
  std::optional<std::uint32_t> region_access(std::uint32_t handle) const {
    return uverbs::region_access(objects_, handle);
  }
  /// Called when the device has found that the page at `page` is no longer mapped. Revokes the keys
  /// and destroys the DevX objects that use the page. If the access was a write, QPs of the key's
  /// protection domain end in the error state.
  void lose_memory(std::uint64_t page, bool was_write) {
    uverbs::lose_memory(objects_, page, was_write);
  }
  /// Updates the program's clock page; call this at least once an hour.
  void publish_clock() { (void)store_clock(device_, options_.wall_clock, options_.store); }
  /// Notifies the program that an entry of the GID table was changed or emptied.
  void report_gid_change() { events_.report_port_event(PortEvent::kGidChange); }
  /// Notifies the program that the link went down.
  void report_port_error() { events_.report_port_event(PortEvent::kError); }
  /// Notifies the program that the link came up.
  void report_port_active() { events_.report_port_event(PortEvent::kActive); }
  /// Writes pending events to descriptors that had no room.
  void flush_events();
  /// Releases the event descriptors that the program has closed.
  void drop_closed();

  /// Offset in the device file at which a doorbell page is mapped.
  static constexpr std::uint64_t page_offset(std::uint32_t page) {
    return uverbs::page_offset(page);
  }

 private:
  Device& device_;
  const UserMemory& memory_;
  Options options_;
  UserContext user_;
  Objects objects_;
  EventFiles events_{options_};
  OpenFile file_{device_, memory_, objects_, user_, events_};
  DevxChannels channels_{file_, options_};
  Commands commands_{file_, events_, channels_, options_};
};

}  // namespace softhca::uverbs
