// Operations that programs execute in a context: copies, fills, atomics (SDXI 6.2, 6.3).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"

namespace softhca::driver::sdxi {
namespace {

constexpr std::size_t kPageSize = Host::kPageSize;

/// SDXI 4.4: the function's capabilities. The host is responsible for a path to memory that carries
/// atomics.
bool offers(const Capabilities& capabilities, spec::atomic_subtype operation) {
  using enum spec::atomic_subtype;
  const bool minimal =
      operation == DSC_ATM_SWAP || operation == DSC_ATM_UADD || operation == DSC_ATM_CMPSWAP;
  return capabilities.atomics || (minimal && capabilities.minimal_atomics);
}

}  // namespace

util::Result<Completion> Context::copy(Buffer to, Buffer from, std::uint64_t size) {
  if (size == 0) return util::fail("an SDXI copy of 0 bytes");
  // SDXI 5.6: the buffers must not overlap.
  if (to.akey == from.akey && to.at < from.at + size && from.at < to.at + size) {
    return util::fail("source and destination of an SDXI copy overlap");
  }
  const auto largest = function_.capabilities().max_buffer;
  std::vector<Descriptor> parts;
  for (std::uint64_t done = 0; done < size; done += largest) {
    parts.push_back(Descriptor::copy({to.at + done, to.akey}, {from.at + done, from.akey},
                                     std::min(size - done, largest)));
  }
  return submit(parts);
}

util::Result<void> Context::prepare_pattern(std::byte value) {
  const auto page = pattern_.bytes().first(kPageSize);
  if (page.front() == value && page.back() == value) return {};
  // Earlier fills may still read the page.
  std::array done{Descriptor::nop().fence()};
  const auto completion = submit(done);
  if (!completion) return tl::unexpected(completion.error());
  if (auto ok = wait(*completion); !ok) return ok;
  std::fill(page.begin(), page.end(), value);
  return {};
}

util::Result<Completion> Context::fill(Buffer to, std::byte value, std::uint64_t size) {
  if (size == 0) return util::fail("an SDXI fill of 0 bytes");
  if (auto ok = prepare_pattern(value); !ok) return tl::unexpected(ok.error());
  const Buffer pattern{pattern_.iova(), AccessKeys::kOwnMemory};
  const auto pages_max =
      std::min<std::uint64_t>(function_.capabilities().max_buffer / kPageSize, 1 << 20);
  std::vector<Descriptor> parts;
  while (size > 0) {
    const auto to_page = std::min<std::uint64_t>(size, (kPageSize - to.at % kPageSize) % kPageSize);
    std::uint64_t length = 0;
    if (to_page > 0 || size < kPageSize) {
      length = to_page > 0 ? to_page : size;
      parts.push_back(Descriptor::copy(to, pattern, length));
    } else {
      const auto pages = std::min(size / kPageSize, pages_max);
      length = pages * kPageSize;
      parts.push_back(Descriptor::repeat_copy(to, pattern, 1, static_cast<std::uint32_t>(pages)));
    }
    to.at += length;
    size -= length;
  }
  return submit(parts);
}

util::Result<Completion> Context::atomic(spec::atomic_subtype operation, Buffer at, unsigned size,
                                         std::uint64_t op1, std::uint64_t op2) {
  if ((size != 4 && size != 8) || at.at % size != 0) {
    return util::fail("an SDXI atomic works on 4 or 8 bytes at their own alignment");
  }
  if (!offers(function_.capabilities(), operation)) {
    return util::fail(fmt::format("the SDXI function has no {}", to_string(operation)));
  }
  std::array one{Descriptor::atomic(operation, at, size, op1, op2, structures_.iova(kOldValueAt))};
  return submit(one);
}

std::uint64_t Context::old_value(unsigned size) const {
  const auto value = util::load_le64(structures_.bytes().data() + kOldValueAt);
  return size == 4 ? static_cast<std::uint32_t>(value) : value;
}

}  // namespace softhca::driver::sdxi
