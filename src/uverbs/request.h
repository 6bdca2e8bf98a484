// One call of ioctl(RDMA_VERBS_IOCTL): a header and attributes. Each attribute is a value, a piece
// of the program's memory, an object or a descriptor (Linux: rdma_user_ioctl_cmds.h; kernel
// interface 3.1).
//
// All fields are in host byte order.
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "uverbs/user_memory.h"

namespace softhca::uverbs {

/// 0, or a number of errno.h.
using Errno = int;

/// A method's requirements on one attribute.
struct AttributeRule {
  enum class Kind : std::uint8_t { kIn, kOut, kObject, kNewObject, kDescriptor, kNewDescriptor };
  static constexpr std::uint16_t kAnySize = UINT16_MAX;
  std::uint16_t id;
  Kind kind;
  bool mandatory = true;
  // Bytes, for kIn and kOut.
  std::uint16_t size_min = 0;
  std::uint16_t size_max = kAnySize;
  /// For kIn: later bytes must be 0.
  std::uint16_t size_known = kAnySize;
};

class Request {
 public:
  /// Reads the request at `argument`. Nonzero: it is not a valid request.
  Errno parse(const UserMemory& memory, std::uint64_t argument);

  std::uint16_t object() const { return header_.object_id; }
  std::uint16_t method() const { return header_.method_id; }
  /// Checks the attributes against the method's rules (kernel interface 3.2).
  Errno check(std::span<const AttributeRule> rules) const;

  bool has(std::uint16_t id) const { return find(id) != nullptr; }
  /// Bytes of an attribute; 0 if it is absent.
  std::size_t size(std::uint16_t id) const;

  // Inputs. Absent or shorter attributes read as zeros.
  template <class T>
  T get(std::uint16_t id) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    (void)copy_in(id, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  /// Whether all bytes of an input from `known` on are 0. False if they cannot be read.
  bool is_zero_behind(std::uint16_t id, std::size_t known) const;
  /// EFAULT if the memory is not mapped.
  Errno copy_in(std::uint16_t id, std::span<std::byte> out) const;
  /// The form of an attribute (uverbs_attr.attr_data.enum_data).
  std::uint8_t variant(std::uint16_t id) const;
  /// The number of an object or a descriptor.
  std::int64_t number(std::uint16_t id) const;

  // Outputs. A longer attribute is filled with zeros; a shorter one truncates the value.
  Errno put_bytes(std::uint16_t id, std::span<const std::byte> bytes);
  template <class T>
  Errno put(std::uint16_t id, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return put_bytes(id, std::as_bytes(std::span(&value, 1)));
  }
  /// Returns the number of a new object or descriptor.
  Errno put_number(std::uint16_t id, std::int64_t number);

 private:
  /// As many as fit in one page, the kernel's limit.
  static constexpr std::size_t kAttributesMax = (4096 - sizeof(ib_uverbs_ioctl_hdr)) / 16;

  /// ib_uverbs_ioctl_hdr.
  struct Header {
    std::uint16_t length;
    std::uint16_t object_id;
    std::uint16_t method_id;
    std::uint16_t num_attrs;
    std::uint64_t reserved1;
    std::uint32_t driver_id;
    std::uint32_t reserved2;
  };
  static_assert(sizeof(Header) == sizeof(ib_uverbs_ioctl_hdr));

  const ib_uverbs_attr* find(std::uint16_t id) const;
  Errno mark_output(const ib_uverbs_attr& attribute, const std::uint64_t* data);

  const UserMemory* memory_ = nullptr;
  std::uint64_t argument_ = 0;
  Header header_{};
  std::array<ib_uverbs_attr, kAttributesMax> attributes_;
};

}  // namespace softhca::uverbs
