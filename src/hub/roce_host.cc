#include "hub/roce_host.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace softhca::hub {
namespace {

using Why = RoceRefusal::Kind;

/// Datagrams of one address in a turn of the loop, and the cost of each (util::WorkBudget).
constexpr unsigned kDatagramsPerTurn = 32;
constexpr std::int64_t kDatagramWork = 2000;
/// The cost of looking at a process's socket.
constexpr std::int64_t kCatchUpWork = 500;
/// The cost of RoceGroup::drain().
constexpr std::int64_t kDrainWork = RoceGroup::kDrainedAtOnce * 150;

}  // namespace

RoceHost::RoceHost(os::EventLoop& loop, Options options, Deliver deliver)
    : loop_(loop),
      options_(std::move(options)),
      deliver_(std::move(deliver)),
      cm_({.catch_up = [this](std::span<const RoceBlock> members) { catch_up(members); }}),
      drain_(loop, [this] { drain(); }) {}

RoceHost::~RoceHost() {
  for (const auto& [gid, address] : groups_) loop_.remove(address.group->own());
}

RoceBlock RoceHost::block_of(unsigned number) const {
  const auto at = block_of_.find(number);
  return at == block_of_.end() ? RoceBlock{0} : at->second;
}

void RoceHost::take_block(unsigned number, RoceBlock block) {
  block_of_[number] = block;
  number_of_[block] = number;
  if (options_.publish) options_.publish(block, number);
}

void RoceHost::give_back_block(unsigned number) {
  const auto at = block_of_.find(number);
  const auto block = at->second;
  block_of_.erase(at);
  number_of_[block] = 0;
  if (options_.publish) options_.publish(block, 0);
  cm_.forget(block);
  blocks_.give_back(block, options_.clock());
}

bool RoceHost::is_spoiled(RoceBlock block) const {
  return std::ranges::any_of(
      groups_, [block](const auto& one) { return one.second.group->is_spoiled(block); });
}

std::span<const RoceBlock> RoceHost::holders(const wire::Gid& gid) const {
  const auto at = holders_.find(gid);
  return at == holders_.end() ? std::span<const RoceBlock>() : at->second;
}

/// Notes that a process has an address. False: it has too many.
bool RoceHost::have(RoceBlock block, const wire::Gid& gid) {
  if (std::ranges::find(holders(gid), block) != holders(gid).end()) return true;
  const auto its = std::ranges::count_if(holders_, [block](const auto& one) {
    return std::ranges::find(one.second, block) != one.second.end();
  });
  if (std::cmp_greater_equal(its, kAddressesMax)) return false;
  holders_[gid].push_back(block);
  return true;
}

RoceBlock RoceHost::share(unsigned number, RoceRefusal& refusal) {
  refusal = {};
  if (const auto block = block_of(number); block != 0) return block;
  std::vector<RoceBlock> unused;
  auto block = blocks_.take(options_.clock());
  for (; block && is_spoiled(*block); block = blocks_.take(options_.clock())) {
    unused.push_back(*block);
  }
  for (const auto one : unused) blocks_.give_back_unused(one);
  if (!block) {
    refusal = {.kind = Why::kTooManyProcesses};
    ++counters_.refused;
    return 0;
  }
  take_block(number, *block);
  return *block;
}

RoceHost::Address* RoceHost::find_or_open(unsigned number, const wire::Gid& gid,
                                          RoceRefusal& refusal) {
  if (const auto at = groups_.find(gid); at != groups_.end()) return &at->second;
  const auto now = options_.clock();
  std::erase_if(refused_, [now](const auto& one) { return one.second.until <= now; });
  if (const auto at = refused_.find(gid); at != refused_.end()) {
    refusal = at->second.refusal;
    return nullptr;
  }
  close_idle();
  const auto tries =
      std::ranges::count_if(refused_, [&](const auto& one) { return one.second.number == number; });
  if (groups_.size() >= options_.addresses_max ||
      std::cmp_greater_equal(tries, options_.addresses_max)) {
    refusal = {.kind = Why::kTooManyAddresses};
    return nullptr;
  }
  auto* const address = open(gid, refusal);
  if (address == nullptr) note_refused(number, gid, refusal);
  return address;
}

/// Replaces the oldest refusal if there are too many.
void RoceHost::note_refused(unsigned number, const wire::Gid& gid, const RoceRefusal& refusal) {
  if (refused_.size() >= options_.addresses_max) {
    refused_.erase(
        std::ranges::min_element(refused_, {}, [](const auto& one) { return one.second.until; }));
  }
  refused_[gid] = {.refusal = refusal, .until = options_.clock() + kRefusedFor, .number = number};
}

RoceHost::Address* RoceHost::open(const wire::Gid& gid, RoceRefusal& refusal) {
  if (!alarm_) {
    auto alarm = os::Alarm::create(loop_, [this] { close_idle(); });
    if (!alarm) return refusal = {.kind = Why::kFailed, .error = errno}, nullptr;
    alarm_ = *std::move(alarm);
  }
  auto group = RoceGroup::open(gid, options_.port, refusal);
  if (!group) return nullptr;
  const auto* const opened = group.get();
  const auto watched =
      loop_.add(group->own(), EPOLLIN, [this, opened](std::uint32_t) { receive(*opened); });
  if (!watched) return refusal = {.kind = Why::kFailed, .error = errno}, nullptr;
  auto& address = groups_[gid];
  address = {.group = std::move(group), .empty_since = options_.clock()};
  set_alarm();
  return &address;
}

