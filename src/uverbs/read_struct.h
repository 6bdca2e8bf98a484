// Reads a declared structure from a program's bytes, which may be too few.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "util/field.h"

namespace softhca::uverbs {

/// A copy in which missing bytes are zero.
template <class Layout>
class Read : public util::Struct<Layout> {
 public:
  explicit Read(std::span<const std::byte> bytes) {
    std::ranges::copy(bytes.first(std::min(bytes.size(), Layout::kSize)), this->bytes().begin());
  }
};

}  // namespace softhca::uverbs
