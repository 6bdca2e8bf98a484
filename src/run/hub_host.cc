#include "run/hub_host.h"

#include <algorithm>

#include "os/shared_ring.h"
#include "run/capture.h"

namespace softhca::run {

util::Result<std::unique_ptr<HubHost>> HubHost::create(const std::string& directory,
                                                       const std::string& pcap) {
  std::unique_ptr<HubHost> host(new HubHost);
  CaptureOptions capture_of;
  capture_of.pcap = pcap;
  auto capture = make_capture(capture_of);
  if (!capture) return tl::unexpected(capture.error());
  host->capture_ = *std::move(capture);
  auto events = os::EventLoop::create();
  if (!events) return tl::unexpected(events.error());
  host->events_ = *std::move(events);
  hub::Hub::Options options;
  options.first_block = hub::random_block();
  options.claim_block = hub::claim_on_this_machine;
  if (host->capture_) options.tap = &host->capture_->add_tap();
  // Later runs will use this hub, so check that this run's limits allow rings of full size.
  const auto most = std::max(options.ring_capacity, options.link_capacity);
  if (const auto ring = os::SharedRing::create(most); !ring) {
    return tl::unexpected(ring.error());
  }
  auto hub = hub::Hub::create(*host->events_, directory + "/hub", options);
  if (!hub) return tl::unexpected(hub.error());
  host->hub_ = *std::move(hub);
  return host;
}

}  // namespace softhca::run
