// A server with a process for each guest, for tests: in a thread of this process, its processes of
// the real program.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/control_socket.h"
#include "cli/serve.h"
#include "util/log.h"

namespace softhca::cli {

class IsolateTest : public ::testing::Test {
 protected:
  IsolateTest() {
    // serve() takes SIGTERM by signalfd; no other thread may get it first.
    ::sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGTERM);
    ::sigaddset(&set, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set, &old_signals_);
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    options_.control = directory_ / "control";
    options_.isolate = true;
    options_.program = SOFTHCA_PROGRAM;
    util::set_log_sink([this](auto, auto text) {
      const std::lock_guard lock(mutex_);
      log_ += std::string(text) + "\n";
    });
  }
  ~IsolateTest() override {
    stop();
    ::pthread_sigmask(SIG_SETMASK, &old_signals_, nullptr);
    util::set_log_sink(nullptr);
    if (HasFailure()) std::fputs(log_.c_str(), stderr);
    std::filesystem::remove_all(directory_);
  }

  void start(std::vector<std::string> devices) {
    options_.devices = std::move(devices);
    for (std::size_t i = 0; i != options_.devices.size(); ++i) {
      options_.sockets.push_back(directory_ / ("socket" + std::to_string(i)));
    }
    server_ = std::thread([this] {
      result_ = serve(options_);
      ended_ = true;
    });
    while (!ended_ && !ask_control(options_.control, "inspect processes")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  void stop() {
    if (!server_.joinable()) return;
    if (!ended_) ::kill(::getpid(), SIGTERM);
    server_.join();
    EXPECT_TRUE(result_ || refused_) << result_.error().message;
  }

  const std::string& socket(std::size_t device) const { return options_.sockets[device]; }
  std::string ask(const std::string& request) const {
    const auto answer = ask_control(options_.control, request);
    return answer ? *answer : "no answer: " + answer.error().message;
  }
  nlohmann::json processes() const {
    const auto answer = ask("inspect --json processes");
    return answer.starts_with("ok\n") ? nlohmann::json::parse(answer.substr(3)) : nlohmann::json();
  }
  pid_t pid_of(const std::string& name) const { return processes()[name]["pid"]; }
  void signal_process(const std::string& name, int number) const {
    const auto pid = pid_of(name);
    ASSERT_GT(pid, 0) << name;
    ASSERT_EQ(::kill(pid, number), 0);
  }
  /// Waits until the process of `name` has been started so many times and serves.
  bool wait_for_start(const std::string& name, unsigned starts) const {
    for (int i = 0; i != 2000; ++i) {
      const auto now = processes();
      if (now.contains(name) && now[name]["starts"] >= starts && now[name]["serves"] == true) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  std::string log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  std::filesystem::path directory_;
  ServeOptions options_;
  std::atomic<bool> ended_ = false;
  bool refused_ = false;  ///< the test wants an error
  util::Result<void> result_;

 private:
  ::sigset_t old_signals_;
  mutable std::mutex mutex_;
  std::string log_;
  std::thread server_;
};

}  // namespace softhca::cli
