#include "hub/station.h"

#include <algorithm>
#include <array>

#include "hub/hub_client.h"
#include "wire/ethernet.h"

namespace softhca::hub {

namespace {

using fabric::Verdict;
using FrameKind = StationFrame::Kind;

void set_destination(wire::Frame& frame, unsigned number) {
  std::ranges::copy(address_of(number).bytes, frame.mutable_head().begin());
}

}  // namespace

bool Station::is_for(std::span<const std::byte> header) const {
  return number_ != 0 && header.size() >= wire::EthernetLayout::kSize &&
         number_of(header) == number_;
}

unsigned Station::process_of(std::span<const std::byte> head) const {
  const auto parsed = StationFrame::parse(head);
  if (parsed.kind != FrameKind::kPacket || parsed.qpn == wire::kGsiQpn) return 0;
  return host().process_of(block_of(parsed.qpn));
}

Verdict Station::steer(wire::Frame& frame, unsigned sender,
                       const std::function<bool(unsigned number)>& is_full) {
  const auto awaited = process_of(frame.head());
  if (awaited != 0 && awaited != sender && is_full(awaited)) return Verdict::kWaits;
  const auto target = find_target(frame, sender);
  if (target.to_all) {
    host().for_each_process([&](unsigned number) { send(frame, number); });
    return Verdict::kTaken;
  }
  if (target.number == 0) return Verdict::kTaken;
  if (target.number == sender) {
    send(frame, sender);
    return Verdict::kTaken;
  }
  set_destination(frame, target.number);
  return Verdict::kGoes;
}

/// Queues a copy whose source is the station: the switch would learn the frame's own source at the
/// wrong port, and return no frame to its sender.
void Station::send(const wire::Frame& frame, unsigned number) {
  auto& copy = frames_.emplace_back(frame);
  (void)copy.own_segments();
  set_destination(copy, number);
  const auto source = copy.mutable_head().subspan<wire::MacAddress::kSize>();
  std::ranges::copy(address_of(number_).bytes, source.begin());
}

void Station::flush() {
  for (const auto& frame : std::exchange(frames_, {})) port_->transmit(frame);
}

Station::Target Station::find_target(const wire::Frame& frame, unsigned sender) {
  const auto parsed = StationFrame::parse(frame.head());
  if (parsed.kind == FrameKind::kNeighbor) {
    ++counters_.neighbors;
    return {.to_all = true};
  }
  if (parsed.kind == FrameKind::kOther) {
    ++counters_.unfit;
    return {};
  }
  if (parsed.qpn == wire::kGsiQpn) return find_target_of_message(parsed, frame, sender);
  const auto number = host().process_of(block_of(parsed.qpn));
  ++(number == 0 ? counters_.no_process : counters_.packets);
  return {.number = number};
}

Station::Target Station::find_target_of_message(const StationFrame& parsed,
                                                const wire::Frame& frame, unsigned sender) {
  std::array<std::byte, ForwardedDatagram::kPacketMax> bytes;
  if (parsed.size > bytes.size() || parsed.begin + parsed.size > frame.size()) {
    ++counters_.unfit;
    return {};
  }
  const auto packet = std::span(bytes).first(parsed.size);
  frame.copy_range(parsed.begin, packet);
  const auto number =
      requests_.host().route({.from = parsed.from, .to = parsed.to, .sender = sender}, packet);
  ++(number == 0 ? counters_.no_process : counters_.messages);
  return {.number = number};
}

}  // namespace softhca::hub
