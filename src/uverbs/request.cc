#include "uverbs/request.h"

#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

namespace softhca::uverbs {
namespace {

/// Values of at most this many bytes are stored in the attribute itself.
constexpr std::size_t kInline = sizeof(std::uint64_t);
constexpr std::uint32_t kDriverMlx5 = RDMA_DRIVER_MLX5;

static_assert(sizeof(ib_uverbs_ioctl_hdr) == 24 && sizeof(ib_uverbs_attr) == 16);

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

Errno Request::parse(const UserMemory& memory, std::uint64_t argument) {
  memory_ = &memory;
  argument_ = argument;
  if (!memory.read(argument, bytes_of(header_))) return EFAULT;
  const auto count = header_.num_attrs;
  if (count > kAttributesMax || header_.length != sizeof header_ + count * sizeof(ib_uverbs_attr) ||
      header_.driver_id != kDriverMlx5) {
    return EINVAL;
  }
  if (header_.reserved1 != 0 || header_.reserved2 != 0) return EPROTONOSUPPORT;
  const auto all = std::span(attributes_).first(count);
  if (!memory.read(argument + sizeof header_, std::as_writable_bytes(all))) return EFAULT;
  for (std::size_t i = 0; i != count; ++i) {
    for (std::size_t k = 0; k != i; ++k) {
      if (all[i].attr_id == all[k].attr_id) return EINVAL;
    }
  }
  return 0;
}

const ib_uverbs_attr* Request::find(std::uint16_t id) const {
  const auto all = std::span(attributes_).first(header_.num_attrs);
  const auto at = std::ranges::find(all, id, &ib_uverbs_attr::attr_id);
  return at == all.end() ? nullptr : &*at;
}

Errno Request::check(std::span<const AttributeRule> rules) const {
  for (const auto& attribute : std::span(attributes_).first(header_.num_attrs)) {
    const bool known = std::ranges::any_of(
        rules, [&](const AttributeRule& rule) { return rule.id == attribute.attr_id; });
    if (!known && (attribute.flags & UVERBS_ATTR_F_MANDATORY) != 0) return EPROTONOSUPPORT;
  }
  for (const auto& rule : rules) {
    const auto* attribute = find(rule.id);
    if (attribute == nullptr) {
      if (rule.mandatory) return EINVAL;
      continue;
    }
    const bool bytes =
        rule.kind == AttributeRule::Kind::kIn || rule.kind == AttributeRule::Kind::kOut;
    if (bytes && (attribute->len < rule.size_min || attribute->len > rule.size_max)) return EINVAL;
    if (rule.kind == AttributeRule::Kind::kIn && !is_zero_behind(rule.id, rule.size_known)) {
      // A structure of a later interface, or a number that is too large.
      return rule.size_max == AttributeRule::kAnySize ? EOPNOTSUPP : EINVAL;
    }
    if (!bytes && attribute->len != 0) return EINVAL;
  }
  return 0;
}

/// Allocates nothing: a program without memory gets a context.
bool Request::is_zero_behind(std::uint16_t id, std::size_t known) const {
  const auto* attribute = find(id);
  const std::size_t length = attribute == nullptr ? 0 : attribute->len;
  std::array<std::byte, 256> piece;
  for (auto at = known; at < length; at += piece.size()) {
    const auto bytes = std::span(piece).first(std::min(piece.size(), length - at));
    if (length <= kInline) {
      std::memcpy(bytes.data(), reinterpret_cast<const std::byte*>(&attribute->data) + at,
                  bytes.size());
    } else if (!memory_->read(attribute->data + at, bytes)) {
      return false;
    }
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (!std::ranges::all_of(bytes, is_zero)) return false;
  }
  return true;
}

std::size_t Request::size(std::uint16_t id) const {
  const auto* attribute = find(id);
  return attribute == nullptr ? 0 : attribute->len;
}

Errno Request::copy_in(std::uint16_t id, std::span<std::byte> out) const {
  std::ranges::fill(out, std::byte{0});
  const auto* attribute = find(id);
  if (attribute == nullptr) return 0;
  const auto count = std::min<std::size_t>(out.size(), attribute->len);
  if (attribute->len <= kInline) {
    std::memcpy(out.data(), &attribute->data, count);
    return 0;
  }
  return memory_->read(attribute->data, out.first(count)) ? 0 : EFAULT;
}

std::uint8_t Request::variant(std::uint16_t id) const {
  const auto* attribute = find(id);
  return attribute == nullptr ? std::uint8_t{0} : attribute->attr_data.enum_data.elem_id;
}

std::int64_t Request::number(std::uint16_t id) const {
  const auto* attribute = find(id);
  return attribute == nullptr ? -1 : static_cast<std::int64_t>(attribute->data);
}

/// Sets the valid flag, and the data if given, in the program's own attribute.
Errno Request::mark_output(const ib_uverbs_attr& attribute, const std::uint64_t* data) {
  const auto place = argument_ + sizeof header_ +
                     static_cast<std::uint64_t>(&attribute - attributes_.data()) * sizeof attribute;
  const auto flags = static_cast<std::uint16_t>(attribute.flags | UVERBS_ATTR_F_VALID_OUTPUT);
  bool written =
      memory_->write(place + offsetof(ib_uverbs_attr, flags), std::as_bytes(std::span(&flags, 1)));
  if (data != nullptr) {
    written = written && memory_->write(place + offsetof(ib_uverbs_attr, data),
                                        std::as_bytes(std::span(data, 1)));
  }
  return written ? 0 : EFAULT;
}

Errno Request::put_bytes(std::uint16_t id, std::span<const std::byte> bytes) {
  const auto* attribute = find(id);
  if (attribute == nullptr) return 0;
  const auto count = std::min<std::size_t>(bytes.size(), attribute->len);
  if (!memory_->write(attribute->data, bytes.first(count))) return EFAULT;
  if (attribute->len > count) {
    const std::vector<std::byte> zeros(attribute->len - count);
    if (!memory_->write(attribute->data + count, zeros)) return EFAULT;
  }
  return mark_output(*attribute, nullptr);
}

Errno Request::put_number(std::uint16_t id, std::int64_t number) {
  const auto* attribute = find(id);
  if (attribute == nullptr) return 0;
  const auto data = static_cast<std::uint64_t>(number);
  return mark_output(*attribute, &data);
}

}  // namespace softhca::uverbs