/// Gives a process without a block one whose member of the group can be used.
int RoceHost::admit_new(unsigned number, RoceGroup& group, RoceRefusal& refusal) {
  const auto now = options_.clock();
  std::vector<RoceBlock> unused;
  int socket = -1;
  for (;;) {
    const auto block = blocks_.take(now);
    if (!block) {
      refusal = {.kind = Why::kTooManyProcesses};
      break;
    }
    socket = group.admit(*block, refusal);
    if (socket >= 0) {
      refusal = {};
      take_block(number, *block);
      break;
    }
    unused.push_back(*block);
    if (refusal.kind != Why::kSpoiled) break;
  }
  for (const auto block : unused) blocks_.give_back_unused(block);
  return socket;
}

int RoceHost::admit(unsigned number, RoceGroup& group, RoceRefusal& refusal) {
  const auto block = block_of(number);
  if (block == 0) return admit_new(number, group, refusal);
  return group.has(block) ? group.member(block) : group.admit(block, refusal);
}

RoceHost::Seat RoceHost::join(unsigned number, const wire::Gid& gid, RoceRefusal& refusal) {
  refusal = {};
  auto* const address = find_or_open(number, gid, refusal);
  int socket = address == nullptr ? -1 : admit(number, *address->group, refusal);
  const auto block = block_of(number);
  if (block != 0 && refusal.kind != Why::kUnfit && !have(block, gid)) {
    refusal = {.kind = Why::kTooManyAddresses};
    if (socket >= 0) vacate(*address, block);
    socket = -1;
  }
  ++(socket < 0 ? counters_.refused : counters_.joined);
  if (socket < 0) return {};
  return {.block = block_of(number), .socket = socket};
}

void RoceHost::vacate(Address& address, RoceBlock block) {
  address.group->leave(block);
  address.empty_since = options_.clock();
  drain_.raise();
  set_alarm();
}

void RoceHost::drain() {
  for (auto& [gid, address] : groups_) {
    while (address.group->drain()) {
      loop_.budget().charge(kDrainWork);
      if (loop_.budget().spent()) return drain_.raise();
    }
  }
}

/// The process keeps its block, even if it has no other address. Otherwise it could use up all
/// blocks, since each rests.
void RoceHost::leave(unsigned number, const wire::Gid& gid) {
  const auto block = block_of(number);
  if (block == 0) return;
  if (const auto at = holders_.find(gid); at != holders_.end()) {
    std::erase(at->second, block);
    if (at->second.empty()) holders_.erase(at);
  }
  const auto at = groups_.find(gid);
  if (at != groups_.end() && at->second.group->has(block)) vacate(at->second, block);
}

void RoceHost::forget(unsigned number) {
  const auto block = block_of(number);
  if (block == 0) return;
  for (auto& [gid, its] : holders_) std::erase(its, block);
  std::erase_if(holders_, [](const auto& one) { return one.second.empty(); });
  for (auto& [gid, address] : groups_) {
    if (address.group->has(block)) vacate(address, block);
  }
  give_back_block(number);
}

void RoceHost::close_idle() {
  const auto now = options_.clock();
  std::erase_if(groups_, [&](const auto& one) {
    const auto& address = one.second;
    if (!address.group->blocks().empty() || address.empty_since + kLinger > now) return false;
    loop_.remove(address.group->own());
    return true;
  });
  set_alarm();
}

void RoceHost::set_alarm() {
  auto next = util::kNever;
  for (const auto& [gid, address] : groups_) {
    if (address.group->blocks().empty()) next = std::min(next, address.empty_since + kLinger);
  }
  if (alarm_) alarm_->set(next);
}

bool RoceHost::listen(unsigned number, const CmService& service) {
  const auto block = block_of(number);
  return block != 0 && cm_.listen(block, service, options_.clock());
}

void RoceHost::unlisten(unsigned number, const CmService& service) {
  const auto block = block_of(number);
  if (block != 0) cm_.unlisten(block, service, options_.clock());
}

/// A process registers a listener before its peer learns of it. But the hub may read the peer's
/// request first.
void RoceHost::catch_up(std::span<const RoceBlock> members) {
  if (!options_.catch_up) return;
  for (const auto block : members) {
    loop_.budget().charge(kCatchUpWork);
    options_.catch_up(number_of_[block]);
  }
}

unsigned RoceHost::route(CmDispatch::Ends ends, std::span<const std::byte> packet) {
  loop_.budget().charge(kDatagramWork);
  if (holders(ends.from).empty()) ends.sender = 0;
  const auto block = cm_.route(ends, packet, holders(ends.to), options_.clock());
  return block ? number_of_[*block] : 0;
}

/// A peer can send without end, and one message can be much work: the rest waits for the next turn.
void RoceHost::receive(const RoceGroup& group) {
  std::array<std::byte, ForwardedDatagram::kPacketMax> buffer;
  ForwardedDatagram datagram{.to = group.address(), .datagram = {}};
  for (unsigned i = 0; i != kDatagramsPerTurn; ++i) {
    if (!group.receive(buffer, datagram.datagram)) return;
    const auto number =
        route({.from = datagram.datagram.from, .to = datagram.to}, datagram.datagram.packet);
    if (number != 0 && !deliver_(number, datagram)) ++counters_.lost;
    if (loop_.budget().spent()) return;
  }
}

RoceHost::Counters RoceHost::counters() const {
  auto counters = counters_;
  counters.cm = cm_.counters();
  for (const auto& [gid, address] : groups_) {
    const auto its = address.group->counters();
    counters.groups.dropped += its.dropped;
    counters.groups.overflow += its.overflow;
  }
  return counters;
}

}  // namespace softhca::hub
