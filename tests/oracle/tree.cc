// Chapters tree and netlink: sysfs file by file, the output of `rdma`, device files.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>

#include "world.h"

namespace oracle {
namespace {

/// Sorted names in a folder.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  auto* const open = ::opendir(folder.c_str());
  if (open == nullptr) return names;
  while (const auto* const entry = ::readdir(open)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

std::string join(const std::vector<std::string>& names) {
  std::string all;
  for (const auto& name : names) all += (all.empty() ? "" : " ") + name;
  return all;
}

const char* type_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "folder";
    case S_IFREG:
      return "file";
    case S_IFLNK:
      return "link";
    case S_IFCHR:
      return "character device";
    default:
      return "other";
  }
}

/// True if the file's content differs from host to host: addresses, GUIDs, GIDs, PCI slots.
bool of_this_host(const std::string& path) {
  for (const auto* const part :
       {"guid",      "/gids/",  "/ndevs/",  "node_desc",  "/dev",       "uevent",  "serial",
        "/board_id", "address", "resource", "/irq",       "/config",    "/vpd",    "ttl",
        "numa_node", "cpulist", "cpumask",  "link_speed", "link_width", "modalias"})
    if (path.find(part) != std::string::npos) return true;
  return false;
}

std::string content(const std::string& path) {
  errno = 0;
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  if (file < 0) return "open: " + error_name(errno);
  char bytes[4096];
  const auto got = ::read(file, bytes, sizeof bytes);
  const int error = errno;
  ::close(file);
  if (got < 0) return "read: " + error_name(error);
  if (of_this_host(path)) return text("%s", got > 0 ? "something" : "empty");
  std::string all(bytes, static_cast<std::size_t>(got));
  for (auto& one : all)
    one = one == '\n' ? '|' : std::isprint(static_cast<unsigned char>(one)) ? one : '?';
  return all;
}

bool counts(const std::string& path) { return path.find("counters/") != std::string::npos; }
/// Messages that the connection manager has sent and received: a dozen counters in each of four
/// folders.
bool counts_messages(const std::string& path) { return path.find("/cm_") != std::string::npos; }

void file(const std::string& root, const std::string& path) {
  struct stat about{};
  const auto full = root + path;
  if (::lstat(full.c_str(), &about) != 0) {
    line(path, error_name(errno));
    return;
  }
  line(path + " is", text("%s %o", type_of(about.st_mode), about.st_mode & 07777u));
  if (S_ISDIR(about.st_mode)) {
    const auto names = names_in(full);
    // There are 256 GIDs and 128 P_Keys: print the first few and the count.
    const bool table = path.ends_with("gids") || path.ends_with("ndevs") ||
                       path.ends_with("types") || path.ends_with("pkeys");
    line(path + " holds", table ? text("%zu", names.size()) : join(names));
    if (counts_messages(path)) return;
    for (const auto& name : names)
      if (!table || (name.size() == 1 && name < "6")) file(root, path + "/" + name);
  } else if (S_ISREG(about.st_mode) && !counts(path)) {
    line(path, content(full));
  }
}

/// Output of a command, line by line, masked. Without a mask, only its exit status.
void command(const std::string& words, const std::function<std::string(std::string)>& mask) {
  auto* const out = ::popen((words + " 2>&1").c_str(), "r");
  need(out != nullptr, "popen");
  char bytes[4096];
  while (std::fgets(bytes, sizeof bytes, out) != nullptr) {
    bytes[std::strcspn(bytes, "\n")] = 0;
    if (mask) line(words, mask(bytes));
  }
  number(words + ", status", WEXITSTATUS(::pclose(out)));
}

bool hexadecimal(char one) { return std::isxdigit(static_cast<unsigned char>(one)) != 0; }

/// Masks words with colons and hexadecimal digits (GUIDs), and those after `pid`, `comm`, `netdev`
/// and so on.
std::string masked(std::string all) {
  std::string made, word, last;
  const auto flush = [&] {
    const auto colons = std::count(word.begin(), word.end(), ':');
    const bool guid = colons >= 3 && std::all_of(word.begin(), word.end(), [](char one) {
                        return hexadecimal(one) || one == ':';
                      });
    const bool hidden = last == "netdev" || last == "pid" || last == "comm" ||
                        last == "netdev_index" || last == "lqpn" || last == "rqpn" ||
                        last == "ctxn" || last == "node_desc" || last == "mrn" || last == "pdn" ||
                        last == "cqn";
    made += guid ? "GUID" : hidden && !word.empty() ? "*" : word;
    if (!word.empty() && word != ":") last = word;
    word.clear();
  };
  for (const char one : all) {
    if (std::strchr(" ,\"{}[]", one) != nullptr) {
      flush();
      made += one;
    } else {
      word += one;
    }
  }
  flush();
  return made;
}

void stat_line(const std::string& path) {
  struct stat about{};
  errno = 0;
  const int got = ::stat(path.c_str(), &about);
  line(path, got != 0 ? error_name(errno)
                      : text("%s %o", type_of(about.st_mode), about.st_mode & 07777u));
}

}  // namespace

