// The fixture of these tests: a lab of two devices on virtual time, by parameter, and what each
// side needs to send and receive.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/expect.h"
#include "driver/side.h"
#include "driver/verbs/verbs.h"
#include "lab/lab.h"

namespace softhca::driver::verbs::test {

using driver::test::expect_error;
using driver::test::expect_success;
using driver::test::must;
using driver::test::pattern;

/// The sending and the receiving device, and their link.
struct Pair {
  std::string from;
  std::string to;
  wire::Link link = wire::Link::kEthernet;
};
void PrintTo(const Pair& pair, std::ostream* out);

/// Every device with its own model, and every two models in both directions, on each link that both
/// have.
std::vector<Pair> all_pairs();

/// The parts of a test's name, "Devices/SUITE.NAME/PAIR".
struct TestName {
  std::string_view suite;
  std::string_view name;
  std::string_view pair;
};
TestName parts_of(const testing::TestInfo& test);
/// True if skips.h says that this test is skipped with these devices.
bool is_skipped(const TestName& test, const Pair& pair);
std::string name_of(const testing::TestParamInfo<Pair>& info);

/// One side of the test.
struct Side : driver::test::SideMemory {
  static constexpr std::size_t kMemory = 256 << 10;
  struct Options {
    QpType type = QpType::kRc;
    Capacity capacity = {};
    unsigned cq_entries = 256;
    MemoryAccess access = MemoryAccess::all();
    bool with_srq = false;
  };
  Side(Device& on, const Options& options);

  /// A receive of one piece.
  void receive(std::uint64_t id, std::size_t offset, std::size_t length);
  /// A signaled request of one piece, at the start of the memory.
  PostStatus send(SendOpcode opcode, std::size_t length, std::uint64_t id = 1);

  Device& device;
  ProtectionDomain pd;
  MemoryRegion region;
  CompletionQueue send_cq;
  CompletionQueue receive_cq;
  std::optional<SharedReceiveQueue> srq;
  QueuePair qp;
};

class Verbs : public testing::TestWithParam<Pair> {
 protected:
  Verbs();
  /// Checks that it was skipped if, and only if, skips.h says so.
  void TearDown() override;

  /// Makes and connects queue pairs of one service on both sides.
  void connect_sides(QpType type = QpType::kRc, const ConnectionOptions& options = {});
  /// Makes both sides without connecting them.
  void make_sides(const Side::Options& options);
  Side& a() { return *a_; }
  Side& b() { return *b_; }
  lab::Lab& lab() { return *lab_; }
  /// Loses frames of the sending device: all, or those of `keys`, e.g. ",nth=1". Returns counters.
  const fabric::NetworkFaults::Counters& lose(std::string_view keys = "");

  /// The next `count` completions, or fewer if no more arrive.
  std::vector<Completion> wait(CompletionQueue& cq, std::size_t count = 1);
  /// The next event of `device`, or nothing if none arrives.
  std::optional<AsyncEvent> wait_event(Device& device);
  /// True if a side's device lacks `feature`, so the test must be skipped. The test fails if
  /// skips.h does not list that.
  bool lacks(Feature feature);

  std::unique_ptr<lab::Lab> lab_;
  std::optional<Side> a_;
  std::optional<Side> b_;
};

/// Starts a test that needs a feature which not all devices have.
#define NEEDS(feature) \
  if (lacks(Feature::feature)) GTEST_SKIP() << "see skips.h"

}  // namespace softhca::driver::verbs::test
