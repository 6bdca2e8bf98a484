// Signature values (PSV, mlx5 driver interface 7.10): the initial values of block signatures. A
// work request sets them, and signature keys refer to them.
#pragma once

#include <cstdint>
#include <span>

#include "connectx/base/numbers.h"
#include "connectx/base/resources.h"
#include "connectx/command/command.h"
#include "connectx/memory/umr.h"
#include "hca/object_table.h"
#include "hca/use.h"
#include "rdma/block_signature.h"
#include "util/work_budget.h"

namespace softhca::connectx {

class PsvTable final : public rdma::SignatureValues {
 public:
  /// Limit on the PSVs. Most signature keys use two.
  static constexpr std::uint32_t kPsvsMax = 1u << 16;

  explicit PsvTable(Resources& resources) : resources_(resources), table_(1, kPsvsMax) {}

  /// CREATE_PSV.
  CommandResult create(const Command& command);
  /// DESTROY_PSV. Keys may still refer to the PSV, because drivers destroy them later. Accesses
  /// through such keys fail.
  CommandResult destroy(Psvn number);
  /// SET_PSV. `body`: the WQE after its control segment. @pre check() has passed
  rdma::LocalOutcome set(std::span<const std::byte> body, const UmrUser& user);
  static WqeFault check(std::span<const std::byte> body);

  const Value* find_value(std::uint32_t number) const override {
    const auto* psv = table_.find(Psvn(number));
    return psv == nullptr ? nullptr : &psv->value;
  }
  std::size_t count() const { return table_.count(); }
  /// Destroys PSVs until `work` is spent. True if none is left.
  bool dismantle(util::WorkBudget& work) {
    constexpr std::int64_t kDestroyWork = 60;
    return table_.dismantle(work, [](const Psv&) { return kDestroyWork; });
  }

 private:
  struct Psv {
    explicit Psv(Psvn the_number) : number(the_number) {}
    Psvn number;
    Value value;
    hca::Use pd_use{};
  };

  Resources& resources_;
  hca::ObjectTable<Psv, Psvn> table_;
};

}  // namespace softhca::connectx
