#include "trunk/trunk.h"

#include <algorithm>
#include <utility>

#include "hub/hub_client.h"
#include "hub/link_note.h"

namespace softhca::trunk {
namespace {

using Ethernet = wire::Ethernet;

constexpr auto kNotes = static_cast<wire::EtherType>(hub::LinkNote::kEtherType);

Ethernet ethernet_of(std::span<const std::byte> frame) {
  return Ethernet::parse(wire::EthernetView(frame));
}

}  // namespace

Trunk::Trunk(Options options, Out& out)
    : options_(std::move(options)),
      sessions_(options_.identity, std::move(options_.targets), own_, out, options_.clock) {
  sessions_.set_events(
      {.change = [this](std::size_t peer) { handle_change(peer); },
       .frame = [this](std::size_t peer, auto frame) { take_frame(peer, frame); }});
}

void Trunk::attach(std::unique_ptr<fabric::Port> port, hub::OtherHubs::IsFull is_full) {
  port_ = std::move(port);
  is_full_ = std::move(is_full);
  port_->set_receiver(this);
}

void Trunk::detach() {
  if (port_ != nullptr) port_->set_receiver(nullptr);
  port_.reset();
  is_full_ = nullptr;
}

// Numbers ----------------------------------------------------------------------------------------

bool Trunk::far_block(unsigned block) const {
  for (std::size_t peer = 0; peer != sessions_.end(); ++peer) {
    const auto* const session = sessions_.find(peer);
    if (session != nullptr && session->members().contains(block)) return true;
  }
  return false;
}

/// All blocks of this hub must fit into one message.
bool Trunk::may_give(unsigned number) const {
  const auto block = number / kBlock;
  return !far_block(block) && (own_.contains(block) || own_.size() < kBlocksMax);
}

bool Trunk::claim(unsigned block) {
  if (own_.size() >= kBlocksMax || far_block(block)) return false;
  if (const auto before = own_.find(claimed_); before != own_.end() && before->second.none()) {
    own_.erase(before);
  }
  claimed_ = block;
  own_[block];
  return true;
}

/// Without a process a block is free for other hubs, but not the one from which the next number
/// will come.
void Trunk::handle_member(unsigned number, bool is_there) {
  const auto block = number / kBlock;
  auto& set = own_[block];
  set.set(number % kBlock, is_there);
  if (set.none() && block != claimed_) own_.erase(block);
  sessions_.send_members();
}

void Trunk::handle_change(std::size_t peer) {
  if (members_.size() <= peer) members_.resize(peer + 1);
  const auto* const session = sessions_.find(peer);
  const auto now = session == nullptr ? Members{} : session->members();
  const auto before = std::exchange(members_[peer], now);
  if (session == nullptr) stations_.forget_port(static_cast<std::uint32_t>(peer));
  if (!options_.far) return;
  const auto of = [](const Members& members, unsigned block) {
    const auto at = members.find(block);
    return at == members.end() ? std::bitset<kBlock>() : at->second;
  };
  auto all = before;
  all.insert(now.begin(), now.end());
  for (const auto& [block, ignored] : all) {
    if (of(before, block) == of(now, block)) continue;
    std::bitset<kBlock> living;
    for (const auto& members : members_) living |= of(members, block);
    options_.far(block, living);
  }
}

// Frames -----------------------------------------------------------------------------------------

/// The session by which a frame goes; nothing: all of them, or none. @pre an Ethernet frame
std::optional<std::size_t> Trunk::hub_of(std::span<const std::byte> frame) const {
  const auto number = hub::number_of(frame);
  if (number == 0) {
    const auto to = stations_.find(ethernet_of(frame).destination);
    // The station may have been seen by the other session with its hub.
    const auto* const seen = to ? sessions_.find(*to) : nullptr;
    for (std::size_t peer = 0; seen != nullptr && peer != sessions_.end(); ++peer) {
      const auto* const session = sessions_.find(peer);
      const bool is_its = session != nullptr && session->ends().peer == seen->ends().peer;
      if (is_its && sessions_.is_preferred(peer)) return peer;
    }
    return std::nullopt;
  }
  for (std::size_t peer = 0; peer != sessions_.end(); ++peer) {
    const auto* const session = sessions_.find(peer);
    const bool has_it = session != nullptr && session->members().contains(number / kBlock);
    if (has_it && sessions_.is_preferred(peer)) return peer;
  }
  return std::nullopt;
}

bool Trunk::must_wait(std::span<const std::byte> frame) {
  const auto to = hub_of(frame);
  return to && sessions_.find(*to)->must_wait();
}

void Trunk::handle_frame(const wire::Frame& frame) {
  const auto head = frame.link_header();
  if (head.size() < wire::EthernetLayout::kSize) return;
  const auto ethernet = ethernet_of(head);
  if (ethernet.ether_type == kNotes) {
    ++counters_.notes;
    return;
  }
  if (const auto to = hub_of(head)) return sessions_.find(*to)->send(frame);
  if (hub::number_of(head) != 0) return;  // of this hub, which the switch does not know yet
  for (std::size_t peer = 0; peer != sessions_.end(); ++peer) {
    auto* const session = sessions_.find(peer);
    if (session != nullptr && sessions_.is_preferred(peer)) session->send(frame);
  }
}

/// Whether a frame may come from this hub: it sends no notes, and in the name of its own processes
/// and stations only.
bool Trunk::is_allowed(std::size_t peer, std::span<const std::byte> frame) {
  if (frame.size() < wire::EthernetLayout::kSize) {
    ++counters_.malformed;
    return false;
  }
  const auto ethernet = ethernet_of(frame);
  if (ethernet.ether_type == kNotes) {
    ++counters_.notes;
    return false;
  }
  const auto from = hub::number_of(frame.subspan(wire::MacAddress::kSize));
  if (from != 0 && !sessions_.find(peer)->members().contains(from / kBlock)) {
    ++counters_.spoofed;
    return false;
  }
  if (const auto to = hub::number_of(frame); to != 0) {
    const auto at = own_.find(to / kBlock);
    if (at == own_.end() || !at->second[to % kBlock]) {
      ++counters_.to_departed;
      return false;
    }
  }
  if (from == 0) stations_.learn(ethernet.source, static_cast<std::uint32_t>(peer));
  return true;
}

void Trunk::take_frame(std::size_t peer, std::span<const std::byte> bytes) {
  ++counters_.frames;
  if (port_ == nullptr || !is_allowed(peer, bytes)) return;
  auto& frame = port_->draft();
  const auto head = std::min(bytes.size(), wire::Frame::kHeadCapacity);
  frame.clear();
  std::ranges::copy(bytes.first(head), frame.resize_head(head).begin());
  (void)frame.add_segment(bytes.subspan(head));
  port_->transmit(frame);
  taken_ += bytes.size();
  if (full_ || !is_full_(bytes)) return;
  full_.emplace();
  full_->size = std::min(bytes.size(), full_->bytes.size());
  std::ranges::copy(bytes.first(full_->size), full_->bytes.begin());
}

bool Trunk::waits() {
  const bool is_full = full_ && is_full_(std::span(full_->bytes).first(full_->size));
  if (patience_.room(is_full ? 0 : 1, taken_, 1, options_.clock) != 0) full_.reset();
  return full_.has_value();
}

void Trunk::settle() { sessions_.settle(); }

void Trunk::inspect(util::InspectNode& node) const {
  sessions_.inspect(node);
  node.add("spoofed", counters_.spoofed);
  node.add("to_departed", counters_.to_departed);
  node.add("notes", counters_.notes);
  node.add("malformed", counters_.malformed);
}

}  // namespace softhca::trunk
