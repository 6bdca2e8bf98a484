// The value of a register as a structure. Internal.
#pragma once

#include <cstdint>

#include "util/endian.h"
#include "util/field.h"

namespace softhca::driver::sdxi {

template <class Layout>
class Word : public util::Struct<Layout> {
 public:
  explicit Word(std::uint64_t value = 0) { util::store_le64(this->bytes().data(), value); }
  std::uint64_t value() const { return util::load_le64(this->bytes().data()); }
};

}  // namespace softhca::driver::sdxi
