// One life of a ConnectX function in the hands of a hostile program: brought up by our sound
// driver, and then used as no driver should. It ends with its process, and is never closed.
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

/// How often an attack did what it does, in all of its lives. In memory that they share.
struct Tally {
  std::uint64_t most = 0;  ///< then it has done enough
  std::atomic<std::uint64_t> deeds = 0;

  bool is_full() const { return deeds >= most; }
};

class Life {
 public:
  /// `address`: of the function, as lspci tells it, or the path of a vfio-user socket. `netdev`:
  /// another function's network device, for frames to this one.
  Life(std::string address, std::string netdev, std::uint64_t seed, Tally& tally);

  const std::string& address() const { return address_; }
  const std::string& netdev() const { return netdev_; }

  /// True until the attack has done enough; then end().
  bool goes_on() const;
  /// Ends the process. Nothing is destroyed: that would wait for a device that is sound no more.
  [[noreturn]] static void end();
  void did(std::uint64_t deeds = 1);
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  std::uint64_t random() { return random_(); }
  void fill_at_random(std::span<std::byte> bytes);

  driver::SpyHost& host() { return *host_; }
  neighbours::LoopHca& loop() { return *loop_; }
  /// The page of the command queue: the first that the driver took (PRM 8.2, step 2).
  std::span<std::byte> command_queue() const { return host_->taken().front().bytes; }

  void write32(std::uint64_t offset, std::uint32_t big_endian);
  void write64(std::uint64_t offset, std::uint64_t big_endian);
  std::uint32_t read32(std::uint64_t offset);
  /// The beginning of the doorbells of page `uar`.
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
