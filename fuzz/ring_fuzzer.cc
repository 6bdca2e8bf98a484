// The other side of a link between two processes, which does anything to the shared memory.
//
// The input is a script: the honest end receives, sends, delivers and sleeps. The other side writes
// any indices, record heads and bytes, or uses the rings properly. Whatever it does:
// - an arriving record has at most the maximum length and can be serialized
// - no more frames arrive than asked for, except the rest of a train
// - a broken link carries nothing more
// - an unbroken link carries everything that an honest peer sends
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "fabric/ring_port.h"
#include "fabric/switch.h"
#include "oracle.h"
#include "script.h"
#include "wire/ib_header.h"
#include "wire/train.h"

namespace {

using namespace softhca;
using fuzz::check;
using fuzz::Script;
using os::SharedRing;

constexpr std::size_t kCapacity = SharedRing::kCapacityMin;
constexpr std::size_t kDataAt = 4096;

/// Reads all of each frame, as a device and a capture do.
struct Station final : fabric::Receiver {
  void handle_frame(const wire::Frame& frame) override {
    wire::for_each_packet(frame, [this](const wire::Frame& packet) {
      check(packet.size() != 0 && packet.size() <= bytes.size());
      packet.copy_to(std::span(bytes).first(packet.size()));
      ++frames;
    });
  }
  void handle_loopback(const wire::Frame&, std::uint32_t) override { std::abort(); }
  bool takes_trains() const override { return true; }

  std::array<std::byte, SharedRing::kRecordMax + 8> bytes;  // with CRCs
  std::uint64_t frames = 0;
};

class Link {
 public:
  explicit Link(fabric::RecordForm form)
      : form_(form),
        port_(std::make_unique<fabric::RingPort>(fabric_.create_port("link"),
                                                 *SharedRing::attach(from_honest_.fd()),
                                                 *SharedRing::attach(to_honest_.fd()), form)) {
    station_port_->set_receiver(&station_);
  }

  void play(Script script) {
    while (!script.empty()) step(script);
    const bool was_broken = port_->broken();
    const auto frames = station_.frames;
    fabric_.deliver(100'000);
    port_->settle();
    if (!was_broken) return;
    check(port_->receive(1) == 0 && station_.frames - frames <= 65536);
  }

 private:
  void poke(const SharedRing& ring, std::size_t offset, std::span<const std::byte> bytes) {
    check(::pwrite(ring.fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
          static_cast<ssize_t>(bytes.size()));
  }

  void step(Script& script) {
    const fuzz::Turn turn;
    const auto action = script.take<std::uint8_t>();
    const auto& ring = action & 0x80 ? to_honest_ : from_honest_;
    switch (action % 8) {
      case 0: {
        const auto index = script.take<std::uint64_t>();
        poke(ring, action & 0x40 ? 64 : 0, std::as_bytes(std::span(&index, 1)));
        break;
      }
      case 1: {  // near the right value
        const auto index = written_ + script.take<std::int16_t>();
        poke(ring, action & 0x40 ? 64 : 0, std::as_bytes(std::span(&index, 1)));
        break;
      }
      case 2: {
        const auto word = script.take<std::uint32_t>();
        const auto at = script.take<std::uint32_t>() % (kCapacity - sizeof word);
        poke(ring, kDataAt + at, std::as_bytes(std::span(&word, 1)));
        break;
      }
      case 3:
        if (action & 0x40) {
          send_train(script);
        } else {
          const auto size = script.take<std::uint32_t>();
          send(size, script.take<std::uint32_t>());
        }
        break;
      case 4: {
        const std::size_t most = script.take<std::uint8_t>();
        const std::size_t over = form_ == fabric::RecordForm::kWire ? 0 : 254;
        check(port_->receive(most) <= most + (most == 0 ? 0 : over));
        break;
      }
      case 5:
        fabric_.deliver(script.take<std::uint8_t>());
        port_->settle();
        break;
      case 6: {
        if (action & 0x40) {
          station_port_->transmit(train(script, kTrainBytes / kMtu));
          break;
        }
        wire::Frame frame;
        (void)frame.resize_head(14);
        std::memset(frame.mutable_head().data(), 0xff, 6);
        (void)frame.add_segment(
            std::span(payload_).first(script.take<std::uint16_t>() % payload_.size()));
        station_port_->transmit(frame);
        break;
      }
      case 7:
        if (!port_->prepare_to_sleep()) check(!port_->broken());
        break;
    }
  }

  /// Sends as an honest side does, as long as it can.
  void send(std::size_t size, std::uint32_t note) {
    size = std::max<std::size_t>(1, size % (SharedRing::kRecordMax + 1));
    const auto room = other_out_.reserve(size, note);
    if (room.empty()) return;
    std::memset(room.data(), 0xff, std::min<std::size_t>(6, size));
    publish(size);
  }

  /// Sends as an honest side does, but with some bytes of head and note changed.
  void send_train(Script& script) {
    const auto frame = train(script, fabric::kRecordPayloadMax / kMtu);
    const auto size = frame.head_size() + frame.packets() * std::size_t{frame.train().payload};
    const auto note = frame.train().payload + (frame.packets() << 16) + 0x0200'0000u;
    const auto room = other_out_.reserve(size, note ^ script.take<std::uint32_t>());
    if (room.empty()) return;
    frame.copy_range(0, room);
    for (auto left = script.take<std::uint8_t>() % 4; left != 0; --left) {
      room[script.take<std::uint8_t>() % frame.head_size()] ^= script.take<std::byte>();
    }
    publish(size);
  }

  wire::Frame train(Script& script, unsigned most) {
    wire::IbAddress address;
    address.destination_mac = wire::MacAddress::broadcast();
    address.source_gid = address.destination_gid = wire::Gid::from_ipv4(0x0a000001);
    wire::Bth bth;
    bth.opcode = script.take<std::uint8_t>() % 2 == 0 ? wire::Opcode::RC_RDMA_WRITE_FIRST
                                                      : wire::Opcode::RC_RDMA_WRITE_MIDDLE;
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, {}, kMtu, frame);
    const auto packets = 2u + script.take<std::uint8_t>() % (most - 1);
    check(frame.add_segment(std::span(payload_).first(packets * kMtu)));
    const bool first = bth.opcode == wire::Opcode::RC_RDMA_WRITE_FIRST;
    frame.set_train({static_cast<std::uint16_t>(packets), kMtu,
                     static_cast<std::uint8_t>(first ? wire::RethLayout::kSize : 0)});
    return frame;
  }

  void publish(std::size_t size) {
    other_out_.publish();
    written_ += 8 + (size + 7) / 8 * 8;
  }

  static constexpr std::uint16_t kMtu = 1024;
  static constexpr std::size_t kTrainBytes = std::size_t{80} * kMtu;  // longer than a record

  SharedRing to_honest_ = *SharedRing::create(kCapacity);
  SharedRing from_honest_ = *SharedRing::create(kCapacity);
  os::RingProducer other_out_{to_honest_};
  std::uint64_t written_ = 0;
  std::array<std::byte, kTrainBytes> payload_{};
  const fabric::RecordForm form_;
  fabric::Switch fabric_;
  Station station_;
  std::unique_ptr<fabric::Port> station_port_ = fabric_.create_port("station");
  std::unique_ptr<fabric::RingPort> port_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::run_input([&] {
    Script script(data, size);
    const bool whole = script.take<std::uint8_t>() % 2 == 0;
    Link(whole ? fabric::RecordForm::kWire : fabric::RecordForm::kProcess).play(script);
  });
}
