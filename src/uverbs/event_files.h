// The descriptors from which a program reads its events of verbs: completion channels, and files of
// asynchronous events (kernel interface 6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "uverbs/context_options.h"
#include "uverbs/event_pipe.h"
#include "uverbs/method.h"
#include "uverbs/objects.h"

namespace softhca::uverbs {

/// Events of the port, with the values of ib_event_type.
enum class PortEvent : std::uint32_t {
  kActive = 9,  ///< IBTA 11.6.3.3, as the next one
  kError = 10,
  /// IBTA defines none: Linux sends it when a GID is added or removed.
  kGidChange = 18,
};

class EventFiles {
 public:
  explicit EventFiles(const ContextOptions& options) : options_(options) {}

  static std::span<const Method<EventFiles>> methods();
  static std::span<const WriteCommand<EventFiles>> write_commands();

  /// The file of objects that name no other; null: the program has none.
  const std::shared_ptr<EventFile>& async() const { return async_; }
  /// The file that an attribute names for an object's events, or async().
  Errno find_async(const Request& request, std::uint16_t attribute,
                   std::shared_ptr<EventFile>& file) const;
  /// The completion channel behind a descriptor; null: there is none.
  std::shared_ptr<EventFile> find_channel(int number) const;

  /// Writes an event of the port to all files of asynchronous events.
  void report_port_event(PortEvent event);
  /// Writes pending events to descriptors that had no room.
  void flush();
  /// Releases the descriptors that the program has closed.
  void drop_closed();

 private:
  using Files = std::unordered_map<std::uint64_t, std::shared_ptr<EventFile>>;  ///< by identity

  Errno alloc_async_events(Request& request);
  Errno create_comp_channel(Request& request);
  Errno make(std::size_t record, std::shared_ptr<EventFile>& file, int& number);

  const ContextOptions& options_;
  std::shared_ptr<EventFile> async_;
  Files async_files_;
  Files channels_;
  EventPipe::Waits wait_ = std::make_shared<bool>();  ///< some pipe has pending records
};

}  // namespace softhca::uverbs
