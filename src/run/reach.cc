#include "run/reach.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace softhca::run {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#endif

bool is_program(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

/// The first file of that name in $PATH which `is_wanted(path)`; a word with a slash is a path.
std::string find_in_path(const std::string& word, bool (*is_wanted)(const std::string& path)) {
  if (word.find('/') != std::string::npos) return word;
  const char* const places = std::getenv("PATH");
  std::istringstream all(places == nullptr ? "/bin:/usr/bin" : places);
  for (std::string place; std::getline(all, place, ':');) {
    const auto path = (place.empty() ? "." : place) + "/" + word;
    if (is_wanted(path)) return path;
  }
  return {};
}

template <class T>
std::optional<T> read_at(std::ifstream& file, std::uint64_t offset) {
  std::array<char, sizeof(T)> bytes;
  file.seekg(static_cast<std::streamoff>(offset));
  if (!file.read(bytes.data(), bytes.size())) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// System V ABI: the loader that the program requests; empty: none.
std::string loader_of(std::ifstream& file, const Elf64_Ehdr& header) {
  for (unsigned i = 0; i != header.e_phnum; ++i) {
    const auto segment =
        read_at<Elf64_Phdr>(file, header.e_phoff + std::uint64_t{i} * header.e_phentsize);
    if (!segment) break;
    if (segment->p_type != PT_INTERP || segment->p_filesz > 4096) continue;
    std::string name(segment->p_filesz, '\0');
    file.seekg(static_cast<std::streamoff>(segment->p_offset));
    file.read(name.data(), static_cast<std::streamsize>(name.size()));
    return name.c_str();
  }
  return {};
}

/// The program that the kernel starts to run a file: of its "#!" line, or its loader. Empty: none.
std::string interpreter_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (const auto header = read_at<Elf64_Ehdr>(file, 0);
      header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0) {
    return header->e_ident[EI_CLASS] == ELFCLASS64 ? loader_of(file, *header) : "";
  }
  file.clear();  // it may be shorter than such a header
  file.seekg(0);
  std::string line(256, '\0');  // the kernel reads no more (BINPRM_BUF_SIZE)
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  line.resize(std::min(line.size(), line.find('\n')));
  if (!line.starts_with("#!")) return {};
  // execve(2): blanks and tabs separate it from the mark and from its argument.
  constexpr const char* kBlanks = " \t";
  const auto begin = line.find_first_not_of(kBlanks, 2);
  if (begin == std::string::npos) return {};
  const auto end = line.find_first_of(kBlanks, begin);
  return line.substr(begin, end == std::string::npos ? end : end - begin);
}

std::string why_not_loaded(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != kMachine) {
    return "it is of another architecture than this softhca, whose library it cannot load";
  }
  const auto loader = loader_of(file, *header);
  if (loader.empty()) {
    return "it is linked statically, and no library can stand between it and the kernel; build "
           "it with shared libraries";
  }
  if (loader.find("ld-musl") != std::string::npos) {
    return "it uses the C library musl, and this softhca is made for glibc";
  }
  return {};
}

}  // namespace

std::string find_program(const std::string& word) { return find_in_path(word, is_program); }

std::string why_not_started(const std::string& word, int error) {
  auto path = find_program(word);
  if (path.empty()) path = find_in_path(word, is_there);
  struct stat status;
  if (path.empty() || ::stat(path.c_str(), &status) != 0) return {};
  if (S_ISDIR(status.st_mode)) return "it is a directory";
  if (!S_ISREG(status.st_mode) || (error != ENOENT && error != EACCES)) return {};
  if (::access(path.c_str(), X_OK) != 0) return "it is not executable (chmod +x makes it so)";
  // The kernel's error is about the interpreter as well.
  auto interpreter = interpreter_of(path);
  if (interpreter.empty() || ::access(interpreter.c_str(), X_OK) == 0) {
    return error == ENOENT ? "a file that the kernel needs to start it is missing" : "";
  }
  const auto* const wrong = std::strerror(errno);
  if (interpreter.ends_with('\r')) {
    interpreter.pop_back();
    return fmt::format("its first line, with the interpreter {}, ends with CR LF instead of LF",
                       interpreter);
  }
  return fmt::format("its interpreter {}: {}", interpreter, wrong);
}

std::string why_out_of_reach(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  // ld.so(8), "Secure-execution mode": LD_PRELOAD names with a slash are ignored.
  const bool other_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid();
  const bool other_group = (status.st_mode & S_ISGID) != 0 && status.st_gid != ::getgid();
  // Also if root runs them, when the loader would not interfere.
  for (const auto* one : {"/sudo", "/doas"}) {
    if (!other_user && path.ends_with(one)) {
      return fmt::format(
          "it clears the environment, through which its program would find this run; put it in "
          "front: {} ... softhca run ...",
          one + 1);
    }
  }
  for (const auto* one : {"/sudo", "/su", "/doas", "/runuser"}) {
    if (other_user && path.ends_with(one)) {
      return fmt::format(
          "it is set-uid, and the loader preloads no library into such programs; put it in front: "
          "{} ... softhca run ...",
          one + 1);
    }
  }
  if (other_user || other_group) {
    return fmt::format(
        "it is set-{}, and the loader preloads no library into such programs; run "
        "a copy of it without that bit",
        other_user ? "uid" : "gid");
  }
  if (::getuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) {
    return "it has capabilities of its own (setcap), and the loader preloads no library into such "
           "programs; run a copy of it without them";
  }
  return why_not_loaded(path);
}

}  // namespace softhca::run
