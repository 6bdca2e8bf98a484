// Which paths the door serves, and where they lie in the tree that `softhca run` wrote
// (door/tree.h). Called inside open(), before constructors, in signal handlers and below
// allocators: nothing here allocates, locks or throws.
#pragma once

#include <linux/limits.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace softhca::door {

/// A path with its end mark, as libc takes it.
using PathBuffer = std::array<char, PATH_MAX>;

/// The PCI domain of our functions: one that no machine has, so that no device of the host is
/// hidden (host-door 2.5 has 0000:00:1f.0, which is a PC's ISA bridge). The first function is
/// 5348:00:00.0.
inline constexpr std::string_view kPciDomain = "5348:";

/// Whether `path` has a word that every path which the door serves has. What is said no to costs
/// nothing else; most are.
bool may_be_served(std::string_view path);

/// The map of names between what programs ask for and the tree below one directory.
class PathMap {
 public:
  constexpr PathMap() = default;

  /// The directory that holds sys/ and dev/: absolute, and without links, or `strip` will not find
  /// it. False and no change if it is not absolute or leaves no room for a path.
  bool set_root(std::string_view root);
  std::string_view root() const { return {root_.data(), root_size_}; }
  /// Device files of lower numbers are the host's: the tree has links to them.
  void set_first(unsigned first) { first_ = first; }
  unsigned first() const { return first_; }

  /// Where `path` lies if the door serves it, in `served` with an end mark; its length, or 0 for
  /// all others, among them those that are too long. An absolute path; "//", "/./" and "/../" count
  /// as in the kernel, as if no directory outside the tree were a link. What follows the served
  /// directory goes to the kernel as it is, since links of the tree are on the way: ".." of
  /// /sys/class/infiniband/mlx5_0 is in the PCI device. A path below the root is taken for what it
  /// shows.
  std::size_t serve(std::string_view path, PathBuffer& served) const;

  /// The same for `path` in the directory `base`.
  std::size_t serve(std::string_view base, std::string_view path, PathBuffer& served) const;

  /// The number n of /dev/infiniband/uverbs<n> or /dev/char/231:<192 + n>, or kRdmaCmFile of
  /// /dev/infiniband/rdma_cm, if `served`, an answer of `serve`, is one of them and not the host's.
  std::optional<unsigned> device_file(std::string_view served) const;

  /// The length of `text`, a path, without the root, which is taken off if the path lies below it.
  std::size_t strip(char* text, std::size_t size) const;

 private:
  PathBuffer root_{};
  std::size_t root_size_ = 0;
  unsigned first_ = 0;
};

}  // namespace softhca::door
