// The answer to a call that makes an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "uverbs/object_table.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

/// Writes the attributes of the answer. If one cannot be written, end() removes the object.
class Reply {
 public:
  /// Adds `object` to the table.
  Reply(Request& request, Objects& objects, std::unique_ptr<Object> object)
      : request_(request), objects_(objects), handle_(objects.add(std::move(object))) {}

  std::uint32_t handle() const { return handle_; }

  /// Returns the handle in an attribute of a new object.
  Reply& put_handle(std::uint16_t id) {
    if (wrong_ == 0) wrong_ = request_.put_number(id, handle_);
    return *this;
  }
  Reply& put_bytes(std::uint16_t id, std::span<const std::byte> bytes) {
    if (wrong_ == 0) wrong_ = request_.put_bytes(id, bytes);
    return *this;
  }
  template <class T>
  Reply& put(std::uint16_t id, const T& value) {
    if (wrong_ == 0) wrong_ = request_.put(id, value);
    return *this;
  }
  /// Nonzero: an answer failed, and the object is removed. Call it once.
  Errno end() {
    if (wrong_ != 0) objects_.remove(handle_);
    return wrong_;
  }

 private:
  Request& request_;
  Objects& objects_;
  std::uint32_t handle_;
  Errno wrong_ = 0;
};

}  // namespace softhca::uverbs
