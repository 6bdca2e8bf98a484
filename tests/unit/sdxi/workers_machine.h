// A function with worker threads, and a concurrent producer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {

using namespace std::chrono_literals;
using spec::cxtv;

inline std::uint64_t* word(std::byte* at) { return reinterpret_cast<std::uint64_t*>(at); }

inline bool is_all(std::span<const std::byte> bytes, std::byte value) {
  return bytes.empty() || (bytes.front() == value &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

/// Number of 256 KiB copies: enough that workers are seldom done before the test disturbs them.
inline constexpr unsigned kCopies = 2048;

/// Longer than the slowest of these tests takes on a busy machine.
inline constexpr auto kPatience = 40s;

/// A producer concurrent with the function, like software on another processor.
class WorkersTest : public ::testing::TestWithParam<unsigned> {
 protected:
  explicit WorkersTest(unsigned workers = GetParam()) {
    DeviceOptions options{.vfs = 1, .workers = workers};
    options.turn_bytes = 32 << 10;
    m_.emplace(group_, options);
    m_->activate();
  }
  std::uint64_t load(Iova at) const {
    return __atomic_load_n(word(m_->host(at)), __ATOMIC_ACQUIRE);
  }
  void store(Iova at, std::uint64_t value) {
    __atomic_store_n(word(m_->host(at)), value, __ATOMIC_RELEASE);
  }
  cxtv state(const Machine::Context& c) const {
    util::Struct<spec::cxt_sts> status;
    status.bytes()[0] = static_cast<std::byte>(
        __atomic_load_n(reinterpret_cast<const std::uint8_t*>(m_->host(c.sts)), __ATOMIC_ACQUIRE));
    return static_cast<cxtv>(status.get(spec::cxt_sts::state));
  }
  std::uint64_t read_index(const Machine::Context& c) const {
    return load(c.sts + spec::cxt_sts::read_index.kOffset);
  }
  std::uint64_t push(const Machine::Context& c, const Descriptor& d) {
    const auto index = load(c.write_index);
    auto* slot = m_->host(m_->slot(c, index));
    std::memcpy(slot + 8, d.data() + 8, d.size() - 8);
    __atomic_store_n(word(slot), util::load_le64(d.data()), __ATOMIC_RELEASE);
    store(c.write_index, index + 1);
    return index;
  }
  std::uint64_t submit(const Machine::Context& c, const Descriptor& d) {
    const auto index = push(c, d);
    m_->doorbell(c.number, index + 1);
    return index;
  }
  /// Runs the control thread, which is the caller, until `condition` holds; false after a long
  /// timeout.
  template <class Condition>
  bool until(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      m_->step();
      looks_ += 100;  // pauses pass
      std::this_thread::sleep_for(20us);
    }
    return true;
  }
  bool done(Iova block) { return load(block) == 0; }
  /// All workers come to rest: only a doorbell wakes one.
  bool all_rest() {
    return until([&] { return group_.workers().at_rest() == group_.workers().count(); });
  }
  /// Executes `d`; false if it does not complete.
  bool execute(const Machine::Context& c, Descriptor d) {
    const auto block = m_->attach_completion(d);
    submit(c, d);
    return until([&] { return done(block); });
  }
  /// Keeps `c` busy with `count` copies.
  void keep_busy(const Machine::Context& c, Iova from, Iova to, std::uint64_t size, int count) {
    for (int i = 0; i < count; ++i) push(c, copy(from, to, size));
    m_->doorbell(c.number, load(c.write_index));
    m_->step();
  }
  /// True if nothing writes to [at, at + size) for a while.
  bool stays_untouched(std::byte* at, std::size_t size) {
    std::memset(at, 0x5a, size);
    std::this_thread::sleep_for(2ms);
    return is_all({at, size}, std::byte{0x5a});
  }

  /// Virtual time for the workers: each look at the clock takes a microsecond, each of until() a
  /// hundred.
  std::atomic<std::int64_t> looks_ = 0;
  FunctionGroup group_{[this] { return util::Time(1h) + looks_++ * 1us; }};
  std::optional<Machine> m_;
};

}  // namespace softhca::sdxi::test
