// The tables of a class of commands: each line is a call, its rules, and the function that serves
// it.
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>

#include "uverbs/object_table.h"
#include "uverbs/request.h"
#include "uverbs/user_context.h"

namespace softhca::uverbs {

/// A method of ioctl(RDMA_VERBS_IOCTL).
template <class Commands>
struct Method {
  std::uint16_t object;
  std::uint16_t method;
  std::span<const AttributeRule> attributes;
  Errno (Commands::*serve)(Request&);
};

/// A list follows the command's structure, of a length that is in the structure.
inline constexpr std::uint16_t kListFollows = UINT16_MAX;

/// The form of a command that still has the form of write() (kernel interface 3.3).
struct WriteForm {
  std::uint32_t number;
  // Minimum sizes in bytes.
  std::uint16_t in;
  std::uint16_t out;
  std::uint16_t known = in;  ///< later bytes of the input must be 0
};

/// Its number in the extended numbering.
constexpr std::uint32_t extended(std::uint32_t number) {
  return number | IB_USER_VERBS_CMD_FLAG_EXTENDED;
}

template <class Commands>
struct WriteCommand {
  WriteForm form;
  Errno (Commands::*serve)(Request&);
};

/// The checks before a method is served.
Errno check_method(const Request& request, std::span<const AttributeRule> attributes,
                   const UserContext& user);
/// The checks before a command in the form of write() is served.
Errno check_write(const Request& request, const WriteForm& form, const UserContext& user);

/// Serves a request by its line of `table`. Nothing if the table has none.
template <class Commands>
std::optional<Errno> serve_method(std::span<const Method<Commands>> table, Commands& commands,
                                  const UserContext& user, Request& request) {
  for (const auto& method : table) {
    if (method.object != request.object() || method.method != request.method()) continue;
    const auto wrong = check_method(request, method.attributes, user);
    return wrong != 0 ? wrong : (commands.*method.serve)(request);
  }
  return std::nullopt;
}

/// The same for a command in the form of write().
template <class Commands>
std::optional<Errno> serve_write(std::span<const WriteCommand<Commands>> table, Commands& commands,
                                 const UserContext& user, Request& request) {
  const auto number = request.get<std::uint32_t>(UVERBS_ATTR_WRITE_CMD);
  for (const auto& command : table) {
    if (command.form.number != number) continue;
    const auto wrong = check_write(request, command.form, user);
    return wrong != 0 ? wrong : (commands.*command.serve)(request);
  }
  return std::nullopt;
}

/// Serves a method that destroys an object of type T. `leave` is called with the object once the
/// device has destroyed it.
template <class T, class Leave = void (*)(T&)>
Errno destroy_object(Objects& objects, std::int64_t handle, Leave leave = [](T&) {}) {
  T* object = nullptr;
  if (const auto missing = objects.find(handle, object); missing != 0) return missing;
  if (object->is_busy()) return EBUSY;
  if (const auto wrong = object->end(); wrong != 0) return wrong;
  leave(*object);
  objects.remove(handle);
  return 0;
}

namespace rules {

/// UVERBS_ATTR_MIN_SIZE.
constexpr AttributeRule in(std::uint16_t id, std::uint16_t size, bool mandatory = true) {
  return {id, AttributeRule::Kind::kIn, mandatory, size};
}
/// UVERBS_ATTR_TYPE.
constexpr AttributeRule value_in(std::uint16_t id, std::uint16_t size, bool mandatory = true) {
  return {id, AttributeRule::Kind::kIn, mandatory, size, size};
}
/// UVERBS_ATTR_STRUCT: a longer one of a later interface, if the rest is 0.
constexpr AttributeRule struct_in(std::uint16_t id, std::uint16_t size) {
  return {.id = id, .kind = AttributeRule::Kind::kIn, .size_min = size, .size_known = size};
}
/// UVERBS_ATTR_CONST_IN: a number of a type of `size` bytes. Linux takes it in 8 bytes only; it may
/// be shorter here.
constexpr AttributeRule const_in(std::uint16_t id, std::uint16_t size, bool mandatory = true) {
  return {id, AttributeRule::Kind::kIn, mandatory, size, 8, size};
}
/// UVERBS_ATTR_FLAGS_IN: 32 flags in 4 or 8 bytes.
constexpr AttributeRule flags_in(std::uint16_t id, bool mandatory = false) {
  return {id, AttributeRule::Kind::kIn, mandatory, 4, 8, 4};
}
/// UVERBS_ATTR_MIN_SIZE and UVERBS_ATTR_STRUCT.
constexpr AttributeRule out(std::uint16_t id, std::uint16_t size, bool mandatory = true) {
  return {id, AttributeRule::Kind::kOut, mandatory, size};
}
/// UVERBS_ATTR_TYPE.
constexpr AttributeRule value_out(std::uint16_t id, std::uint16_t size, bool mandatory = true) {
  return {id, AttributeRule::Kind::kOut, mandatory, size, size};
}
constexpr AttributeRule object(std::uint16_t id, bool mandatory = true) {
  return {id, AttributeRule::Kind::kObject, mandatory, 0};
}
constexpr AttributeRule made(std::uint16_t id) {
  return {id, AttributeRule::Kind::kNewObject, true, 0};
}
constexpr AttributeRule descriptor(std::uint16_t id, bool mandatory = false) {
  return {id, AttributeRule::Kind::kDescriptor, mandatory, 0};
}
constexpr AttributeRule new_descriptor(std::uint16_t id) {
  return {id, AttributeRule::Kind::kNewDescriptor, true, 0};
}

// The driver's own attributes, which any method may carry.
inline constexpr AttributeRule kDriverIn = in(UVERBS_ATTR_UHW_IN, 0, false);
inline constexpr AttributeRule kDriverOut = out(UVERBS_ATTR_UHW_OUT, 0, false);

}  // namespace rules
}  // namespace softhca::uverbs
