#include "fabric/switch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "wire/ethernet.h"
#include "wire/train.h"

namespace softhca::fabric {
namespace {

/// Cost of examining a queued frame, and of a copy of its payload; payload bytes per unit of work.
constexpr std::int64_t kLookWork = 5;
constexpr std::int64_t kCopyWork = 200;
constexpr std::size_t kBytesPerWork = 4;

class Delivering {
 public:
  explicit Delivering(bool& flag) : flag_(flag) { flag_ = true; }
  ~Delivering() { flag_ = false; }
  Delivering(const Delivering&) = delete;
  Delivering& operator=(const Delivering&) = delete;

 private:
  bool& flag_;
};

/// Flow cache of a port, with one entry: the addresses of the last frame, and its egress port.
/// Valid for one generation of the table.
class FlowCache {
 public:
  /// True if the frame goes to egress(), and the table learns nothing from it.
  /// @pre the head has an Ethernet header
  bool matches(const wire::Frame& frame, std::uint64_t generation) const {
    if (generation_ != generation) return false;
    const auto flow = frame.flow();
    return (flow != 0 && flow == flow_) ||
           std::memcmp(frame.head_room().data(), addresses_.data(), kAddresses) == 0;
  }
  std::uint32_t egress() const { return egress_; }
  void remember(const wire::Frame& frame, std::uint32_t egress, std::uint64_t generation) {
    std::memcpy(addresses_.data(), frame.head_room().data(), kAddresses);
    flow_ = frame.flow();
    egress_ = egress;
    generation_ = generation;
  }

 private:
  static constexpr std::size_t kAddresses = 2 * wire::MacAddress::kSize;

  std::array<std::byte, kAddresses> addresses_{};
  wire::FlowId flow_ = 0;  ///< frames of this flow have these addresses
  std::uint32_t egress_ = 0;
  std::uint64_t generation_ = 0;  ///< initially no table has this one
};

}  // namespace

class Switch::SwitchPort final : public Port {
 public:
  SwitchPort(Switch& owner, std::uint32_t number, std::string name)
      : Port({.draft = owner.queue_.ready_draft(), .packets = owner.queue_.packets()}),
        switch_(owner),
        number_(number),
        name_(std::move(name)) {}
  ~SwitchPort() override {
    set_receiver(nullptr);
    switch_.remove_port(number_);
  }

  std::uint64_t transmit(const wire::Frame& frame) override {
    return switch_.queue_.push_draft(frame, number_) ? ++queued_ : queue(frame, std::nullopt);
  }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    return queue(frame, mark);
  }
  std::uint64_t released() const override { return released_; }
  std::int64_t settle() override { return switch_.settle(*this); }
  void set_receiver(Receiver* receiver) override {
    const bool was = receiver_ != nullptr;
    receiver_ = receiver;
    if (was != (receiver != nullptr)) switch_.report_link(number_, receiver != nullptr);
  }
  bool takes_trains() const override { return switch_.trains_; }
  bool link_up() const override { return true; }

  Receiver* receiver() const { return receiver_; }
  const std::string& name() const { return name_; }
  /// The oldest of the port's queued frames was processed.
  void release() { ++released_; }
  std::uint64_t frames_queued() const { return queued_ - released_; }
  std::uint32_t number() const { return number_; }

  FlowCache flow;

 protected:
  wire::Frame& make_draft() override { return switch_.queue_.draft(); }

 private:
  [[gnu::noinline]] std::uint64_t queue(const wire::Frame& frame,
                                        std::optional<std::uint32_t> loop_mark) {
    const auto packets = switch_.queue_.push(frame, number_, loop_mark);
    if (packets != 0) ++queued_;
    switch_.counters_.dropped_queue_full += frame.packets() - packets;
    return queued_;
  }

  Switch& switch_;
  const std::uint32_t number_;
  const std::string name_;
  Receiver* receiver_ = nullptr;
  std::uint64_t queued_ = 0;    ///< frames that the queue accepted
  std::uint64_t released_ = 0;  ///< how many of these have left it
};

Switch::Switch(const Options& options)
    : queue_(options.queue_frames_max), macs_(options.macs_max), trains_(options.trains) {}

Switch::~Switch() {
  assert(std::all_of(ports_.begin(), ports_.end(), [](auto* port) { return port == nullptr; }));
}

std::unique_ptr<Port> Switch::create_port(std::string name) {
  auto slot = std::find(ports_.begin(), ports_.end(), nullptr);
  if (slot == ports_.end()) slot = ports_.insert(slot, nullptr);
  const auto number = static_cast<std::uint32_t>(slot - ports_.begin());
  auto port = std::make_unique<SwitchPort>(*this, number, std::move(name));
  *slot = port.get();
  if (tap_ != nullptr) tap_->handle_port(number, port->name(), link());
  return port;
}

void Switch::remove_port(std::uint32_t port) {
  ports_[port] = nullptr;
  macs_.forget_port(port);
  for (std::size_t i = 0; i != queue_.entries(); ++i) {
    if (auto& entry = queue_.at(i); entry.port == port) {
      entry.port = kPortGone;
      entry.simple = false;
    }
  }
}

