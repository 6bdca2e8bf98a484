#include "server/fabric_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "util/log.h"

namespace softhca::server {
namespace {

/// Maximum frames in one turn.
constexpr std::size_t kFrames = 128;

}  // namespace

util::Result<std::unique_ptr<FabricLink>> FabricLink::create(os::EventLoop& loop,
                                                             fabric::Switch& network,
                                                             const std::string& name,
                                                             run::FabricMember member) {
  auto joined = hub::join(member.directory + "/hub");
  if (!joined) return tl::unexpected(joined.error());
  std::unique_ptr<FabricLink> link(
      new FabricLink(loop, network, name, std::move(member), *std::move(joined)));
  if (auto watched = link->watch(); !watched) return tl::unexpected(watched.error());
  link->receive();
  return link;
}

FabricLink::FabricLink(os::EventLoop& loop, fabric::Switch& network, std::string name,
                       run::FabricMember member, hub::Joined joined)
    : loop_(loop),
      name_(std::move(name)),
      member_(std::move(member)),
      joined_(std::move(joined)),
      link_(network.create_port("fabric " + name_), *std::move(joined_.out),
            *std::move(joined_.in)),
      more_(loop, [this] { receive(); }) {}

FabricLink::~FabricLink() { leave(); }

util::Result<void> FabricLink::watch() {
  auto ends = loop_.add(joined_.socket.get(), EPOLLIN, [this](std::uint32_t) { handle_socket(); });
  if (!ends) return ends;
  return loop_.add(joined_.wake_me.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count;
    (void)!::read(joined_.wake_me.get(), &count, sizeof count);
    receive();
  });
}

/// The hub sends nothing here. If it does nevertheless, it is still alive.
void FabricLink::handle_socket() {
  char byte;
  const auto size = ::recv(joined_.socket.get(), &byte, sizeof byte, MSG_DONTWAIT);
  if (size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR))) return;
  util::log(util::LogLevel::kError,
            "the hub of fabric {} has gone: programs of the host and guests do not meet any more",
            name_);
  leave();
}

void FabricLink::leave() {
  loop_.remove(joined_.socket.get());
  loop_.remove(joined_.wake_me.get());
}

void FabricLink::receive() {
  const bool any = link_.receive(kFrames) != 0;
  settle();
  if (any || !link_.prepare_to_sleep()) more_.raise();
}

void FabricLink::settle() {
  if (!link_.settle()) return;
  const std::uint64_t one = 1;
  (void)!::write(joined_.wake_hub.get(), &one, sizeof one);
}

}  // namespace softhca::server
