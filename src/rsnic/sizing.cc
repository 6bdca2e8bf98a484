#include "rsnic/sizing.h"

#include <fmt/format.h>

#include "rsnic/options.h"

namespace softhca::rsnic {
namespace {

using connectx::Limits;

// Sizes of each object in the document's build (figures 9-1 to 9-8).
constexpr std::uint64_t kWqebbs = 1024;       ///< WQEBBs of a QP
constexpr std::uint64_t kWqebbSize = 64;      ///< bytes
constexpr std::uint64_t kPageSize = 4096;     ///< bytes
constexpr std::uint64_t kPas = 8;             ///< bytes of a page's address
constexpr std::uint64_t kKeyed = 2ull << 30;  ///< bytes of memory behind one MKey
constexpr std::uint64_t kContext = 64 * 4;    ///< words, bytes each
constexpr std::uint64_t kCqes = 512;          ///< CQEs of a CQ
constexpr std::uint64_t kEqes = 1024;         ///< EQEs of an EQ
constexpr std::uint64_t kEntry = 64;          ///< bytes of a CQE or EQE

/// Number of objects.
struct Counts {
  std::uint64_t qps, cqs, eqs, keys;
};
/// The document's numbers. Row 24 of table 2-1-1 has 127 QPs: the other table entries stay unused.
constexpr Counts kDocument{.qps = 256, .cqs = 256, .eqs = 16, .keys = 512};

struct Sizes {
  std::uint64_t wqebbs, pas, mkey, key_contexts, qp_contexts, cq_contexts, eq_contexts, cqs, eqs;
  std::uint64_t total() const {
    return wqebbs + pas + mkey + key_contexts + qp_contexts + cq_contexts + eq_contexts + cqs + eqs;
  }
};

Sizes sizes_of(const Counts& n) {
  const auto wqebbs = n.qps * kWqebbs * kWqebbSize;
  return {.wqebbs = wqebbs,
          .pas = wqebbs / kPageSize * kPas,
          .mkey = kKeyed / kPageSize * kPas,
          .key_contexts = n.keys * kContext,
          .qp_contexts = n.qps * kContext,
          .cq_contexts = n.cqs * kContext,
          .eq_contexts = n.eqs * kContext,
          .cqs = n.cqs * kCqes * kEntry,
          .eqs = n.eqs * kEqes * kEntry};
}

std::string product(std::uint64_t count, std::string_view rest) {
  return fmt::format("{} {}", count, rest);
}

}  // namespace

std::vector<SizingRow> sizing(const Limits& limits) {
  const Counts n{.qps = Limits::count(limits.log_max_qp),
                 .cqs = Limits::count(limits.log_max_cq),
                 .eqs = Limits::count(limits.log_max_eq),
                 .keys = Limits::count(limits.log_max_mkey)};
  const auto ours = sizes_of(n);
  const auto theirs = sizes_of(kDocument);
  const auto pages = fmt::format("{} / 4 KB * 8 B", show_bytes(ours.wqebbs));
  return {
      {"9-1", "WQEBBs", product(n.qps, "QPs * 1024 * 64 B"), ours.wqebbs, "16MB", theirs.wqebbs},
      {"9-2", "PAS of the WQEBBs", pages, ours.pas, "32KB", theirs.pas},
      {"9-3", "PAS of one MKey", "2 GB / 4 KB * 8 B", ours.mkey, "4MB", theirs.mkey},
      {"9-4", "MKey contexts", product(n.keys, "MKeys * 64 * 4 B"), ours.key_contexts, "132KB",
       theirs.key_contexts},
      {"9-9", "QP contexts", product(n.qps, "QPs * 64 * 4 B"), ours.qp_contexts, "64KB",
       theirs.qp_contexts},
      {"9-5", "CQ contexts", product(n.cqs, "CQs * 64 * 4 B"), ours.cq_contexts, "64KB",
       theirs.cq_contexts},
      {"9-6", "EQ contexts", product(n.eqs, "EQs * 64 * 4 B"), ours.eq_contexts, "4KB",
       theirs.eq_contexts},
      {"9-7", "CQ rings", product(n.cqs, "CQs * 512 * 64 B"), ours.cqs, "8MB", theirs.cqs},
      {"9-8", "EQ rings", product(n.eqs, "EQs * 1024 * 64 B"), ours.eqs, "1MB", theirs.eqs},
      {"9-9", "Total", "", ours.total(), "29.5MB", theirs.total()},
  };
}

std::string show_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kKb = 1024, kMb = kKb * 1024;
  const auto unit = bytes >= kMb ? kMb : kKb;
  const auto* name = bytes >= kMb ? "MB" : "KB";
  if (bytes % unit == 0) return fmt::format("{} {}", bytes / unit, name);
  return fmt::format("{:.2f} {}", static_cast<double>(bytes) / static_cast<double>(unit), name);
}

std::string sizing_report() {
  auto text = fmt::format("{:<4} {:<18} {:<26} {:<10} {:<8} {}\n", "", "", "of this card", "bytes",
                          "printed", "correct");
  for (const auto& row : sizing(device_options().limits)) {
    text += fmt::format("{:<4} {:<18} {:<26} {:<10} {:<8} {}\n", row.figure, row.name, row.factors,
                        show_bytes(row.model), row.printed, show_bytes(row.correct));
  }
  return text;
}

}  // namespace softhca::rsnic
