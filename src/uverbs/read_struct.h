// A declared structure out of bytes of a program, which may be fewer than it has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "util/field.h"

namespace softhca::uverbs {

/// A copy: zeros for what is missing.
template <class Layout>
class Read : public util::Struct<Layout> {
 public:
  explicit Read(std::span<const std::byte> bytes) {
    std::ranges::copy(bytes.first(std::min(bytes.size(), Layout::kSize)), this->bytes().begin());
  }
};

}  // namespace softhca::uverbs
