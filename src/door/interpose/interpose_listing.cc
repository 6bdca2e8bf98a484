// Directory listings. Directories of the tree are listed as they are. A listing of a host directory
// above them also has the tree's names, so that shells and lspci find them.
#include <dirent.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>

#include "door/interpose/interpose.h"
#include "door/tree/tree.h"

namespace softhca::door {
namespace {

SOFTHCA_NEXT Next<DIR*, const char*> next_opendir("opendir");
SOFTHCA_NEXT Next<dirent*, DIR*> next_readdir("readdir");
SOFTHCA_NEXT Next<int, DIR*> next_closedir("closedir");
SOFTHCA_NEXT Next<void, DIR*> next_rewinddir("rewinddir");
SOFTHCA_NEXT Next<DIR*, int> next_fdopendir("fdopendir");
SOFTHCA_NEXT Next<int, DIR*, dirent*, dirent**> next_readdir_r("readdir_r");
SOFTHCA_NEXT Next<long, DIR*> next_telldir("telldir");
SOFTHCA_NEXT Next<void, DIR*, long> next_seekdir("seekdir");

/// Positions in the tree, as telldir() reports them: this, and how many of its names were read.
/// Those of the host are not negative.
constexpr long kInTree = LONG_MIN;

/// Host directories that get names from the tree.
constexpr std::array<std::string_view, 5> kParents = {"/sys/class", "/sys/bus/pci/devices",
                                                      "/sys/devices", "/dev", "/dev/char"};

/// The one of these that `path` names; empty: none.
std::string_view parent_named(const char* path) {
  if (path == nullptr || path[0] != '/' || (path[1] != 's' && path[1] != 'd')) return {};
  std::string_view name(path);
  while (name.ends_with('/')) name.remove_suffix(1);
  const auto* const at = std::ranges::find(kParents, name);
  return at == kParents.end() ? std::string_view() : *at;
}

/// A stream of the host's directory, followed by that of the tree.
struct Listing {
  std::atomic<DIR*> host = nullptr;
  DIR* tree = nullptr;
  std::string_view parent;
  bool is_in_tree = false;
  long read = 0;  ///< names of the tree

