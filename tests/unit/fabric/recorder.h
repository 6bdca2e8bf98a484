// Helpers of the fabric tests: stations, small frames, and a receiver that records.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fabric/port.h"
#include "wire/ethernet.h"

namespace softhca::fabric {

/// MAC addresses of stations.
inline constexpr std::uint64_t kA = 0x020000000001, kB = 0x020000000002;
/// More frames than a test sends: a limit that never ends a turn.
inline constexpr std::size_t kAllFrames = 100'000;

/// A frame from station `source` to `destination`. Its payload `text` must outlive it.
inline wire::Frame frame_of(std::uint64_t destination, std::uint64_t source,
                            std::string_view text) {
  wire::Frame frame;
  wire::Ethernet{wire::MacAddress::from_u64(destination), wire::MacAddress::from_u64(source),
                 wire::EtherType{0x88b5}}
      .emit(util::MutableView<wire::EthernetLayout>(frame.resize_head(14)));
  (void)frame.add_segment(std::as_bytes(std::span(text)));
  return frame;
}

inline std::string text_of(const wire::Frame& frame) {
  std::string text;
  frame.for_each_piece(14, frame.size() - 14, [&](std::span<const std::byte> piece) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return text;
}

class Recorder : public Receiver {
 public:
  void handle_frame(const wire::Frame& frame) override {
    texts.push_back(text_of(frame));
    if (then) then(frame);
  }
  void handle_loopback(const wire::Frame& frame, std::uint32_t mark) override {
    looped.push_back(text_of(frame) + " " + std::to_string(mark));
  }

  std::vector<std::string> texts;
  std::vector<std::string> looped;  ///< text and mark
  std::function<void(const wire::Frame&)> then;
};

/// A port that records what is transmitted.
class RecordingPort : public Port {
 public:
  std::uint64_t transmit(const wire::Frame& frame) override {
    texts.push_back(text_of(frame));
    return ++transmitted;
  }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    looped.push_back(text_of(frame) + " " + std::to_string(mark));
    return ++transmitted;
  }
  std::uint64_t released() const override { return done; }
  std::int64_t settle() override {
    ++settled;
    return 17;
  }
  void set_receiver(Receiver* to) override { receiver = to; }
  bool link_up() const override { return up; }

  std::vector<std::string> texts;
  std::vector<std::string> looped;  ///< text and mark
  Receiver* receiver = nullptr;
  bool up = true;
  std::uint64_t transmitted = 0;
  int settled = 0;         ///< calls of settle()
  std::uint64_t done = 0;  ///< return value of released()
};

}  // namespace softhca::fabric
