// One line of the method table: the call, its attributes, and the function that serves it.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>

#include "uverbs/context.h"

namespace softhca::uverbs {

struct Context::Method {
  std::uint16_t object;
  std::uint16_t method;
  std::span<const AttributeRule> attributes;
  Errno (Context::*serve)(Request&);
};

template <class T, std::uint16_t Handle>
Errno Context::destroy(Request& request) {
  const auto handle = request.number(Handle);
  T* object = nullptr;
  if (const auto missing = objects_.find(handle, object); missing != 0) return missing;
  if (object->users != 0) return EBUSY;
  if (const auto wrong = object->end(); wrong != 0) return wrong;
  objects_.remove(handle);
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

}  // namespace rules
}  // namespace softhca::uverbs
