// The working directory of a process. If it is one of the tree, the process and the programs that
// it starts are in the real directory below the root. The process gets the name that it asked for.
// fchdir needs no help: its descriptor already refers to the tree.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "door/interpose/interpose.h"

namespace softhca::door {
namespace {

SOFTHCA_NEXT Next<int, const char*> next_chdir("chdir");
SOFTHCA_NEXT Next<char*, char*, std::size_t> next_getcwd("getcwd");

/// Whether the working directory is below the tree's root, but not one that the door serves.
/// `shown` gets its name without the root.
bool is_astray(const PathMap& paths, PathBuffer& shown) {
  if (next_getcwd(shown.data(), shown.size()) == nullptr) return false;
  const auto size = std::strlen(shown.data());
  const auto left = paths.strip(shown.data(), size);
  if (left == size) return false;
  shown[left] = '\0';
  PathBuffer served;
  return paths.serve({shown.data(), left}, served) == 0;
}

/// Leaving the tree by ".." leads to the host's directory of that name.
[[gnu::noinline]] void leave_by_dots(const PathMap& paths) {
  PathBuffer shown;
  const int before = errno;
  if (is_astray(paths, shown)) next_chdir(shown.data());
  errno = before;
}
void leave_tree(const PathMap& paths, const char* path) {
  if (is_near(path) && std::strstr(path, "..") != nullptr) leave_by_dots(paths);
}

/// The name in an allocated buffer, of `size` bytes or as many as needed, as in glibc.
char* allocated_name(std::size_t size, const PathMap& paths) {
  char* const name = next_getcwd(nullptr, 0);
  if (name == nullptr) return nullptr;
  const auto length = paths.strip(name, std::strlen(name));
  name[length] = '\0';
  if (size == 0) return name;
  if (length < size) {
    auto* const roomy = static_cast<char*>(std::realloc(name, size));
    if (roomy != nullptr) return roomy;
  } else {
    errno = ERANGE;
  }
  std::free(name);
  return nullptr;
}

/// getcwd() of a directory whose real name below the root is longer than `size`.
[[gnu::noinline]] char* shorter_name(char* text, std::size_t size, const PathMap& paths) {
  PathBuffer real;
  if (next_getcwd(real.data(), real.size()) == nullptr) return nullptr;
  const auto length = paths.strip(real.data(), std::strlen(real.data()));
  if (length >= size) {
    errno = ERANGE;
    return nullptr;
  }
  std::memcpy(text, real.data(), length);
  text[length] = '\0';
  return text;
}

char* working_directory(char* text, std::size_t size) {
  const auto* paths = named_paths();
  if (paths == nullptr) return next_getcwd(text, size);
  if (text == nullptr) return allocated_name(size, *paths);
  if (next_getcwd(text, size) == nullptr) {
    return errno == ERANGE ? shorter_name(text, size, *paths) : nullptr;
  }
  text[paths->strip(text, std::strlen(text))] = '\0';
  return text;
}

}  // namespace

SOFTHCA_INTERPOSE(int, door_chdir, "chdir", (const char* path)) {
  const auto* paths = named_paths();
  const int result = with_served_name(path, [&](const char* name) {
    const int changed = next_chdir(name);
    if (changed == 0 && paths != nullptr) leave_tree(*paths, path);
    return changed;
  });
  if (result == 0 && paths != nullptr) note_directory();
  return result;
}

SOFTHCA_INTERPOSE(char*, door_getcwd, "getcwd", (char* text, std::size_t size)) {
  return working_directory(text, size);
}

// For programs compiled with _FORTIFY_SOURCE: libc aborts if the buffer is too short.
SOFTHCA_INTERPOSE(char*, door_getcwd_chk, "__getcwd_chk",
                  (char* text, std::size_t size, std::size_t room)) {
  static SOFTHCA_NEXT Next<char*, char*, std::size_t, std::size_t> next("__getcwd_chk");
  return size > room ? next(text, size, room) : working_directory(text, size);
}

// libc's own version compares $PWD by an internal stat, which finds the host's directory.
SOFTHCA_INTERPOSE(char*, door_get_current_dir_name, "get_current_dir_name", ()) {
  static SOFTHCA_NEXT Next<char*> next("get_current_dir_name");
  const auto* paths = named_paths();
  char* const name = next();
  if (name == nullptr || paths == nullptr) return name;
  name[paths->strip(name, std::strlen(name))] = '\0';
  return name;
}

}  // namespace softhca::door
