// Files and directories of the tree, as libc reads them.
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "lives.h"

namespace lives {
namespace {

/// A file of the tree is like a file of sysfs, which root may not write either.
int sysfs_file() {
  constexpr const char* kFile = "/sys/class/infiniband/mlx5_0/fw_ver";
  tell("to read", ::open(kFile, O_RDONLY | O_TRUNC));
  tell("to write", ::open(kFile, O_WRONLY));
  tell("stream to write", std::fopen(kFile, "w") != nullptr ? 0 : -1);
  std::FILE* const other = std::fopen("/dev/null", "r");
  tell("stream anew to write", std::freopen(kFile, "w", other) != nullptr ? 0 : -1);
  struct stat status{};
  expect(::stat(kFile, &status) == 0, "stat");
  std::printf("size: %ld\n", static_cast<long>(status.st_size));
  // `cp -a` copies hard links of one file only once, so each file must have one name.
  expect(::stat("/sys/class/infiniband/mlx5_0/ports/1/gids/2", &status) == 0, "stat");
  std::printf("names: %ld\n", static_cast<long>(status.st_nlink));
  const int type = ::open("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/200", O_RDONLY);
  tell("GID that is none", type);
  char bytes[16];
  tell("its type", ::read(type, bytes, sizeof bytes));
  return 0;
}

/// Most files of the tree can be read without a device of this process. A GID needs the device,
/// since its address comes from the network.
int looks_at_gids() {
  const auto show = [](const char* name, int most = 64) {
    const auto path = std::string("/sys/class/infiniband/mlx5_0/ports/1/") + name;
    char text[64] = "";
    const int file = ::open(path.c_str(), O_RDONLY);
    const auto size = file < 0 ? -1 : ::read(file, text, sizeof text - 1);
    if (size < 0) return std::printf("%s\n", std::strerror(errno));
    text[std::strcspn(text, "\n")] = '\0';
    return std::printf("%.*s\n", most, text);
  };
  for (const auto* name : {"gids/200", "gid_attrs/types/2", "gid_attrs/types/3",
                           "gid_attrs/ndevs/0", "gid_attrs/types/4", "gids/256"}) {
    show(name);
  }
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  std::printf("%td\n", threads());
  show("gids/2", 32);  // the rest depends on the process's number on the network
  std::printf("%td\n", threads());
  for (const auto* name : {"gids/256", "gid_attrs/types/256"}) show(name);
  return 0;
}

/// Listings of host directories to which the tree adds names.
int listings() {
  for (const auto& [parent, name] :
       {std::pair("/sys/class", "infiniband"), std::pair("/dev", "infiniband"),
        std::pair("/sys/bus/pci/devices", "5348:00:00.0")}) {
    const auto is_ours = [wanted = name](const dirent* entry) {
      return std::strcmp(entry->d_name, wanted) == 0;
    };
    int read = 0, by_descriptor = 0, wrong = 0;
    DIR* const listing = ::opendir(parent);
    expect(listing != nullptr, parent);
    dirent place{}, *entry = nullptr;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    while (::readdir_r(listing, &place, &entry) == 0 && entry != nullptr) read += is_ours(entry);
#pragma GCC diagnostic pop
    // seekdir() finds each position of telldir() again.
    ::rewinddir(listing);
    std::vector<std::pair<long, std::string>> places;
    for (long at = ::telldir(listing); (entry = ::readdir(listing)) != nullptr;
         at = ::telldir(listing)) {
      places.emplace_back(at, entry->d_name);
    }
    std::ranges::reverse(places);
    for (const auto& [at, its] : places) {
      ::seekdir(listing, at);
      entry = ::readdir(listing);
      wrong += entry == nullptr || its != entry->d_name;
    }
    ::closedir(listing);
    DIR* const opened = ::fdopendir(::open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    expect(opened != nullptr, "fdopendir");
    while ((entry = ::readdir(opened)) != nullptr) by_descriptor += is_ours(entry);
    ::closedir(opened);
    std::printf("%s: read %d, by descriptor %d, %d wrong\n", name, read, by_descriptor, wrong);
  }
  return 0;
}

int tell_path(const char* path, const struct stat*, int, struct FTW* place) {
  if (place->level == 0) std::puts(path + place->base);
  return std::strncmp(path, "/sys/", 5) == 0 ? 0 : 1;
}

/// Functions of libc that walk directories by themselves.
int walks() {
  glob_t found{};
  expect(::glob("/sys/class/infiniband/*", 0, nullptr, &found) == 0, "glob");
  for (std::size_t i = 0; i != found.gl_pathc; ++i) std::puts(found.gl_pathv[i]);
  ::globfree(&found);
  const int walked =
      ::nftw("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs", tell_path, 8, FTW_PHYS);
  std::printf("%d\n", walked);
  // Host directories to which the tree adds a name.
  for (const auto& [parent, name] :
       {std::pair("/sys/class", "infiniband"), std::pair("/dev/", "infiniband"),
        std::pair("/sys/bus/pci/devices", "5348:00:00.0")}) {
    DIR* const listing = ::opendir(parent);
    expect(listing != nullptr, parent);
    int ours = 0, others = 0;
    for (int round = 0; round != 2; ++round, ::rewinddir(listing)) {
      while (const auto* entry = ::readdir(listing)) {
        ++(std::strcmp(entry->d_name, name) == 0 ? ours : others);
      }
    }
    ::closedir(listing);
    std::printf("%s: %d and %s\n", name, ours, others > 4 || name[0] == '5' ? "others" : "none");
  }
  struct statfs status{};
  expect(::statfs("/sys/class/infiniband", &status) == 0, "statfs");
  std::printf("%s\n", status.f_type == SYSFS_MAGIC ? "sysfs" : "none");
  const int directory = ::open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY);
  expect(::fstatfs(directory, &status) == 0, "fstatfs");
  std::printf("%s\n", status.f_type == SYSFS_MAGIC ? "sysfs" : "none");
  struct statvfs system{};
  tell("statvfs", ::statvfs("/sys/class/infiniband/mlx5_0", &system));
  // Paths that leave the tree by "..", and so name files of the host.
  tell("creat", ::creat("/dev/infiniband/../null", 0600));
  const auto nothing = [](const char*, const struct stat*, int) { return 0; };
  tell("ftw", ::ftw("/dev/infiniband/../null", nothing, 8));
  const auto no_place = [](const char*, const struct stat*, int, struct FTW*) { return 0; };
  tell("nftw", ::nftw("/dev/infiniband/../null", no_place, 8, FTW_PHYS));
  // A file whose content differs between processes.
  std::FILE* const file = std::freopen("/sys/class/infiniband/mlx5_0/ports/1/gids/3", "r", stdin);
  char gid[64] = "";
  expect(file != nullptr && std::fgets(gid, sizeof gid, file) != nullptr, "freopen");
  std::printf("%.24s\n", gid);
  return 0;
}

constexpr Case kCases[] = {{"walks", walks},
                           {"listings", listings},
                           {"looks-at-gids", looks_at_gids},
                           {"sysfs-file", sysfs_file}};

}  // namespace

std::span<const Case> tree() { return kCases; }

}  // namespace lives
