#include "rdma_cm/manager.h"

#include <netinet/in.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdma_cm/message.h"

namespace softhca::rdma_cm {
namespace {

constexpr auto kLookForGone = std::chrono::seconds(1);
}  // namespace

util::Result<std::unique_ptr<Manager>> Manager::create(std::span<const Port> ports,
                                                       const uverbs::UserMemory& memory,
                                                       Options options) {
  auto opened = Ports::open(ports);
  if (!opened) return tl::unexpected(opened.error());
  return std::unique_ptr<Manager>(new Manager(*std::move(opened), memory, std::move(options)));
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

void Manager::tick(util::Time now) {
  now_ = now;
  while (const auto message = ports_->receive()) hear(*message);
  resolver_.tick(now);
  if (now >= wakeup_.next()) look_at_times();
  if (options_.is_gone && now - looked_for_gone_ >= kLookForGone) look_for_the_gone();
}

void Manager::look_at_times() {
  wakeup_.clear();
  serve_held(true);
  for (const auto& [number, id] : identifiers_.all()) {
    if (id->repeated.next <= now_ && !transmitter_.retransmit(*id, now_)) {
      apply(*id, Heard::kNothing, nullptr);
    }
    if (id->waits_until <= now_) {
      id->waits_until = util::kNever;
      id->state = State::kOver;
      identifiers_.forget_request(*id);
      report(*id, EventType::kTimeWaitExit);
    }
    wakeup_.at(std::min(id->repeated.next, id->waits_until));
  }
  resolver_.set_wakeup();
}

/// Enters TimeWait, as its packets may still be in flight (IBTA 12.9.8.4).
void Manager::wait_for_packets(Id& id) {
  id.waits_until = now_ + cm_time(id.path.ack_timeout);
  wakeup_.at(id.waits_until);
}

/// Disconnects peers whose process was killed. On Linux the peer's kernel would disconnect them.
void Manager::look_for_the_gone() {
  looked_for_gone_ = now_;
  std::map<std::array<std::byte, 16>, bool> peers;
  for (const auto& [number, id] : identifiers_.all()) {
    if (!id->peer || id->state < State::kReqSent || id->state >= State::kDreqReceived) continue;
    if (is_datagram(*id) && id->state != State::kReqSent) continue;
    const auto [at, is_new] = peers.try_emplace(id->peer->bytes);
    if (is_new) at->second = options_.is_gone(*id->peer);
    if (at->second) hear_of_death(*id);
  }
}

/// Acts as if the peer's kernel had destroyed its identifiers.
void Manager::hear_of_death(Id& id) {
  switch (id.state) {
    case State::kEstablished:
      // The kernel of an XRC target would not disconnect.
      if (id.qp_type == IB_UVERBS_QPT_XRC_INI) return;
      return apply(id, Heard::kDreq, nullptr);
    case State::kDreqSent:
      return apply(id, Heard::kDrep, nullptr);
    default:
      if (!is_datagram(id)) return apply(id, Heard::kRej, nullptr);
      Transmitter::settle(id);
      id.state = State::kOver;
      report(id, EventType::kUnreachable, kSidrNoService);
  }
}

void Manager::drop_closed() {
  std::erase_if(channels_, [this](const auto& channel) {
    if (!channel->closed()) return false;
    std::vector<std::uint32_t> its;
    for (const auto& [number, id] : identifiers_.all()) {
      if (id->channel == channel.get()) its.push_back(number);
    }
    for (const auto number : its) erase(number);
    return true;
  });
}

void Manager::disconnect_all() {
  while (!identifiers_.all().empty()) erase(identifiers_.all().begin()->first);
}

}  // namespace softhca::rdma_cm
