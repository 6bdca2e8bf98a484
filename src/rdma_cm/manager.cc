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
/// Delay of a message that cannot be sent because the route to its receiver is not resolved yet.
constexpr auto kTryAgainAfter = std::chrono::milliseconds(300);
/// Spreads the retransmissions of many programs over time. If all came in one burst, some would be
/// dropped each time.
constexpr int kSpreadParts = 8;

}  // namespace

util::Result<std::unique_ptr<Manager>> Manager::create(std::span<const Port> ports,
                                                       const uverbs::UserMemory& memory,
                                                       Options options) {
  auto opened = Ports::open(ports);
  if (!opened) return tl::unexpected(opened.error());
  std::unique_ptr<Manager> manager(new Manager(*std::move(opened), memory, std::move(options)));
  manager->spread_.seed(random_number());
  manager->last_port_ = static_cast<std::uint16_t>(random_number());
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

/// False: there is no route to `to` now, and its resolution has been started.
bool Manager::send(const Mad& mad, const LocalAddress& from, const driver::Gid& to) {
  if (ports_->send(mad, from, to)) return true;
  if (options_.ask && !options_.is_member(to)) options_.ask(to);
  return false;
}

util::Duration Manager::spread(util::Duration interval) {
  const auto most = interval.count() / kSpreadParts;
  return interval + util::Duration(std::uniform_int_distribution<std::int64_t>(0, most)(spread_));
}

void Manager::repeat(Id& id, const Mad& mad) {
  id.repeated = {.mad = mad, .tries_left = id.repeats_max, .interval = id.response_timeout};
  const bool sent = send(mad, id);
  id.repeated.next = now_ + (sent ? spread(id.repeated.interval) : kTryAgainAfter);
  wake_at(id.repeated.next);
}

void Manager::repeat_again(Id& id) {
  if (id.repeated.tries_left == 0) return apply(id, Heard::kNothing, nullptr);
  --id.repeated.tries_left;
  id.repeated.was_told_to_wait = false;
  (void)send(id.repeated.mad, id);
  id.repeated.next = now_ + spread(id.repeated.interval);
}

void Manager::tick(util::Time now) {
  now_ = now;
  while (const auto message = ports_->receive()) hear(*message);
  if (!resolving_.empty()) look_for_addresses();
  if (now >= next_) look_at_times();
  if (options_.is_gone && now - looked_for_gone_ >= kLookForGone) look_for_the_gone();
}

void Manager::look_at_times() {
  next_ = util::kNever;
  serve_held(true);
  for (const auto& [number, id] : identifiers_.all()) {
    if (id->repeated.next <= now_) repeat_again(*id);
    if (id->waits_until <= now_) {
      id->waits_until = util::kNever;
      id->state = State::kOver;
      identifiers_.forget_request(*id);
      report(*id, EventType::kTimeWaitExit);
    }
    if (id->state == State::kResolving) wake_at(std::min(id->ask_next, id->resolve_until));
    wake_at(std::min(id->repeated.next, id->waits_until));
  }
}

/// Enters TimeWait, as its packets may still be in flight (IBTA 12.9.8.4).
void Manager::wait_for_packets(Id& id) {
  id.waits_until = now_ + cm_time(id.path.ack_timeout);
  wake_at(id.waits_until);
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
      settle(id);
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
