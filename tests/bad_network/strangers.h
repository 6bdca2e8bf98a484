// Two hosts with a pair of QPs, and frames that a stranger forges.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "driver/expect.h"
#include "fleet.h"
#include "wire/ib_header.h"

namespace softhca::bad_network {

using driver::test::must;

inline constexpr std::uint32_t kQkey = 0x1357'9bdf;

/// A host's end of the pair.
struct End {
  static constexpr std::size_t kMemory = 16 << 10;
  static constexpr unsigned kReceives = 4;
  static constexpr std::size_t kReceiveAt = 8 << 10, kReceiveSize = 512;

  End(driver::verbs::Device& device, driver::verbs::QpType type);

  std::vector<std::byte> memory;
  driver::verbs::ProtectionDomain pd;
  driver::verbs::MemoryRegion region;
  driver::verbs::CompletionQueue cq;
  driver::verbs::QueuePair qp;
};

/// A packet of the first host to the second, whose parts can be changed.
struct Forged {
  wire::IbAddress address;
  wire::Bth bth;
  wire::ExtHeaders ext;
  std::vector<std::byte> payload;

  /// The packet as a wire carries it, with the ICRC that fits.
  std::vector<std::byte> bytes() const;
};

class StrangersTest : public testing::Test {
 protected:
  StrangersTest();
  ~StrangersTest() override;

  /// Makes new ends. UD: the QPs take datagrams of anyone who knows the Q_Key.
  void make(driver::verbs::QpType type);
  /// The packet that the first host could send next: the second one executes it.
  Forged genuine(wire::Opcode opcode) const;
  void inject(const Forged& forged) { inject(forged.bytes()); }
  void inject(std::vector<std::byte> bytes);
  /// Lets a millisecond pass.
  void run();
  /// All memory that the hosts have registered.
  std::vector<std::byte> all_memory() const;
  /// Completions of both hosts that are successful.
  std::size_t successes();

  Fleet fleet_{2};
  std::optional<End> a_, b_;
};

}  // namespace softhca::bad_network
