// Chapter 9: memory that the tables of a card take, from the card's own limits.
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
  std::string factors;        ///< factors of the model: "128 QPs * 1024 WQEBBs * 64 B"
  std::uint64_t model = 0;    ///< bytes
  std::string_view printed;   ///< result printed in the document
  std::uint64_t correct = 0;  ///< bytes: correct result of the document's factors
};

/// The tables in the order of the chapter, and their total. `limits` gives the number of objects;
/// queue depths and context sizes are those of the document's build (chapter 9).
std::vector<SizingRow> sizing(const connectx::Limits& limits);

/// Formats a size like the document ("16 MB", "4 KB"), with a fraction if needed.
std::string show_bytes(std::uint64_t bytes);

/// The tables as lines of text.
std::string sizing_report();

}  // namespace softhca::rsnic
