// One life of a ConnectX function under a hostile program: the function is brought up by
// driver/connectx, and then used against all rules. The life ends with its process; the function is
// never closed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>

#include "loop_hca.h"
#include "spy_host.h"

namespace softhca::guest {

/// The number of deeds of an attack, over all its lives, in memory that the processes share.
struct Tally {
  std::uint64_t most = 0;  ///< the attack ends when it has done this many
  std::atomic<std::uint64_t> deeds = 0;

  bool is_full() const { return deeds >= most; }
};

class Life {
 public:
  /// `address`: the function's PCI address, or the path of a vfio-user socket. `netdev`: the
  /// network device of another function, which sends frames to this one.
  Life(std::string address, std::string netdev, std::uint64_t seed, Tally& tally);

  const std::string& address() const { return address_; }
  const std::string& netdev() const { return netdev_; }

  /// True until the attack has done all its deeds; then ends the process.
  bool goes_on() const;
  /// Ends the process. Nothing is destroyed, because that would wait for a broken device.
  [[noreturn]] static void end();
  void did(std::uint64_t deeds = 1);
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  std::uint64_t random() { return random_(); }
  void fill_at_random(std::span<std::byte> bytes);

  driver::SpyHost& host() { return *host_; }
  neighbours::LoopHca& loop() { return *loop_; }
  /// The page of the command queue: the first that the driver allocated (PRM 8.2, step 2).
  std::span<std::byte> command_queue() const { return host_->taken().front().bytes; }

  void write32(std::uint64_t offset, std::uint32_t big_endian);
  void write64(std::uint64_t offset, std::uint64_t big_endian);
  std::uint32_t read32(std::uint64_t offset);
  /// Offset of the doorbells of page `uar`.
  static std::uint64_t uar(std::uint32_t uar) { return std::uint64_t{uar} * 4096; }

 private:
  std::string address_;
  std::string netdev_;
  std::mt19937_64 random_;
  Tally& tally_;
  driver::SpyHost* host_ = nullptr;  ///< loop_ owns it
  std::unique_ptr<neighbours::LoopHca> loop_;
};

}  // namespace softhca::guest
