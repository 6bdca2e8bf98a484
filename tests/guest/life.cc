#include "life.h"

#include <unistd.h>

#include <array>

#include "driver/vfio_host.h"
#include "driver/vfio_user_host.h"
#include "util/endian.h"

namespace softhca::guest {
namespace {

constexpr unsigned kBar = 0;
/// Bytes of memory for the queue pairs' payload.
constexpr std::size_t kMemory = 4 << 20;
/// Time limit of commands, short because the attack may have broken the function.
constexpr auto kPatience = std::chrono::seconds(10);

std::unique_ptr<driver::Host> open_door(const std::string& address) {
  if (!address.starts_with('/')) return neighbours::must(driver::VfioHost::open(address));
  return neighbours::must(driver::VfioUserHost::connect(address, {.timeout = kPatience}));
}

}  // namespace

Life::Life(std::string address, std::string netdev, std::uint64_t seed, Tally& tally)
    : address_(std::move(address)), netdev_(std::move(netdev)), random_(seed), tally_(tally) {
  auto host = std::make_unique<driver::SpyHost>(open_door(address_));
  host_ = host.get();
  loop_ = std::make_unique<neighbours::LoopHca>(
      std::move(host), 66, kMemory, driver::connectx::Hca::Options{.patience = kPatience});
}

bool Life::goes_on() const {
  if (tally_.is_full()) end();
  return true;
}

void Life::did(std::uint64_t deeds) { tally_.deeds += deeds; }

void Life::end() { ::_exit(0); }

void Life::fill_at_random(std::span<std::byte> bytes) {
  for (auto& byte : bytes) byte = static_cast<std::byte>(random_());
}

void Life::write32(std::uint64_t offset, std::uint32_t big_endian) {
  std::array<std::byte, 4> bytes;
  util::store_be32(bytes.data(), big_endian);
  host_->write_bar(kBar, offset, bytes);
}

void Life::write64(std::uint64_t offset, std::uint64_t big_endian) {
  std::array<std::byte, 8> bytes;
  util::store_be64(bytes.data(), big_endian);
  host_->write_bar(kBar, offset, bytes);
}

std::uint32_t Life::read32(std::uint64_t offset) {
  std::array<std::byte, 4> bytes;
  host_->read_bar(kBar, offset, bytes);
  return util::load_be32(bytes.data());
}

}  // namespace softhca::guest
