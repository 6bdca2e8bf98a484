// Files of the tree whose content depends on the process or the time: a port's state, GIDs and
// counters. The tree has a file of each name. When a program opens it, the door gives the program a
// file with the present content instead.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace softhca::door {

struct LivePath {
  enum class Kind : std::uint8_t {
    kGid,
    kGidType,
    kGidInterface,
    kCounter,
    kHardwareCounter,
    kState,
    kPhysicalState
  };
  Kind kind{};
  std::string_view device;  ///< "mlx5_0"
  std::string_view name;    ///< the file's
  /// The index of a GID; nothing if the table has no entry of that name.
  std::optional<unsigned> index() const;
};

/// `path`: as a program names it, with or without links in it. Nothing: another file.
std::optional<LivePath> find_live(std::string_view path);

}  // namespace softhca::door
