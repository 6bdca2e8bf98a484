#include "run/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "run/reach.h"
#include "util/nearest.h"

namespace softhca::run {
namespace {

constexpr std::string_view kName = "libsofthca.so";
constexpr std::string_view kPreload = "LD_PRELOAD=";
constexpr std::string_view kDoor = "SOFTHCA_DOOR=";
/// GCC's AddressSanitizer runtime aborts a program if another library precedes it, and
/// libsofthca.so may.
constexpr std::string_view kAsan = "ASAN_OPTIONS=", kAsanOption = "verify_asan_link_order=0";
/// Variables set by an enclosing run.
constexpr std::string_view kOfTheRun[] = {
    kDoor,           "SOFTHCA_ADDRESS=", "SOFTHCA_DEVICES=", "SOFTHCA_CONTROL=",
    "SOFTHCA_LOSS=", "SOFTHCA_FAULTS="};
/// The shell and statuses of execvp() and shells.
constexpr const char* kShell = "/bin/sh";
constexpr int kNotFound = 127, kCannotRun = 126, kSignalled = 128;

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

bool is_of_a_run(const std::string& variable) {
  return std::ranges::any_of(kOfTheRun,
                             [&variable](auto name) { return variable.starts_with(name); });
}

/// Runs a file without a program format with the shell, as execvp() does.
Started start_script(std::vector<std::string> words, const std::vector<std::string>& environment,
                     const sigset_t& signals) {
  if (auto path = find_program(words[0]); !path.empty()) words[0] = std::move(path);
  words.insert(words.begin(), kShell);
  return start_program(words, environment, signals);
}

/// The programs of Debian's packages that softhca's documentation mentions.
struct Package {
  const char* name;
  std::vector<std::string> programs;
};
const std::vector<Package>& packages() {
  static const std::vector<Package> kPackages = {
      {"ibverbs-utils",
       {"ibv_asyncwatch", "ibv_devices", "ibv_devinfo", "ibv_rc_pingpong", "ibv_srq_pingpong",
        "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_xsrq_pingpong"}},
      {"perftest",
       {"ib_atomic_bw", "ib_atomic_lat", "ib_read_bw", "ib_read_lat", "ib_send_bw", "ib_send_lat",
        "ib_write_bw", "ib_write_lat", "raw_ethernet_bw", "raw_ethernet_lat"}},
      {"rdmacm-utils",
       {"cmtime", "mckey", "rcopy", "rdma_client", "rdma_server", "rdma_xclient", "rdma_xserver",
        "riostream", "rping", "rstream", "ucmatose", "udaddy", "udpong"}},
  };
  return kPackages;
}

/// The Debian package of `program`, or the program with the most similar name.
std::string package_of(std::string_view program) {
  std::vector<std::string> all;
  for (const auto& [name, programs] : packages()) {
    if (std::ranges::find(programs, program) != programs.end()) {
      return fmt::format(" (Debian has it in the package {})", name);
    }
    all.insert(all.end(), programs.begin(), programs.end());
  }
  return util::nearest(program, all);
}

/// Why `word` could not be started, for the user.
std::string reason_of(const std::string& word, int error) {
  if (word.empty()) {
    return "run: the program's name is empty (is a variable not set?); softhca run [OPTIONS] [--] "
           "PROGRAM [ARGUMENTS]...";
  }
  auto reason = why_not_started(word, error);
  if (reason.empty() && error == ENOENT) reason = "there is no such program" + package_of(word);
  return fmt::format("{}: {}", word, reason.empty() ? ::strerror(error) : reason);
}

}  // namespace

util::Result<std::string> find_library() {
  std::vector<std::string> places;
  std::error_code error;
  std::string_view advice = "run `make` where softhca was built, or set SOFTHCA_LIBRARY=PATH";
  if (const char* const given = ::getenv("SOFTHCA_LIBRARY"); given != nullptr && *given != '\0') {
    places.emplace_back(given);
    advice = "SOFTHCA_LIBRARY names it";
  } else {
    const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    if (error) {
      return util::fail(fmt::format(
          "/proc is not there, so softhca does not know where its {} is; SOFTHCA_LIBRARY=PATH may "
          "say it",
          kName));
    }
    places.push_back(program / kName);
    places.push_back((program / "../lib/softhca" / kName).lexically_normal());
  }
  for (const auto& place : places) {
    const auto path = std::filesystem::canonical(place, error).string();
    if (error || ::access(path.c_str(), R_OK) != 0) continue;
    // ld.so(8): these characters separate the names in LD_PRELOAD, and cannot be escaped.
    if (path.find_first_of(" :") == std::string::npos) return path;
    return util::fail(
        fmt::format("'{}': a path with a blank or a colon cannot be preloaded", path));
  }
  return util::fail(
      fmt::format("there is no {} at {}; {}", kName, fmt::join(places, ", nor at "), advice));
}

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) all.emplace_back(*at);
  return all;
}

std::vector<std::string> environment_for(const std::vector<std::string>& before,
                                         const std::string& library, const std::string& directory) {
  auto preload = std::string(kPreload) + library;
  auto asan = std::string(kAsan);
  std::vector<std::string> all;
  for (const auto& one : before) {
    if (one.starts_with(kPreload)) {
      const auto others = one.substr(kPreload.size());
      if (!others.empty() && others != library) preload += ":" + others;
    } else if (one.starts_with(kAsan)) {
      asan = one;
    } else if (!is_of_a_run(one)) {
      all.push_back(one);
    }
  }
  if (asan.find("verify_asan_link_order") == std::string::npos) {
    asan += (asan.size() == kAsan.size() ? "" : ":") + std::string(kAsanOption);
  }
  all.push_back(std::move(preload));
  all.push_back(std::string(kDoor) + directory);
  all.push_back(std::move(asan));
  return all;
}

std::vector<std::string> left_out_of(const std::vector<std::string>& before) {
  std::vector<std::string> names;
  for (const auto& one : before) {
    if (is_of_a_run(one)) names.push_back(one.substr(0, one.find('=')));
  }
  return names;
}

Started start_program(const std::vector<std::string>& words,
                      const std::vector<std::string>& environment, const sigset_t& signals) {
  auto word_copies = words;
  auto environment_copies = environment;
  const auto arguments = pointers_to(word_copies);
  const auto variables = pointers_to(environment_copies);
  ::posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  Started started;
  const auto error = ::posix_spawnp(&started.pid, arguments[0], nullptr, &attributes,
                                    arguments.data(), variables.data());
  ::posix_spawnattr_destroy(&attributes);
  if (error == 0) return started;
  if (error == ENOEXEC && words[0] != kShell) return start_script(words, environment, signals);
  started.pid = -1;
  started.status = error == ENOENT ? kNotFound : kCannotRun;
  started.reason = reason_of(words[0], error);
  return started;
}

int exit_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

}  // namespace softhca::run
