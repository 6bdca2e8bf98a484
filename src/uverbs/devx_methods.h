// The commands to the device that a program sends by DevX (kernel interface 4.13).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "uverbs/devx_channels.h"
#include "uverbs/devx_object.h"
#include "uverbs/method.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Commands about the device, and about objects (devx_objects.cc).
class DevxCommands {
 public:
  DevxCommands(const OpenFile& file, const DevxChannels& channels)
      : file_(file), channels_(channels) {}

  static std::span<const Method<DevxCommands>> methods();

 private:
  Errno other(Request& request);
  Errno query_uar(Request& request);
  Errno query_eqn(Request& request);
  Errno create(Request& request);
  Errno destroy(Request& request);
  Errno modify(Request& request);
  Errno query(Request& request);
  Errno async_query(Request& request);

  /// The user context for a command: the program's own, or the shared one for some queries.
  Errno find_uid(std::span<const std::byte> command, std::uint16_t& uid) const;
  void start_doorbells(DevxObject& object);
  void note_change(Object& object, std::span<const std::byte> command);

  const OpenFile& file_;
  const DevxChannels& channels_;
};

}  // namespace softhca::uverbs
