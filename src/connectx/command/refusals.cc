#include "connectx/command/refusals.h"

#include <algorithm>
#include <array>

#include "connectx/command/command_table.h"

namespace softhca::connectx {

namespace {

constexpr auto kRefusals = std::to_array<RefusalInfo>({
#include "connectx/refusals.inc"
});

static_assert(std::ranges::all_of(kRefusals, [](const RefusalInfo& info) {
  return info.syndrome == syndrome_of(info.section, info.text);
}));
static_assert(std::ranges::adjacent_find(kRefusals, std::ranges::greater_equal(),
                                         &RefusalInfo::syndrome) == kRefusals.end());

/// A reason of older versions. Newer programs may read logs of older ones.
struct RetiredRefusal {
  Status status;
  std::string_view section;
  std::string_view text;
  std::string_view commands;
  std::string_view since;
};

constexpr RetiredRefusal kRetired[] = {
    {Status::BAD_PARAM, "mlx5 driver interface 7.2", "XRC QPs are not implemented", "CREATE_QP",
     "XRC QPs are implemented"},
    {Status::BAD_OP, "mlx5 driver interface 7.6", "SRQ objects of ISSI 0 are not offered: use RMP",
     "CREATE_SRQ DESTROY_SRQ QUERY_SRQ ARM_RQ", "SRQs of ISSI 0 are implemented"},
};

std::optional<SyndromeMeaning> explain_retired(std::uint32_t syndrome) {
  for (const auto& was : kRetired) {
    if (syndrome_of(was.section, was.text) != syndrome) continue;
    return SyndromeMeaning{.status = was.status,
                           .section = was.section,
                           .text = was.text,
                           .commands = std::string(was.commands),
                           .sources = {},
                           .since = was.since};
  }
  return std::nullopt;
}

/// The meaning of a syndrome of missing commands. Several commands can have the same reason.
std::optional<SyndromeMeaning> explain_missing_command(std::uint32_t syndrome) {
  std::optional<SyndromeMeaning> found;
  for (const auto& spec : command_table()) {
    if (spec.handler != nullptr) continue;
    const auto refusal = spec.refusal();
    if (refusal.syndrome != syndrome) continue;
    if (!found) {
      found = SyndromeMeaning{.status = refusal.status,
                              .section = refusal.section,
                              .text = refusal.text,
                              .commands = {},
                              .sources = "connectx/command/command_list.inc"};
    } else {
      found->commands += ' ';
    }
    found->commands += spec.name();
  }
  return found;
}

}  // namespace

std::span<const RefusalInfo> refusals() { return kRefusals; }

std::optional<SyndromeMeaning> explain_syndrome(std::uint32_t syndrome) {
  const auto at = std::ranges::lower_bound(kRefusals, syndrome, {}, &RefusalInfo::syndrome);
  if (at == kRefusals.end() || at->syndrome != syndrome) {
    const auto missing = explain_missing_command(syndrome);
    return missing ? missing : explain_retired(syndrome);
  }
  return SyndromeMeaning{.status = at->status,
                         .section = at->section,
                         .text = at->text,
                         .commands = std::string(at->commands),
                         .sources = at->sources};
}

}  // namespace softhca::connectx
