// Doorbell pages that a program allocates (kernel interface 4.14).
#pragma once

#include <cstdint>
#include <span>

#include "uverbs/method.h"
#include "uverbs/objects.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Offset in the device file at which a doorbell page is mapped.
constexpr std::uint64_t page_offset(std::uint32_t page) {
  return (std::uint64_t{0x1000} + page) * 4096;
}

/// The doorbell page of that number, if the program has allocated it; else null.
inline DoorbellPage* find_page(const Objects& objects, std::uint32_t page) {
  return objects.find_if<DoorbellPage>([&](const DoorbellPage& one) { return one.page == page; });
}

class DoorbellPageCommands {
 public:
  explicit DoorbellPageCommands(const OpenFile& file) : file_(file) {}

  static std::span<const Method<DoorbellPageCommands>> methods();

 private:
  Errno alloc_uar(Request& request);
  Errno destroy_uar(Request& request);

  const OpenFile& file_;
};

}  // namespace softhca::uverbs
