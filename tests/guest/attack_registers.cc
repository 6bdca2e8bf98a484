#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "attacks.h"
#include "os/unique_fd.h"
#include "spec/connectx/init_segment.h"

namespace softhca::guest {
namespace {

using neighbours::LoopPair;
using spec::connectx::init_segment;
using spec::connectx::uar_page;

constexpr std::uint64_t kBarSize = 32 << 20;

/// Traffic for the time in which registers are written.
std::vector<LoopPair> work(Life& life) {
  auto& loop = life.loop();
  std::vector<LoopPair> pairs;
  for (int i = 0; i < 4; ++i) {
    pairs.push_back(loop.make_pair());
    const auto piece = loop.piece(0, 1 << 20);
    (void)pairs.back().from->post_send({.opcode = driver::SendOpcode::kRdmaWrite,
                                        .pieces = {&piece, 1},
                                        .remote_address = loop.iova(2 << 20),
                                        .rkey = loop.key()});
  }
  return pairs;
}

/// Configuration space as the device has it: sysfs bypasses vfio-pci's emulation.
class Configuration {
 public:
  explicit Configuration(const std::string& address)
      : fd_(::open(("/sys/bus/pci/devices/" + address + "/config").c_str(), O_RDWR | O_CLOEXEC)) {
    if (!fd_) throw std::runtime_error("no access to the configuration space");
  }
  std::uint16_t read16(unsigned at) const {
    std::uint16_t value = 0xffff;
    (void)!::pread(fd_.get(), &value, sizeof value, at);
    return value;
  }
  void write16(unsigned at, std::uint16_t value) const {
    (void)!::pwrite(fd_.get(), &value, sizeof value, at);
  }
  /// 0: the function has no such capability.
  unsigned capability(unsigned id) const {
    unsigned at = read16(0x34) & 0xfc;
    for (int i = 0; i < 48 && at != 0; ++i) {
      const auto head = read16(at);
      if ((head & 0xff) == id) return at;
      at = head >> 8 & 0xfc;
    }
    return 0;
  }

 private:
  os::UniqueFd fd_;
};

}  // namespace

void ring_doorbells(Life& life) {
  const auto pairs = work(life);
  const auto page = Life::uar(life.loop().hca().uar());
  const auto cqn = life.loop().cq().cqn();
  while (life.goes_on()) {
    for (int i = 0; i < 64; ++i, life.did()) {
      const auto& pair = pairs[life.below(pairs.size())];
      // The queue pair's own number in half of the cases.
      const auto qpn = life.below(2) == 0 ? pair.from->qpn() : life.random() & 0xffffff;
      const auto any = static_cast<std::uint32_t>(life.random());
      switch (life.below(4)) {
        case 0:  // CQ doorbell: arms with any consumer index
          life.write64(page + uar_page::cq_ci.kOffset,
                       std::uint64_t{any} << 32 | (life.below(2) == 0 ? cqn : any & 0xffffff));
          break;
        case 1:  // EQ doorbell: arms, or only updates the consumer index
          life.write32(
              page + (life.below(2) == 0 ? uar_page::eq_arm_eqn.kOffset : uar_page::eq_eqn.kOffset),
              life.below(2) == 0 ? any & 0x07ffffff : any);
          break;
        default:
          life.write64(page + uar_page::db_blueflame_buffer0_even.kOffset,
                       std::uint64_t{any} << 32 | qpn << 8 | 3);
      }
    }
  }
}

void write_registers(Life& life) {
  const auto pairs = work(life);
  while (life.goes_on()) {
    for (int i = 0; i < 64; ++i, life.did()) {
      const auto value = static_cast<std::uint32_t>(life.random());
      switch (life.below(4)) {
        case 0:
          life.write32(life.below(init_segment::kSize / 4) * 4, value);
          break;
        case 1:  // moves the command queue, and rings for all of its slots
          life.write32(init_segment::cmdq_phy_addr.kOffset, 0);
          life.write32(init_segment::cmdq_phy_addr.kOffset + 4,
                       static_cast<std::uint32_t>(life.loop().iova(life.below(512) << 12)));
          life.write32(init_segment::command_doorbell_vector.kOffset, ~0u);
          break;
        case 2:
          // Excludes the MSI-X table behind the registers: a changed message would be written
          // anywhere in the guest's memory.
          life.write32(life.below(kBarSize / 2 / 4) * 4, value);
          break;
        default:
          (void)life.read32(life.below(kBarSize / 4) * 4);
      }
    }
  }
}

void turn_configuration(Life& life) {
  constexpr unsigned kCommand = 4, kExpress = 0x10, kMsix = 0x11, kPower = 0x01;
  constexpr std::uint16_t kMemorySpace = 2, kBusMaster = 4, kFlr = 0x8000;
  const Configuration configuration(life.address());
  const auto express = configuration.capability(kExpress);
  const auto msix = configuration.capability(kMsix);
  const auto power = configuration.capability(kPower);
  auto pairs = work(life);
  while (life.goes_on()) {
    for (int i = 0; i < 20; ++i, life.did()) {
      switch (life.below(5)) {
        case 0:
          configuration.write16(
              kCommand, static_cast<std::uint16_t>(life.random() & (kMemorySpace | kBusMaster)));
          break;
        case 1:  // Device Control: payload and request sizes, ordering
          configuration.write16(express + 8, static_cast<std::uint16_t>(life.random() & ~kFlr));
          break;
        case 2:  // MSI-X Enable and Function Mask
          configuration.write16(msix + 2, static_cast<std::uint16_t>(life.random() & 0xc000));
          break;
        case 3:
          configuration.write16(power + 4, static_cast<std::uint16_t>(life.random() & 3));
          break;
        default:
          (void)configuration.read16(static_cast<unsigned>(life.below(2048) * 2));
      }
    }
    configuration.write16(kCommand, kMemorySpace | kBusMaster);
    configuration.write16(power + 4, 0);
    if (life.below(4) == 0) {
      configuration.write16(express + 8, kFlr);  // function level reset under traffic
      Life::end();
    }
  }
}

}  // namespace softhca::guest
