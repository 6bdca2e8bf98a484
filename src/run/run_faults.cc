#include "run/run_faults.h"

#include <fmt/format.h>

namespace softhca::run {

util::Result<RunFaults> RunFaults::create(const std::vector<std::string>& rules,
                                          std::vector<std::string> ports) {
  auto directory = RunDirectory::create();
  if (!directory) return tl::unexpected(directory.error());
  auto book = fabric::FaultBook::create(directory->path() + "/rules", std::move(ports));
  if (!book) return tl::unexpected(book.error());
  for (const auto& rule : rules) {
    if (const auto added = book->add(rule); !added) {
      return util::fail(fmt::format("--fault {}: {}", rule, added.error().message));
    }
  }
  return RunFaults(*std::move(directory), *std::move(book));
}

}  // namespace softhca::run
