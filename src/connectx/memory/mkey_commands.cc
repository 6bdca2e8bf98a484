// CREATE_MKEY, QUERY_MKEY, DESTROY_MKEY, QUERY_SPECIAL_CONTEXTS (PRM 12.5).

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/memory/memory_keys.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/mkey.h"

namespace softhca::connectx {

CommandResult create_mkey(DriverState& driver, const Command& command) {
  using Out = spec::connectx::create_mkey_out;
  const auto index = driver.memory_keys().create(command);
  if (!index) return tl::unexpected(index.error());
  if (command.unfinished) return {};
  command.output<Out>().set(Out::mkey_index, index->value());
  return {};
}

CommandResult query_mkey(DriverState& driver, const Command& command) {
  using In = spec::connectx::query_mkey_in;
  constexpr std::uint16_t kPagesOrKlms = 0;
  constexpr std::uint16_t kBsfs = 2;
  if (command.op_mod != kPagesOrKlms && command.op_mod != kBsfs) {
    return refuse(Status::BAD_OP, "PRM 12.5.2", "op_mod is neither 0 (PAS_KLMs) nor 2 (BSFs)");
  }
  return driver.memory_keys().query(MKeyIndex(command.input<In>().get(In::mkey_index)), command);
}

CommandResult destroy_mkey(DriverState& driver, const Command& command) {
  using In = spec::connectx::destroy_mkey_in;
  return driver.memory_keys().destroy(MKeyIndex(command.input<In>().get(In::mkey_index)), command);
}

CommandResult query_special_contexts(DriverState&, const Command& command) {
  using Out = spec::connectx::query_special_contexts_out;
  // Older drivers provide no room for the keys from dword 2 on.
  util::store_be32(command.out.subspan(Out::resd_lkey.kOffset).data(), MemoryKeys::kReservedLkey);
  if (command.out.size() >= Out::kSize) {
    command.output<Out>().set(Out::dump_fill_mkey, MemoryKeys::kDumpFillKey);
    command.output<Out>().set(Out::null_mkey, MemoryKeys::kNullKey);
  }
  return {};
}

}  // namespace softhca::connectx