void Switch::set_tap(Tap* tap) {
  tap_ = tap;
  if (tap_ == nullptr) return;
  for (std::uint32_t i = 0; i != ports_.size(); ++i) {
    if (ports_[i] != nullptr) tap_->handle_port(i, ports_[i]->name(), link());
  }
}

void Switch::set_forwarder(Forwarder* forwarder) {
  assert(std::all_of(ports_.begin(), ports_.end(), [](auto* port) { return port == nullptr; }));
  forwarder_ = forwarder;
}

void Switch::charge(std::uint32_t port, std::int64_t units) {
  auto* const receiver = ports_[port] == nullptr ? nullptr : ports_[port]->receiver();
  if (receiver != nullptr) receiver->handle_cost(units);
}

/// Delivers as much of a train as the budget allows; all of it if memory runs out.
void Switch::split_front(unsigned count) {
  try {
    queue_.split_front(count);
  } catch (const std::bad_alloc&) {
  }
}

std::int64_t Switch::settle(SwitchPort& port) {
  std::int64_t work = 0;
  auto left = port.frames_queued();
  for (std::size_t i = 0; left != 0; ++i) {
    auto& entry = queue_.at(i);
    const auto packets = entry.frame.packets();
    work += kLookWork * packets;
    if (entry.port != port.number()) continue;
    left -= !entry.rest_follows;
    try {
      const auto copied = entry.frame.own_segments();
      if (copied != 0) {
        work += kCopyWork * packets + static_cast<std::int64_t>(copied / kBytesPerWork);
      }
    } catch (const std::bad_alloc&) {
      // This loop settles all frames of the port, so that releasing one out of order releases no
      // memory still in use.
      entry.port = kPortGone;
      entry.simple = false;
      if (!entry.rest_follows) port.release();
      counters_.dropped_no_memory += packets;
    }
  }
  return work;
}

template <class Call>
[[gnu::always_inline]] inline void Switch::guard(Receiver& receiver, Call&& call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    if (!receiver.handle_no_memory()) throw;
  }
}

/// Calls `hand` with the entry's frame, or with its packets if `receiver` takes no trains. Inlined,
/// because every frame passes here, and a call that may throw cannot be a tail call.
template <class Hand>
[[gnu::always_inline]] inline void Switch::hand_over(std::uint32_t port,
                                                     const FrameQueue::Entry& entry, Hand&& hand) {
  auto* const receiver = ports_[port]->receiver();
  const auto packets = entry.frame.packets();
  if (receiver == nullptr) {
    counters_.dropped_no_receiver += packets;
    return;
  }
  const auto guarded = [&](const wire::Frame& frame) {
    guard(*receiver, [&] { hand(*receiver, frame); });
  };
  if (packets == 1 || receiver->takes_trains()) return guarded(entry.frame);
  const auto ingress = entry.port;
  wire::for_each_packet(entry.frame, [&](const wire::Frame& packet) {
    // The receiver may destroy either port.
    if (entry.port != ingress || ports_[port] == nullptr) return;
    if (ports_[port]->receiver() == receiver) guarded(packet);
  });
}

[[gnu::always_inline]] inline void Switch::deliver_to(std::uint32_t port,
                                                      const FrameQueue::Entry& entry) {
  if (ports_[port]->receiver() != nullptr) counters_.delivered += entry.frame.packets();
  hand_over(port, entry,
            [](Receiver& receiver, const wire::Frame& frame) { receiver.handle_frame(frame); });
}

/// Fast path of forward(), for a frame of the cached flow of its port.
[[gnu::always_inline]] inline bool Switch::forward_fast(const FrameQueue::Entry& entry) {
  if (entry.loop_mark || entry.port == kPortGone ||
      entry.frame.head_size() < wire::EthernetLayout::kSize) {
    return false;
  }
  const auto& flow = ports_[entry.port]->flow;
  if (!flow.matches(entry.frame, macs_.generation())) return false;
  if (tap_ != nullptr) show(entry);
  deliver_to(flow.egress(), entry);
  return true;
}

/// Fast path of deliver_front(), for a packet of the cached flow of its port.
/// @pre entry.simple
[[gnu::always_inline]] inline bool Switch::deliver_front_fast(FrameQueue::Entry& entry) {
  const auto& flow = ports_[entry.port]->flow;
  if (entry.frame.head_size() < wire::EthernetLayout::kSize ||
      !flow.matches(entry.frame, macs_.generation())) {
    return false;
  }
  auto* const receiver = ports_[flow.egress()]->receiver();
  if (receiver == nullptr) return false;
  if (tap_ != nullptr) show(entry);
  ++counters_.delivered;
  guard(*receiver, [&] { receiver->handle_frame(entry.frame); });
  if (entry.port != kPortGone) ports_[entry.port]->release();
  queue_.pop();
  return true;
}

