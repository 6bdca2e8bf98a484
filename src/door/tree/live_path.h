// Files of the tree whose content is not the same for every process, or at every time: the GIDs of
// a port, and its counters. The tree has a file of each name; the door fills it when it is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace softhca::door {

struct LivePath {
  enum class Kind : std::uint8_t { kGid, kGidType, kGidInterface, kCounter, kHardwareCounter };
  Kind kind{};
  std::string_view device;  ///< "mlx5_0"
  std::string_view name;    ///< the file's
  /// Of a GID; none: the name is no number.
  std::optional<unsigned> index() const;
};

/// `path`: as programs name it, with or without links on the way. Nothing: another file.
std::optional<LivePath> find_live(std::string_view path);

}  // namespace softhca::door
