// Fast path for NOPs, and for copies within local memory for which nothing can fail (SDXI 5.3,
// 6.2). Most of a function's work is of this kind.
//
// Everything else (another operation, an error, memory behind a peer, a copy longer than the turn)
// is left untouched, with vl set, for RingProcessor: so the error path exists once. Whether a
// descriptor qualifies is decided before any part of it is done.
#pragma once

#include <cstdint>

#include "sdxi/completion.h"
#include "sdxi/context.h"
#include "sdxi/express_turn.h"
#include "sdxi/faults.h"
#include "sdxi/keys.h"
#include "sdxi/options.h"

namespace softhca::sdxi {

class Express {
 public:
  struct Parts {
    const DeviceOptions& options;
    const Registers& registers;
    const Completions& completions;
    const AccessKeys& keys;
    const Faults& faults;
  };

  explicit Express(const Parts& parts) : parts_(parts) {}

  /// At most this many descriptors are done before Read_Index is written.
  static constexpr std::uint64_t kTogether = 32;

  /// Called when a turn begins.
  void prepare(ExpressTurn& turn, const HeaderRules& rules, const ContextEntry& context) const;
  /// Executes descriptors from read_index on: none beyond write_index, at most kTogether, and only
  /// while the context has a deficit. False if the next descriptor does not qualify for the fast
  /// path.
  /// @pre the context is not stopping and is executing nothing, its ring is local, and fewer than
  /// kTogether descriptors were done since Read_Index was written
  bool run(Context& context, ExpressTurn& turn) const;

 private:
  struct Copy;
  bool resolve(const Context& context, ExpressTurn& turn, std::int64_t deficit,
               util::View<spec::dsc_generic> descriptor, Copy& copy) const;
  std::byte* look_up(const Context& context, ExpressTurn::Reach& reach, std::uint16_t akey, Iova at,
                     std::uint64_t size, pcie::DmaAccess access) const;

  Parts parts_;
};

}  // namespace softhca::sdxi