/// True if a train goes to one receiver that accepts it whole. It costs one packet of the delivery
/// budget, because the sender's quantum bounds its length.
bool Switch::is_taken_whole(const FrameQueue::Entry& entry) const {
  if (tap_ != nullptr || entry.port == kPortGone ||
      entry.frame.head_size() < wire::EthernetLayout::kSize) {
    return false;
  }
  const auto& flow = ports_[entry.port]->flow;
  if (!entry.loop_mark && !flow.matches(entry.frame, macs_.generation())) return false;
  const auto egress = entry.loop_mark ? entry.port : flow.egress();
  const auto* receiver = ports_[egress]->receiver();
  return receiver != nullptr && receiver->takes_trains();
}

/// Delivers the entry at the front, or as many packets of it as the budget allows.
[[gnu::always_inline]] inline void Switch::deliver_front(std::size_t& budget) {
  auto* entry = &queue_.front();
  if (entry->frame.packets() == 1 || is_taken_whole(*entry)) {
    --budget;
  } else {
    if (entry->frame.packets() > budget) {
      split_front(static_cast<unsigned>(budget));
      entry = &queue_.front();
    }
    budget -= std::min<std::size_t>(budget, entry->frame.packets());
  }
  if (!forward_fast(*entry)) forward(*entry);
  if (entry->port != kPortGone && !entry->rest_follows) ports_[entry->port]->release();
  queue_.pop();
}

[[gnu::always_inline]] inline void Switch::deliver_queued(std::size_t& budget) {
  while (budget != 0 && !queue_.empty()) {
    auto& entry = queue_.front();
    if (entry.simple && deliver_front_fast(entry)) {
      --budget;
    } else {
      deliver_front(budget);
    }
  }
}

bool Switch::deliver(std::size_t budget) {
  if (delivering_ || queue_.empty()) return has_work();
  const Delivering delivering(delivering_);
  deliver_queued(budget);
  return has_work();
}

void Switch::forward(FrameQueue::Entry& entry) {
  if (entry.port == kPortGone) {
    counters_.dropped_port_gone += entry.frame.packets();
    return;
  }
  if (entry.loop_mark) return loop_back(entry);
  show(entry);
  if (forwarder_ != nullptr) return forward_by_forwarder(entry);
  const auto head = entry.frame.link_header();
  if (head.size() < wire::EthernetLayout::kSize) {
    ++counters_.dropped_malformed;
    return;
  }
  const auto ethernet = wire::Ethernet::parse(wire::EthernetView(head));
  macs_.learn(ethernet.source, entry.port);
  const auto egress =
      ethernet.destination.is_multicast() ? std::nullopt : macs_.find(ethernet.destination);
  if (!egress) return flood(entry);
  if (*egress == entry.port) {
    counters_.filtered += entry.frame.packets();
    return;
  }
  ports_[entry.port]->flow.remember(entry.frame, *egress, macs_.generation());
  deliver_to(*egress, entry);
}

/// Delivers the frame to the egress ports that the forwarder names.
void Switch::forward_by_forwarder(FrameQueue::Entry& entry) {
  const auto ingress = entry.port;
  const auto& ways = forwarder_->route(entry.frame, ingress);
  if (ways.ports.empty()) {
    counters_.dropped_no_way += entry.frame.packets();
    return;
  }
  if (ways.lasting) {
    assert(ways.ports.size() == 1);
    ports_[ingress]->flow.remember(entry.frame, ways.ports[0], macs_.generation());
  }
  // By index, because receivers may make the forwarder compute a new result. If the sender is
  // destroyed, its memory is invalid.
  for (std::size_t i = 0; i < ways.ports.size() && entry.port == ingress; ++i) {
    const auto port = ways.ports[i];
    if (port < ports_.size() && ports_[port] != nullptr) deliver_to(port, entry);
  }
}

void Switch::loop_back(const FrameQueue::Entry& entry) {
  // A multicast frame is transmitted too, and was shown then.
  const auto head = entry.frame.link_header();
  const bool multicast = forwarder_ == nullptr && head.size() >= wire::EthernetLayout::kSize &&
                         wire::Ethernet::parse(wire::EthernetView(head)).destination.is_multicast();
  if (!multicast) show(entry);
  if (ports_[entry.port]->receiver() != nullptr) counters_.looped_back += entry.frame.packets();
  hand_over(entry.port, entry,
            [mark = *entry.loop_mark](Receiver& receiver, const wire::Frame& frame) {
              receiver.handle_loopback(frame, mark);
            });
}

void Switch::show(const FrameQueue::Entry& entry) {
  if (tap_ == nullptr) return;
  wire::for_each_packet(entry.frame,
                        [&](const wire::Frame& packet) { tap_->handle_frame(entry.port, packet); });
}

void Switch::flood(FrameQueue::Entry& entry) {
  counters_.flooded += entry.frame.packets();
  const auto ingress = entry.port;
  // By index, because receivers may create and destroy ports. If the sender is destroyed, its
  // memory is invalid.
  for (std::uint32_t port = 0; port < ports_.size() && entry.port == ingress; ++port) {
    if (port != ingress && ports_[port] != nullptr) deliver_to(port, entry);
  }
}

}  // namespace softhca::fabric
