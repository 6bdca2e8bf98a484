#include "run/hub_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "control/answer_text.h"
#include "control/inspect_request.h"
#include "control/words.h"
#include "hub/inspect_hub.h"
#include "os/shared_ring.h"
#include "run/capture.h"

namespace softhca::run {
namespace {

/// How long a new hub waits for the hubs that it joins before it serves.
constexpr auto kForOthers = std::chrono::seconds(3);

}  // namespace

util::Result<std::unique_ptr<HubHost>> HubHost::create(const std::string& directory,
                                                       const FabricSetup& setup) {
  std::unique_ptr<HubHost> host(new HubHost);
  CaptureOptions capture_of;
  capture_of.pcap = setup.pcap;
  auto capture = make_capture(capture_of);
  if (!capture) return tl::unexpected(capture.error());
  host->capture_ = *std::move(capture);
  auto events = os::EventLoop::create();
  if (!events) return tl::unexpected(events.error());
  host->events_ = *std::move(events);
  hub::Hub::Options options;
  options.first_block = hub::random_block();
  options.claim_block = hub::claim_on_this_machine;
  auto blocks = hub::BlockFile::create(directory);
  if (!blocks) return tl::unexpected(blocks.error());
  host->blocks_.emplace(*std::move(blocks));
  options.publish_block = [blocks = &*host->blocks_](hub::RoceBlock block, unsigned number) {
    blocks->set(block, number);
  };
  if (setup.trunk) {
    if (auto made = host->create_trunk(directory, *setup.trunk); !made) {
      return tl::unexpected(made.error());
    }
    options.others = host->trunk_.get();
    options.claim_block = [trunk = host->trunk_.get()](unsigned block) {
      auto claim = hub::claim_on_this_machine(block);
      return claim && trunk->claim(block) ? std::move(claim) : os::UniqueFd();
    };
  }
  if (host->capture_) options.tap = &host->capture_->add_tap();
  // Later runs will use this hub, so check that this run's limits allow rings of full size.
  const auto most = std::max(options.ring_capacity, options.link_capacity);
  if (const auto ring = os::SharedRing::create(most); !ring) {
    return tl::unexpected(ring.error());
  }
  auto hub = hub::Hub::create(*host->events_, directory + "/hub", options);
  if (!hub) return tl::unexpected(hub.error());
  host->hub_ = *std::move(hub);
  if (auto listens = host->listen(directory); !listens) return tl::unexpected(listens.error());
  return host;
}

util::Result<void> HubHost::create_trunk(const std::string& directory, const TrunkSetup& setup) {
  auto members = hub::FarMembers::create(directory);
  if (!members) return tl::unexpected(members.error());
  far_members_.emplace(*std::move(members));
  auto options = setup.options;
  options.far = [this](unsigned block, const auto& living) { far_members_->set(block, living); };
  auto trunk = trunk::UdpTrunk::create(*events_, std::move(options));
  if (!trunk) return tl::unexpected(trunk.error());
  trunk_ = *std::move(trunk);
  return {};
}

util::Result<void> HubHost::listen(const std::string& directory) {
  auto control = control::ControlSocket::listen(
      *events_, control_path(directory),
      [this](std::string_view request, const control::ControlSocket::Reply& reply) {
        reply(answer(request));
      });
  if (!control) return tl::unexpected(control.error());
  control_ = *std::move(control);
  return {};
}

/// Serves inspect, as a process of a run does.
std::string HubHost::answer(std::string_view request) const {
  if (control::next_word(request) != "inspect") {
    return control::error_answer("a request is inspect");
  }
  const auto wanted = control::parse_inspect(request);
  if (!wanted) return control::error_answer(wanted.error().message);
  util::InspectNode node("softhca");
  if (wanted->function == kHub) {
    hub::inspect(*hub_, node);
  } else if (wanted->function == kTrunk && trunk_) {
    trunk_->inspect(node);
  } else {
    return control::error_answer(fmt::format("there is no function '{}'", wanted->function));
  }
  return std::string(control::kOk) + (wanted->show.json ? node.to_json() : node.to_text());
}

util::Result<std::string> HubHost::await_others() {
  if (!trunk_) return std::string();
  const auto until = util::monotonic_now() + kForOthers;
  const auto& sessions = trunk_->sessions();
  while (!sessions.all_answered() && util::monotonic_now() < until && !events_->stopped()) {
    events_->run_once(until);
  }
  if (const auto why = sessions.refusal(); !why.empty()) return util::fail("trunk: " + why);
  return trunk_->line();
}

}  // namespace softhca::run
