// Frames that refer to memory which the program unmaps before they arrive.
#include "door/card/fault_port.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>

#include "door/memory/fault_guard.h"

namespace softhca::door {
namespace {

constexpr std::size_t kPage = 4096;

/// A port to which the test delivers frames.
class Below final : public fabric::Port {
 public:
  std::uint64_t transmit(const wire::Frame&) override { return 0; }
  std::uint64_t loop_back(const wire::Frame&, std::uint32_t) override { return 0; }
  std::uint64_t released() const override { return 0; }
  void set_receiver(fabric::Receiver* receiver) override { above = receiver; }
  bool link_up() const override { return true; }

  fabric::Receiver* above = nullptr;
};

class Counts final : public fabric::Receiver {
 public:
  void handle_frame(const wire::Frame&) override { ++frames; }
  void handle_loopback(const wire::Frame&, std::uint32_t) override { ++looped; }

  unsigned frames = 0, looped = 0;
};

TEST(DoorFaultPort, AFrameWhoseMemoryHasGoneDoesNotArrive) {
  catch_faults();
  Below below;
  FaultPort port(below);
  Counts counts;
  port.set_receiver(&counts);
  auto* const memory = static_cast<std::byte*>(
      ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  wire::Frame frame;
  frame.clear();
  ASSERT_TRUE(frame.add_segment({memory, 2 * kPage}));
  const auto deliver = [&](bool looped) {
    const FaultGuard guard;
    if (looped) {
      below.above->handle_loopback(frame, 1);
    } else {
      below.above->handle_frame(frame);
    }
  };
  for (const bool looped : {false, true}) deliver(looped);
  ASSERT_EQ(counts.frames, 1u);
  ASSERT_EQ(counts.looped, 1u);
  ::munmap(memory + kPage, kPage);
  for (const bool looped : {false, true}) {
    deliver(looped);
    EXPECT_EQ(noted_faults().size(), 1u) << looped;
    release_faults();
  }
  EXPECT_EQ(counts.frames, 1u) << "zeros would arrive as data";
  EXPECT_EQ(counts.looped, 1u) << "zeros would arrive as data";
  ::munmap(memory, kPage);
}

}  // namespace
}  // namespace softhca::door