ORACLE_CASE(tree, device) {
  for (const auto* const part :
       {"/board_id", "/fw_ver", "/hca_type", "/hw_rev", "/node_desc", "/node_guid", "/node_type",
        "/sys_image_guid", "/uevent", "/hw_counters", "/ports", "/subsystem"})
    file("/sys/class/infiniband/mlx5_0", part);
  line("holds", join(names_in("/sys/class/infiniband/mlx5_0/")));
}
ORACLE_CASE(tree, opened) {
  World world;
  file("/sys/class/infiniband/mlx5_0", "/ports");
}
ORACLE_CASE(tree, counted) {
  World world;
  const std::string root = "/sys/class/infiniband/mlx5_0/ports/1/";
  for (const auto* const folder : {"counters/", "hw_counters/"}) {
    for (const auto& name : names_in(root + folder)) {
      const auto value = content(root + folder + name);
      line(folder + name,
           value.find_first_not_of("0123456789|") == std::string::npos ? "a number" : value);
    }
  }
}
ORACLE_CASE(tree, verbs) {
  for (const auto* const part :
       {"/abi_version", "/ibdev", "/dev", "/uevent", "/device/vendor", "/device/device",
        "/device/subsystem_vendor", "/device/subsystem_device", "/device/class", "/device/revision",
        "/device/numa_node", "/device/local_cpus", "/device/uevent", "/device/modalias"})
    file("/sys/class/infiniband_verbs/uverbs0", part);
  line("holds", join(names_in("/sys/class/infiniband_verbs/uverbs0/")));
  line("class holds", join(names_in("/sys/class/infiniband_verbs/")));
  line("abi", content("/sys/class/infiniband_verbs/abi_version"));
  line("devices", join(names_in("/sys/class/infiniband/")));
  line("of the function", join(names_in("/sys/class/infiniband/mlx5_0/device/infiniband/")));
  line("verbs of the function",
       join(names_in("/sys/class/infiniband/mlx5_0/device/infiniband_verbs/")));
  line("cm", content("/sys/class/misc/rdma_cm/abi_version"));
  stat_line("/sys/class/misc/rdma_cm/dev");
}
ORACLE_CASE(tree, files) {
  line("holds", join(names_in("/dev/infiniband/")));
  struct stat about{};
  ::stat("/sys/class/infiniband/mlx5_0/fw_ver", &about);
  number("bytes of fw_ver", about.st_size);
  for (const auto* const path :
       {"/dev/infiniband", "/dev/infiniband/", "/dev/infiniband/.", "/dev/infiniband/..",
        "/dev/infiniband/../null", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1",
        "/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0/",
        "/sys/class/infiniband", "/sys/class/infiniband/mlx5_0", "/sys/class/infiniband/mlx5_2",
        "/sys/class/infiniband/mlx5_0/ports/0", "/sys/class/infiniband/mlx5_0/ports/2",
        "/sys/class/infiniband/../infiniband/mlx5_0"})
    stat_line(path);
  for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_NONBLOCK, O_RDWR | O_TRUNC,
                          O_RDWR | O_CREAT | O_EXCL, O_RDONLY | O_DIRECTORY, O_PATH}) {
    errno = 0;
    const int got = ::open("/dev/infiniband/uverbs0", flags, 0600);
    line(text("open uverbs0 0x%x", flags), got < 0 ? error_name(errno) : "ok");
    if (got >= 0) ::close(got);
  }
  for (const auto* const path :
       {"/sys/class/infiniband/mlx5_0/fw_ver", "/sys/class/infiniband/mlx5_0/node_desc",
        "/sys/class/infiniband/mlx5_0/ports/1/state"}) {
    for (const int flags : {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC}) {
      errno = 0;
      const int got = ::open(path, flags);
      line(text("open %s 0x%x", path, flags), got < 0 ? error_name(errno) : "ok");
      if (got >= 0) ::close(got);
    }
  }
}
ORACLE_CASE(netlink, rdma) {
  for (const auto* const words :
       {"rdma dev", "rdma dev show mlx5_0", "rdma dev show mlx5_7", "rdma -d dev", "rdma -j dev",
        "rdma link", "rdma link show mlx5_0/1", "rdma link show mlx5_0/2", "rdma -d link",
        "rdma -j link show mlx5_1", "rdma system", "rdma -d system",
        "rdma dev set mlx5_0 name mlx5_1", "rdma dev set mlx5_0 adaptive-moderation on",
        "rdma link add a type b netdev c", "rdma link delete a", "rdma foo"})
    command(words, masked);
}
/// Object counts depend on what ran before, so print only whether they are reported.
ORACLE_CASE(netlink, objects) {
  World world;
  Pair pair(world);
  for (const auto* const words :
       {"rdma resource", "rdma resource show mlx5_0", "rdma resource show qp",
        "rdma resource show qp link mlx5_0/1", "rdma resource show cq dev mlx5_0",
        "rdma resource show pd dev mlx5_0", "rdma resource show mr dev mlx5_0",
        "rdma resource show cm_id", "rdma resource show ctx", "rdma resource show srq",
        "rdma statistic", "rdma statistic qp mode", "rdma statistic mode",
        "rdma statistic show link mlx5_0/1"})
    command(words, nullptr);
}

}  // namespace oracle
