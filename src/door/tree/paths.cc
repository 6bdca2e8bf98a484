#include "door/tree/paths.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "door/tree/tree.h"

namespace softhca::door {
namespace {

/// The served paths. They include names that the tree lacks, so that no real device of the host
/// shows.
struct Prefix {
  std::string_view path;
  bool whole;  ///< the last name is complete; otherwise it may continue
};

constexpr std::array kPrefixes = {
    Prefix{.path = "/sys/class/infiniband", .whole = true},
    Prefix{.path = "/sys/class/infiniband_verbs", .whole = true},
    Prefix{.path = "/sys/class/infiniband_mad", .whole = true},
    Prefix{.path = "/sys/class/infiniband_cm", .whole = true},
    Prefix{.path = "/sys/class/infiniband_ucma", .whole = true},
    Prefix{.path = "/sys/class/misc/rdma_cm", .whole = true},
    Prefix{.path = "/sys/bus/pci/devices/5348:", .whole = false},
    Prefix{.path = "/sys/devices/pci5348:", .whole = false},
    Prefix{.path = "/sys/dev/char/231:", .whole = false},
    Prefix{.path = "/dev/infiniband", .whole = true},
    Prefix{.path = "/dev/char/231:", .whole = false},
};

/// A word of each prefix, and of each directory of the tree.
constexpr std::array<std::string_view, 5> kWords = {"infiniband", "rdma_cm", kPciDomain,
                                                    "231:", "uverbs"};

constexpr bool is_found_by_its_words(const Prefix& prefix) {
  return std::ranges::any_of(
      kWords, [&](auto word) { return prefix.path.find(word) != std::string_view::npos; });
}
static_assert(std::ranges::all_of(kPrefixes, is_found_by_its_words));

/// @pre `path` ends at the end of a name
bool is_served(std::string_view path) {
  return std::ranges::any_of(kPrefixes, [&](const Prefix& prefix) {
    return prefix.whole ? path == prefix.path : path.starts_with(prefix.path);
  });
}

/// Builds a path name by name behind the root.
class Walk {
 public:
  Walk(std::string_view root, PathBuffer& out) : out_(out), root_(root.size()), size_(root_) {
    std::memcpy(out_.data(), root.data(), root_);
  }

  /// False if the path is too long or leaves the tree.
  bool go(std::string_view path) {
    while (!path.empty()) {
      const auto name = path.substr(0, path.find('/'));
      path.remove_prefix(std::min(name.size() + 1, path.size()));
      if (!name.empty() && name != "." && !step(name)) return false;
    }
    return true;
  }

  /// The length of the path, or 0 if it is not served. A path that left the tree by ".." becomes
  /// the host's; the host may lack the directories in between.
  std::size_t end(bool as_directory) {
    if (served_ == 0) return left_ ? end_on_host() : 0;
    if (as_directory && !append("")) return 0;
    out_[size_] = '\0';
    return size_;
  }

 private:
  bool step(std::string_view name) {
    if (name == ".." && (served_ == 0 || size_ == served_)) return leave();
    if (served_ != 0 && (depth_ += name == ".." ? -1 : 1) < 0) return false;
    if (!append(name)) return false;
    if (served_ == 0 && is_served({&out_[root_], size_ - root_})) {
      served_ = size_;
      depth_ = static_cast<int>(std::count(&out_[root_], &out_[size_], '/'));
    }
    return true;
  }

  /// Goes to the parent directory outside of the served ones; the parent of / is /.
  bool leave() {
    left_ = left_ || served_ != 0;
    served_ = 0;
    while (size_ > root_ && out_[--size_] != '/') {
    }
    return true;
  }

  std::size_t end_on_host() {
    if (size_ == root_ && !append("")) return 0;
    const auto size = size_ - root_;
    std::memmove(out_.data(), &out_[root_], size);
    out_[size] = '\0';
    return size;
  }

  bool append(std::string_view name) {
    if (name.size() + 2 > out_.size() - size_) return false;
    out_[size_++] = '/';
    name.copy(&out_[size_], name.size());
    size_ += name.size();
    return true;
  }

  PathBuffer& out_;
  std::size_t root_;
  std::size_t size_;
  std::size_t served_ = 0;  ///< length up to the served directory's end; 0: outside
  int depth_ = 0;           ///< names below the root, assuming no links
  bool left_ = false;       ///< has been in a served directory and left it
};

/// Whether the path can only name a directory.
bool means_directory(std::string_view path) {
  return path.ends_with('/') || path.ends_with("/.") || path == ".";
}

std::optional<unsigned> number_in(std::string_view text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool canonical = text.size() == 1 || !text.starts_with('0');
  if (error != std::errc() || end != text.data() + text.size() || !canonical) return std::nullopt;
  return number;
}

}  // namespace

bool may_be_served(std::string_view path) {
  return std::ranges::any_of(kWords,
                             [&](auto word) { return path.find(word) != std::string_view::npos; });
}

bool PathMap::set_root(std::string_view root) {
  while (root.ends_with('/')) root.remove_suffix(1);
  if (!root.starts_with('/') || root.size() > root_.size() / 2) return false;
  root_size_ = root.copy(root_.data(), root.size());
  return true;
}

std::size_t PathMap::serve(std::string_view path, PathBuffer& served) const {
  return path.starts_with('/') ? serve("/", path, served) : 0;
}

std::size_t PathMap::serve(std::string_view base, std::string_view path, PathBuffer& served) const {
  const auto shown = [this](std::string_view text) {
    const bool below = text.starts_with(root()) && text.substr(root_size_).starts_with('/');
    return below ? text.substr(root_size_) : text;
  };
  if (root_size_ == 0 || path.empty() || !base.starts_with('/')) return 0;
  if (path.starts_with('/')) base = {};
  Walk walk(root(), served);
  if (!walk.go(shown(base)) || !walk.go(shown(path))) return 0;
  return walk.end(means_directory(path));
}

std::optional<unsigned> PathMap::device_file(std::string_view served) const {
  constexpr std::string_view kByName = "/dev/infiniband/uverbs";
  constexpr std::string_view kByNumber = "/dev/char/231:";
  static_assert(kUverbsMajor == 231);
  served.remove_prefix(std::min(root_size_, served.size()));
  if (served == "/dev/infiniband/rdma_cm") return kRdmaCmFile;
  if (served.starts_with(kByName)) {
    const auto number = number_in(served.substr(kByName.size()));
    return number && *number >= first_ ? number : std::nullopt;
  }
  if (!served.starts_with(kByNumber)) return std::nullopt;
  const auto minor = number_in(served.substr(kByNumber.size()));
  if (!minor || *minor < kUverbsMinor + first_) return std::nullopt;
  return *minor - kUverbsMinor;
}

std::size_t PathMap::strip(char* text, std::size_t size) const {
  const std::string_view path(text, size);
  if (root_size_ == 0 || !path.starts_with(root())) return size;
  if (size == root_size_) {
    text[0] = '/';
    return 1;
  }
  if (path[root_size_] != '/') return size;
  std::memmove(text, text + root_size_, size - root_size_);
  return size - root_size_;
}

}  // namespace softhca::door
