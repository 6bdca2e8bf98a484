// Chapter 9: how much memory the tables of a card take, from the card's own limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "connectx/base/limits.h"

namespace softhca::rsnic {

struct SizingRow {
  std::string_view figure;  ///< "9-1"
  std::string_view name;
  std::string factors;        ///< the model's: "128 QPs * 1024 WQEBBs * 64 B"
  std::uint64_t model = 0;    ///< bytes
  std::string_view printed;   ///< the document's result
  std::uint64_t correct = 0;  ///< bytes: what the document's factors make
};

/// The tables in the order of the chapter, and their total. How many there are of everything is
/// told by `limits`; how deep each queue is, and how long a context, is the build's (chapter 9).
std::vector<SizingRow> sizing(const connectx::Limits& limits);

/// "16 MB", "4 KB": as the document writes sizes, with a fraction if need be.
std::string show_bytes(std::uint64_t bytes);

/// As lines of text.
std::string sizing_report();

}  // namespace softhca::rsnic