  void rewind_tree() {
    next_rewinddir(tree);
    is_in_tree = false;
    read = 0;
  }
};
/// One thread at a time uses a stream, and so its entry. If all entries are in use, further streams
/// list only the host's names.
constinit std::array<Listing, 16> listings{};
constinit std::atomic<unsigned> listing_count = 0;

Listing* find_listing(DIR* host) {
  if (host == nullptr || listing_count.load(std::memory_order_relaxed) == 0) return nullptr;
  auto* const at = std::ranges::find_if(
      listings, [host](const Listing& one) { return one.host.load() == host; });
  return at == listings.end() ? nullptr : at;
}

Listing* note_listing(DIR* host) {
  for (auto& one : listings) {
    DIR* none = nullptr;
    if (!one.host.compare_exchange_strong(none, host)) continue;
    ++listing_count;
    return &one;
  }
  return nullptr;
}

DIR* open_in_tree(std::string_view parent, const PathMap& paths) {
  const auto root = paths.root();
  PathBuffer path;
  if (root.size() + parent.size() >= path.size()) return nullptr;
  root.copy(path.data(), root.size());
  parent.copy(&path[root.size()], parent.size());
  path[root.size() + parent.size()] = '\0';
  return next_opendir(path.data());
}

/// `host`: what libc has opened for `parent`, or null.
[[gnu::noinline]] DIR* with_tree(DIR* host, std::string_view parent, const PathMap& paths) {
  const int error = errno;
  DIR* const tree = open_in_tree(parent, paths);
  errno = error;
  if (host == nullptr || tree == nullptr) return host == nullptr ? tree : host;
  if (auto* const listing = note_listing(host)) {
    listing->tree = tree;
    listing->parent = parent;
    listing->is_in_tree = false;
    listing->read = 0;
  } else {
    next_closedir(tree);
  }
  return host;
}

bool is_served(std::string_view parent, std::string_view name, const PathMap& paths) {
  PathBuffer path, served;
  if (name == "." || name == ".." || parent.size() + 1 + name.size() > path.size()) return false;
  parent.copy(path.data(), parent.size());
  path[parent.size()] = '/';
  name.copy(&path[parent.size() + 1], name.size());
  return paths.serve({path.data(), parent.size() + 1 + name.size()}, served) != 0;
}

/// The next entry: first those of the host's stream whose names the door does not serve, then those
/// of the tree's stream whose names it does. Null: there is none, or an error.
template <class Read>
dirent* next_entry(Listing& listing, const PathMap& paths, Read&& read) {
  const auto find = [&](DIR* stream, bool wanted) {
    auto* entry = read(stream);
    while (entry != nullptr && is_served(listing.parent, entry->d_name, paths) != wanted) {
      entry = read(stream);
    }
    return entry;
  };
  if (!listing.is_in_tree) {
    if (auto* const entry = find(listing.host, false)) return entry;
    listing.is_in_tree = true;
  }
  auto* const entry = find(listing.tree, true);
  listing.read += entry != nullptr;
  return entry;
}

[[gnu::noinline]] dirent* read_listing(Listing& listing, const PathMap& paths) {
  return next_entry(listing, paths, [](DIR* stream) { return next_readdir(stream); });
}

[[gnu::noinline]] int read_listing(Listing& listing, const PathMap& paths, dirent* entry,
                                   dirent** result) {
  int error = 0;
  *result = next_entry(listing, paths, [&](DIR* stream) -> dirent* {
    dirent* found = nullptr;
    error = next_readdir_r(stream, entry, &found);
    return error == 0 ? found : nullptr;
  });
  return error;
}

[[gnu::noinline]] void seek_listing(Listing& listing, const PathMap& paths, long position) {
  listing.rewind_tree();
  if (position >= 0) return next_seekdir(listing.host.load(), position);
  listing.is_in_tree = true;
  while (listing.read != position - kInTree && read_listing(listing, paths) != nullptr) {
  }
}

/// The parent that `fd` has open; empty: none.
[[gnu::noinline]] std::string_view parent_open(int fd) {
  const int before = errno;
  PathBuffer path;
  const auto size = path_of_descriptor(fd, path);
  errno = before;
  return size == 0 ? std::string_view() : parent_named(path.data());
}

}  // namespace

SOFTHCA_INTERPOSE(DIR*, door_opendir, "opendir", (const char* path)) {
  const auto parent = parent_named(path);
  const auto* const paths = parent.empty() ? nullptr : named_paths();
  if (paths != nullptr) return with_tree(next_opendir(path), parent, *paths);
  DIR* const directory =
      with_served_name(path, [](const char* name) { return next_opendir(name); });
  if (directory == nullptr && errno == ENOENT) report_ended_run(path);
  return directory;
}

SOFTHCA_INTERPOSE(DIR*, door_fdopendir, "fdopendir", (int fd)) {
  const auto* const paths = named_paths();
  const auto parent = paths == nullptr ? std::string_view() : parent_open(fd);
  DIR* const host = next_fdopendir(fd);
  return host == nullptr || parent.empty() ? host : with_tree(host, parent, *paths);
}

SOFTHCA_INTERPOSE(dirent*, door_readdir, "readdir", (DIR * stream)) {
  auto* const listing = find_listing(stream);
  const auto* const paths = listing == nullptr ? nullptr : named_paths();
  return paths == nullptr ? next_readdir(stream) : read_listing(*listing, *paths);
}

SOFTHCA_INTERPOSE(int, door_readdir_r, "readdir_r",
                  (DIR * stream, dirent* entry, dirent** result)) {
  auto* const listing = find_listing(stream);
  const auto* const paths = listing == nullptr ? nullptr : named_paths();
  return paths == nullptr ? next_readdir_r(stream, entry, result)
                          : read_listing(*listing, *paths, entry, result);
}

SOFTHCA_INTERPOSE(void, door_rewinddir, "rewinddir", (DIR * stream)) {
  if (auto* const listing = find_listing(stream)) listing->rewind_tree();
  next_rewinddir(stream);
}

SOFTHCA_INTERPOSE(long, door_telldir, "telldir", (DIR * stream)) {
  auto* const listing = find_listing(stream);
  return listing != nullptr && listing->is_in_tree ? kInTree + listing->read : next_telldir(stream);
}

SOFTHCA_INTERPOSE(void, door_seekdir, "seekdir", (DIR * stream, long position)) {
  auto* const listing = find_listing(stream);
  const auto* const paths = listing == nullptr ? nullptr : named_paths();
  return paths == nullptr ? next_seekdir(stream, position)
                          : seek_listing(*listing, *paths, position);
}

SOFTHCA_INTERPOSE(int, door_closedir, "closedir", (DIR * stream)) {
  if (auto* const listing = find_listing(stream)) {
    DIR* const tree = listing->tree;
    // From here on another thread may take the entry.
    --listing_count;
    listing->host = nullptr;
    next_closedir(tree);
  }
  return next_closedir(stream);
}

SOFTHCA_INTERPOSE_ALIAS(dirent*, door_readdir64, "readdir64", (DIR*), "readdir");
SOFTHCA_INTERPOSE_ALIAS(int, door_readdir64_r, "readdir64_r", (DIR*, dirent*, dirent**),
                        "readdir_r");

}  // namespace softhca::door
