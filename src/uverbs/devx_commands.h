// The DevX commands: which exist, which object each is about, and what the kernel adds (kernel
// interface 4.13).
//
// Their bytes come from a program: any length from kDevxHeader on, any content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "spec/connectx/objects.h"
#include "spec/connectx/opcodes.h"

namespace softhca::uverbs {

/// Minimum bytes of an input and of an output: general_obj_in_cmd_hdr, general_obj_out_cmd_hdr.
inline constexpr std::size_t kDevxHeader = 16;

/// An object of a program, by kind and number.
struct DevxName {
  softhca::spec::connectx::object_kind kind{};
  std::uint32_t number = 0;
  bool operator==(const DevxName&) const = default;
};

/// The UMEMs of the queue or key that a command creates (0: none).
struct DevxPlace {
  std::uint32_t memory = 0;  ///< holds the queue or the key's translations
  std::uint32_t record_memory = 0;
  std::uint64_t record_offset = 0;
  std::uint32_t uar = 0;
};

softhca::spec::connectx::command_opcode opcode_of(std::span<const std::byte> in);
void set_uid(std::span<std::byte> in, std::uint16_t uid);

/// Whether the command creates an object, of a kind that the device has.
bool makes_object(std::span<const std::byte> in);
/// The object that a command changes. Nothing if it changes none, or none that can be determined.
std::optional<DevxName> changed_object(std::span<const std::byte> in);
/// The object that a command queries. Nothing as above.
std::optional<DevxName> asked_object(std::span<const std::byte> in);
/// Whether the command queries the device.
bool is_general(std::span<const std::byte> in);
/// Whether programs without a user context (DevX) may send the command too.
bool is_for_everybody(std::span<const std::byte> in);

/// Marks queues and doorbell records as lying in UMEMs. A list of keys does not lie in one.
void mark_umems(std::span<std::byte> in);
DevxPlace place_of(std::span<const std::byte> in);
/// The object that an executed command has created. @pre makes_object(in)
DevxName made_object(std::span<const std::byte> in, std::span<const std::byte> out);
/// The command that destroys the object that `in` created, with the same user context.
std::vector<std::byte> end_of(std::span<const std::byte> in, const DevxName& made);

}  // namespace softhca::uverbs
