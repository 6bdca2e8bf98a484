// The doorbell pages that drivers get (PRM 12.3.15).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "connectx/base/bar_layout.h"
#include "connectx/base/numbers.h"
#include "hca/number_pool.h"

namespace softhca::connectx {

/// Allocates the pages. Processes may have a separate range (SharedDoorbells).
class UarPages {
 public:
  /// Pages [first, first + count). `shared`: true if pages from kFirstSharedUar on are for
  /// processes.
  UarPages(std::uint32_t first, std::uint32_t count, bool shared)
      : own_(first, shared ? kFirstSharedUar - first : count),
        shared_(kFirstSharedUar, shared ? count - (kFirstSharedUar - first) : 0) {}

  /// Unset if all pages are in use. If all pages for processes are, a process gets one of the
  /// kernel's.
  std::optional<UarPage> allocate(bool for_process) {
    auto page = for_process ? shared_.allocate() : std::nullopt;
    return page ? page : own_.allocate();
  }
  bool contains(UarPage page) const { return own_.contains(page) || shared_.contains(page); }
  /// @pre contains(page)
  hca::Use use(UarPage page) { return pool(page).use(page); }
  /// @pre contains(page)
  bool is_used(UarPage page) { return pool(page).is_used(page); }
  /// @pre contains(page) and not is_used(page)
  void free(UarPage page) { pool(page).free(page); }
  /// Number of allocated pages.
  std::size_t count() const { return own_.count() + shared_.count(); }

 private:
  hca::NumberPool<UarPage>& pool(UarPage page) { return own_.contains(page) ? own_ : shared_; }

  hca::NumberPool<UarPage> own_;
  hca::NumberPool<UarPage> shared_;
};

}  // namespace softhca::connectx
