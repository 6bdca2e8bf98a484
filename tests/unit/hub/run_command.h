// `softhca run` and related commands, run from a shell: what tests start and inspect.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "eventually.h"

namespace softhca::hub {

inline std::string content_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class RunCommandTest : public testing::Test {
 protected:
  RunCommandTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    std::filesystem::create_directory(directory_ / "x");
    ::chmod(runtime().c_str(), 0700);
    ::setenv("XDG_RUNTIME_DIR", runtime().c_str(), 1);
    // Use a library that adds nothing: other tests cover the effects of softhca's library.
    Dl_info libc{};
    ::dladdr(reinterpret_cast<const void*>(&::getpid), &libc);
    library_ = std::filesystem::canonical(libc.dli_fname);
    ::setenv("SOFTHCA_LIBRARY", library_.c_str(), 1);
    ::unsetenv("LD_PRELOAD");
  }
  ~RunCommandTest() override {
    ::unsetenv("SOFTHCA_LIBRARY");
    ::unsetenv("XDG_RUNTIME_DIR");
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  std::filesystem::path runtime() const { return directory_ / "x"; }
  std::filesystem::path file(const char* name) const { return directory_ / name; }

  /// Starts `softhca run` with `words`. Its output and errors go to the file "out".
  pid_t start(std::vector<std::string> words, const char* out = "out") const {
    words.insert(words.begin(), "run");
    return start_softhca(std::move(words), out);
  }
  pid_t start_softhca(std::vector<std::string> words, const char* out = "out") const {
    words.insert(words.begin(), SOFTHCA_PROGRAM);
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const auto pid = ::fork();
    if (pid == 0) {
      const int to = ::open(file(out).c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
      ::dup2(to, STDOUT_FILENO);
      ::dup2(to, STDERR_FILENO);
      ::execv(arguments[0], arguments.data());
      ::_exit(99);
    }
    return pid;
  }
  static int wait(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int run(std::vector<std::string> words) const { return wait(start(std::move(words))); }
  std::string out(const char* name = "out") const { return content_of(file(name)); }

  template <class Done>
  static bool comes(Done done) {
    return eventually(std::move(done));
  }
  bool nothing_is_left() const {
    return comes([this] { return std::filesystem::is_empty(runtime()); });
  }
  std::string line_of(const char* name) const {
    EXPECT_TRUE(comes([&] { return content_of(file(name)).find('\n') != std::string::npos; }));
    const auto text = content_of(file(name));
    return text.substr(0, text.find('\n'));
  }

  std::filesystem::path directory_;
  std::string library_;
};

}  // namespace softhca::hub
