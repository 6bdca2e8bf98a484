// Directory listings. Directories of the tree are listed as they are. In the host's directories
// above them our names are added to the host's, so that shells and lspci find them.
#include <dirent.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "door/interpose.h"
#include "door/tree/tree.h"

namespace softhca::door {
namespace {

SOFTHCA_NEXT Next<DIR*, const char*> next_opendir("opendir");
SOFTHCA_NEXT Next<dirent*, DIR*> next_readdir("readdir");
SOFTHCA_NEXT Next<int, DIR*> next_closedir("closedir");
SOFTHCA_NEXT Next<void, DIR*> next_rewinddir("rewinddir");

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

/// Opens `parent` in the tree.
DIR* open_in_tree(std::string_view parent, const PathMap& paths) {
  const auto root = paths.root();
  PathBuffer path;
  if (root.size() + parent.size() >= path.size()) return nullptr;
  root.copy(path.data(), root.size());
  parent.copy(&path[root.size()], parent.size());
  path[root.size() + parent.size()] = '\0';
  return next_opendir(path.data());
}

[[gnu::noinline]] DIR* open_parent(const char* path, std::string_view parent,
                                   const PathMap& paths) {
  DIR* const host = next_opendir(path);
  const int error = errno;
  DIR* const tree = open_in_tree(parent, paths);
  errno = error;
  if (host == nullptr || tree == nullptr) return host == nullptr ? tree : host;
  if (auto* const listing = note_listing(host)) {
    listing->tree = tree;
    listing->parent = parent;
    listing->is_in_tree = false;
  } else {
    next_closedir(tree);
  }
  return host;
}

/// Whether the door serves `name` in `parent`.
bool is_served(std::string_view parent, std::string_view name, const PathMap& paths) {
  PathBuffer path, served;
  if (name == "." || name == ".." || parent.size() + 1 + name.size() > path.size()) return false;
  parent.copy(path.data(), parent.size());
  path[parent.size()] = '/';
  name.copy(&path[parent.size() + 1], name.size());
  return paths.serve({path.data(), parent.size() + 1 + name.size()}, served) != 0;
}

/// The next entry of the stream that is served (`wanted`), or that is not.
dirent* next_entry(DIR* stream, const Listing& listing, bool wanted, const PathMap& paths) {
  for (auto* entry = next_readdir(stream); entry != nullptr; entry = next_readdir(stream)) {
    if (is_served(listing.parent, entry->d_name, paths) == wanted) return entry;
  }
  return nullptr;
}

[[gnu::noinline]] dirent* read_listing(Listing& listing, const PathMap& paths) {
  if (!listing.is_in_tree) {
    if (auto* const entry = next_entry(listing.host, listing, false, paths)) return entry;
    listing.is_in_tree = true;
  }
  return next_entry(listing.tree, listing, true, paths);
}

}  // namespace

SOFTHCA_INTERPOSE(DIR*, door_opendir, "opendir", (const char* path)) {
  const auto parent = parent_named(path);
  const auto* const paths = parent.empty() ? nullptr : wanted_paths();
  if (paths != nullptr) return open_parent(path, parent, *paths);
  DIR* const directory =
      with_served_name(path, [](const char* name) { return next_opendir(name); });
  if (directory == nullptr && errno == ENOENT) tell_of_ended_run(path);
  return directory;
}

SOFTHCA_INTERPOSE(dirent*, door_readdir, "readdir", (DIR * stream)) {
  auto* const listing = find_listing(stream);
  const auto* const paths = listing == nullptr ? nullptr : wanted_paths();
  return paths == nullptr ? next_readdir(stream) : read_listing(*listing, *paths);
}

SOFTHCA_INTERPOSE(void, door_rewinddir, "rewinddir", (DIR * stream)) {
  if (auto* const listing = find_listing(stream)) {
    next_rewinddir(listing->tree);
    listing->is_in_tree = false;
  }
  next_rewinddir(stream);
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

}  // namespace softhca::door
