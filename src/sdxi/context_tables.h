// The walk from a context number to its structures (SDXI 3.2), and the check with which start and
// stop begin (SDXI 4.3.2). Nothing is cached: every call reads memory.
#pragma once

#include <cstdint>
#include <optional>

#include "sdxi/memory.h"
#include "sdxi/refusal.h"
#include "sdxi/registers.h"

namespace softhca::sdxi {

/// Contents of CXT_L1_ENT and CXT_CTL of a context whose structures are all valid.
struct ContextEntry {
  ContextNumber number = 0;
  std::optional<Pasid> pasid{};  ///< CXT_L1_ENT.cxt_pasid if pv
  Iova akey_ptr = 0;
  std::uint8_t akey_sz = 0;
  std::uint8_t max_buffer = 0;
  std::uint32_t opb_000_enb = 0;
  Iova ds_ring_ptr = 0;
  std::uint32_t ds_ring_sz = 0;  ///< descriptors, not 0
  Iova cxt_sts_ptr = 0;
  Iova write_index_ptr = 0;

  /// SDXI 5: the address of a ring entry.
  Iova descriptor(std::uint64_t index) const {
    return ds_ring_ptr + index % ds_ring_sz * spec::kDescriptorSize;
  }
  Iova state() const { return cxt_sts_ptr; }
  Iova read_index() const { return cxt_sts_ptr + spec::cxt_sts::read_index.kOffset; }
};

/// The two failures of SDXI 4.3.2: LogErr:Cxt with a refusal, Invalid:Cxt without one.
struct ContextFailure {
  std::optional<Refusal> log_err;
};

template <class T>
using ContextResult = tl::expected<T, ContextFailure>;

struct CheckedContext {
  ContextEntry entry;
  spec::cxtv state = spec::cxtv::CXTV_STOP_SW;
};

/// True for the states of SDXI Table 3-6.
bool is_defined(spec::cxtv state);

class ContextTables {
 public:
  ContextTables(const Registers& registers, const FunctionMemory& memory)
      : registers_(registers), memory_(memory) {}

  /// Reads the L2 entry, the L1 entry and CXT_CTL.
  ContextResult<ContextEntry> walk(ContextNumber number) const;

  /// ChkValid:Cxt (SDXI 4.3.2).
  ContextResult<CheckedContext> check(ContextNumber number) const;
  /// SDXI 3.2: table entries above MMIO_CTL2.max_cxt must not be accessed.
  bool is_above_limit(ContextNumber number) const;

  /// CXT_STS.state of a context that was walked, also a reserved value; nothing if it cannot be
  /// read.
  std::optional<spec::cxtv> read_state(const ContextEntry& entry) const;
  /// The same; a refusal if the state is unreadable or reserved.
  Checked<spec::cxtv> state_of(const ContextEntry& entry) const;
  /// Writes CXT_STS.state as one byte, and nothing else of the structure: software may write rsh in
  /// the next byte at any time (SDXI 4.3.6). False if it cannot be written.
  bool write_state(const ContextEntry& entry, spec::cxtv state) const;

 private:
  ContextResult<Iova> find_l1(ContextNumber number) const;
  ContextResult<Iova> read_l1(Iova at, ContextEntry& entry) const;
  ContextResult<void> read_ctl(Iova at, ContextEntry& entry) const;

  const Registers& registers_;
  const FunctionMemory& memory_;
};

}  // namespace softhca::sdxi
