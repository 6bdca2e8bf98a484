#include "rdma_cm/manager.h"

#include <algorithm>

namespace softhca::rdma_cm {

util::Result<std::unique_ptr<Manager>> Manager::create(std::span<const Port> ports,
                                                       const uverbs::UserMemory& memory,
                                                       Options options) {
  std::unique_ptr<Manager> manager(new Manager(memory, std::move(options)));
  if (auto opened = manager->ports_.open(ports); !opened) return tl::unexpected(opened.error());
  return manager;
}

Manager::~Manager() = default;

util::Result<Channel*> Manager::open() {
  auto channel = Channel::create();
  if (!channel) return tl::unexpected(channel.error());
  channels_.push_back(*std::move(channel));
  return channels_.back().get();
}

Channel* Manager::find_channel(std::uint64_t device, std::uint64_t inode) const {
  const auto at = std::ranges::find_if(
      channels_, [&](const auto& one) { return one->inode() == inode && one->device() == device; });
  return at == channels_.end() ? nullptr : at->get();
}

Errno Manager::serve(Channel& channel, std::uint64_t address, std::size_t size,
                     const std::function<Channel*(int)>& other, util::Time now) {
  now_ = now;
  return commands_.serve({.channel = channel, .memory = memory_, .other = other, .now = now},
                         address, size);
}

void Manager::tick(util::Time now) {
  now_ = now;
  while (const auto message = ports_.receive()) connections_.receive(*message, now);
  resolver_.tick(now);
  if (now >= wakeup_.next()) {
    wakeup_.clear();
    listeners_.serve_held(true, now);
    connections_.tick(now);
    resolver_.set_wakeup();
  }
  connections_.find_dead_peers(options_.is_gone, now);
}

void Manager::drop_closed() {
  std::erase_if(channels_, [this](const auto& channel) {
    if (!channel->closed()) return false;
    std::vector<std::uint32_t> its;
    for (const auto& [number, id] : identifiers_.all()) {
      if (id->channel == channel.get()) its.push_back(number);
    }
    for (const auto number : its) commands_.erase(number, now_);
    return true;
  });
}

void Manager::disconnect_all() {
  while (!identifiers_.all().empty()) commands_.erase(identifiers_.all().begin()->first, now_);
}

}  // namespace softhca::rdma_cm
