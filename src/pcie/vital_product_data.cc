// The VPD resource list (PCI 3.0 appendix I): large resource tags, a checksum, an end tag.
#include <algorithm>
#include <cassert>

#include "pcie/config_space.h"

namespace softhca::pcie {
namespace {

constexpr std::uint8_t kIdentifierStringTag = 0x82;
constexpr std::uint8_t kReadOnlyTag = 0x90;
constexpr std::uint8_t kEndTag = 0x78;

void append(std::vector<std::byte>& to, std::uint8_t value) { to.push_back(std::byte{value}); }

void append(std::vector<std::byte>& to, const std::string& text) {
  std::transform(text.begin(), text.end(), std::back_inserter(to),
                 [](char c) { return static_cast<std::byte>(c); });
}

void append_large_tag(std::vector<std::byte>& to, std::uint8_t tag, std::size_t length) {
  append(to, tag);
  append(to, static_cast<std::uint8_t>(length & 0xff));  // no format: the bytes of a number
  append(to, static_cast<std::uint8_t>(length >> 8));    // no format: as above
}

}  // namespace

std::vector<std::byte> VitalProductData::encode() const {
  std::vector<std::byte> out;
  append_large_tag(out, kIdentifierStringTag, product_name.size());
  append(out, product_name);

  constexpr std::size_t kFieldHeader = 3;    // keyword and length
  constexpr std::size_t kChecksumField = 4;  // RV, length 1, the checksum
  std::size_t length = kChecksumField;
  for (const auto& field : read_only) length += kFieldHeader + field.value.size();
  append_large_tag(out, kReadOnlyTag, length);
  for (const auto& field : read_only) {
    assert(field.keyword.size() == 2 && field.value.size() <= 255);
    append(out, field.keyword);
    append(out, static_cast<std::uint8_t>(field.value.size()));
    append(out, field.value);
  }
  append(out, std::string("RV"));
  append(out, std::uint8_t{1});
  // The checksum makes the sum of all bytes from the first tag up to and including itself zero.
  std::uint8_t sum = 0;
  for (const auto byte : out)
    sum = static_cast<std::uint8_t>(sum + static_cast<std::uint8_t>(byte));
  append(out, static_cast<std::uint8_t>(-sum));
  append(out, kEndTag);
  return out;
}

}  // namespace softhca::pcie
