// Send WQEs of an SQ, built segment by segment as a driver writes them.
#pragma once

#include <cstdint>
#include <span>

#include "connectx/ethernet/frames.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx::test {

/// A send WQE under construction.
class Wqe {
 public:
  Wqe(spec::connectx::wqe_opcode opcode, std::uint32_t sqn, std::uint16_t index);
  /// Eth segment; `header` goes inline.
  Wqe& eth(std::span<const std::byte> header, bool checksums = false, std::uint16_t mss = 0);
  Wqe& insert_vlan(std::uint16_t tci);
  Wqe& pointer(std::uint32_t key, std::uint64_t address, std::uint32_t size);
  Wqe& inline_data(std::span<const std::byte> data);
  Wqe& unsignaled();
  Wqe& completes(spec::connectx::wqe_completion ce);
  /// The WQE with the correct DS.
  Bytes finish();

 private:
  Bytes bytes_;
};

}  // namespace softhca::connectx::test
