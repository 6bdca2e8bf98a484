#include "connectx/port/module_eeprom.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

namespace softhca::connectx {

namespace {

using Image = std::array<std::byte, 256>;

// Offsets of SFF-8636 (QSFP28), rev 2.10.
constexpr std::size_t kIdentifier = 0;
constexpr std::size_t kRevision = 1;
constexpr std::size_t kStatus = 2;
constexpr std::size_t kIdentifierCopy = 128;
constexpr std::size_t kExtendedIdentifier = 129;
constexpr std::size_t kConnector = 130;
constexpr std::size_t kSpecification = 131;
constexpr std::size_t kEncoding = 139;
constexpr std::size_t kBitRate = 140;
constexpr std::size_t kLengthCopper = 146;
constexpr std::size_t kDeviceTechnology = 147;
constexpr std::size_t kVendorName = 148;
constexpr std::size_t kVendorPartNumber = 168;
constexpr std::size_t kVendorRevision = 184;
constexpr std::size_t kBaseChecksum = 191;
constexpr std::size_t kExtendedSpecification = 192;
constexpr std::size_t kSerialNumber = 196;
constexpr std::size_t kDateCode = 212;
constexpr std::size_t kExtendedChecksum = 223;

void put(Image& image, std::size_t at, std::uint8_t value) { image[at] = std::byte{value}; }

/// Text fields are padded with blanks.
void put(Image& image, std::size_t at, std::size_t size, std::string_view text) {
  std::fill_n(image.begin() + static_cast<std::ptrdiff_t>(at), size, std::byte{' '});
  const auto bytes = std::as_bytes(std::span(text));
  std::copy(bytes.begin(), bytes.end(), image.begin() + static_cast<std::ptrdiff_t>(at));
}

std::uint8_t sum(const Image& image, std::size_t from, std::size_t to) {
  unsigned total = 0;
  for (auto i = from; i < to; ++i) total += std::to_integer<unsigned>(image[i]);
  return static_cast<std::uint8_t>(total);
}

/// A passive copper cable of one meter.
Image make_image() {
  Image image{};
  put(image, kIdentifier, 0x11);  // QSFP28
  put(image, kRevision, 0x08);
  put(image, kStatus, 0b0000'0110);  // flat memory: only page 0; no interrupt
  put(image, kIdentifierCopy, 0x11);
  put(image, kExtendedIdentifier, 0x00);
  put(image, kConnector, 0x23);      // no separable connector
  put(image, kSpecification, 0x80);  // see the extended code
  put(image, kEncoding, 0x00);
  put(image, kBitRate, 0xFF);  // above 25.4 Gb/s
  put(image, kLengthCopper, 1);
  put(image, kDeviceTechnology, 0xA0);  // copper, not equalized
  put(image, kVendorName, 16, "softhca");
  put(image, kVendorPartNumber, 16, "virtual cable");
  put(image, kVendorRevision, 2, "A");
  put(image, kExtendedSpecification, 0x0B);  // 100GBASE-CR4
  put(image, kSerialNumber, 16, "0");
  put(image, kDateCode, 8, "260101");
  put(image, kBaseChecksum, sum(image, kIdentifierCopy, kBaseChecksum));
  put(image, kExtendedChecksum, sum(image, kExtendedSpecification, kExtendedChecksum));
  return image;
}

}  // namespace

void read_module_eeprom(std::uint32_t page, std::uint32_t offset, std::span<std::byte> out) {
  static const Image kImage = make_image();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = offset + i;
    out[i] = page == 0 && at < kImage.size() ? kImage[at] : std::byte{0};
  }
}

}  // namespace softhca::connectx
