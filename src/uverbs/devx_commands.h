// Commands of the device in a program's own words (DevX): which there are, which object each is
// about, and what the kernel adds (host-door contract 4.13).
//
// Bytes are a program's: of any length from kDevxHeader on, with anything in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "spec/connectx/opcodes.h"

namespace softhca::uverbs {

/// Bytes that an input and an output have at least: general_obj_in_cmd_hdr,
/// general_obj_out_cmd_hdr.
inline constexpr std::size_t kDevxHeader = 16;

/// An object, by the command that makes its kind: kinds have number spaces of their own.
struct DevxName {
  softhca::spec::connectx::command_opcode maker{};
  std::uint32_t number = 0;
  bool operator==(const DevxName&) const = default;
};

/// Where a queue or a key lies that a command makes, by UMEMs (0: none).
struct DevxPlace {
  std::uint32_t memory = 0;  ///< of the queue
  std::uint32_t record_memory = 0;
  std::uint64_t record_offset = 0;
  std::uint32_t uar = 0;
};

softhca::spec::connectx::command_opcode opcode_of(std::span<const std::byte> in);
void set_uid(std::span<std::byte> in, std::uint16_t uid);

/// A command that makes an object, if the device has such objects.
bool makes_object(std::span<const std::byte> in);
/// Of a command that changes an object; nothing if it is none, or nobody can say which.
std::optional<DevxName> changed_object(std::span<const std::byte> in);
/// Likewise of one that tells of an object.
std::optional<DevxName> asked_object(std::span<const std::byte> in);
/// A command that tells of the device.
bool is_general(std::span<const std::byte> in);
/// One that programs may ask which have no context of their own (DevX), too.
bool is_for_everybody(std::span<const std::byte> in);

/// Says that queues and records lie in UMEMs. A list of keys does not.
void mark_umems(std::span<std::byte> in);
DevxPlace place_of(std::span<const std::byte> in);
/// Of a command that the device has executed. @pre makes_object(in)
DevxName made_object(std::span<const std::byte> in, std::span<const std::byte> out);
/// The command that destroys what `in` has made, in the name of the same context.
std::vector<std::byte> end_of(std::span<const std::byte> in, const DevxName& made);

}  // namespace softhca::uverbs
