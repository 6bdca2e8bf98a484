#include "perf/testbed.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace softhca::perf {

using driver::MemoryAccess;
using driver::PostStatus;
using driver::SendOpcode;
using verbs::Feature;
using verbs::QpType;

namespace {

constexpr std::size_t kAtomicSize = 8;
/// perftest's value for latency.
constexpr unsigned kInlineLatency = 220;

bool of_latency(const Options& options) { return options.latency && !options.bandwidth; }

unsigned inline_of(const Options& options) {
  if (options.verb == Verb::kRead || options.verb == Verb::kAtomic) return 0;
  if (options.queues.inline_size) return *options.queues.inline_size;
  return of_latency(options) ? kInlineLatency : 0;
}
unsigned send_depth(const Options& options) {
  return of_latency(options) ? kLatencyDepth : options.queues.tx_depth;
}
unsigned receive_depth(const Options& options) {
  return of_latency(options) ? kLatencyDepth : options.queues.rx_depth;
}

/// Rejects options that no device supports, or not this one.
util::Result<void> check(const Options& options, std::uint64_t largest,
                         const verbs::DeviceAttributes& device) {
  const bool one_sided = options.verb != Verb::kSend;
  if (options.queues.service == QpType::kUd && one_sided) {
    return util::fail("UD has SENDs only (IBTA 9.4 Table 36)");
  }
  if (options.queues.service == QpType::kUc &&
      (options.verb == Verb::kRead || options.verb == Verb::kAtomic)) {
    return util::fail("UC has no READs and no atomics (IBTA 9.4 Table 36)");
  }
  if (options.queues.service == QpType::kUc) {
    if (auto has = verbs::require(device, Feature::kUc); !has) return has;
  }
  if (options.verb == Verb::kAtomic) {
    if (auto has = verbs::require(device, Feature::kAtomics); !has) return has;
  }
  if (options.queues.service == QpType::kUd && largest > options.queues.mtu) {
    return util::fail(
        fmt::format("a UD message is one packet: {} bytes at most (-m)", options.queues.mtu));
  }
  if (largest > device.max_message) {
    return util::fail(
        fmt::format("{}: messages have at most {} bytes", device.model, device.max_message));
  }
  if (options.queues.mtu > device.max_mtu) {
    return util::fail(fmt::format("{}: the MTU is at most {}", device.model, device.max_mtu));
  }
  return {};
}

template <class T>
T must(util::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

}  // namespace

Side::Side(verbs::Device& on, const Options& options, std::size_t memory_size)
    : device(on),
      buffer(must(driver::DmaBuffer::allocate(on.host(), memory_size))),
      memory(buffer.bytes().first(memory_size)),
      pd(must(on.allocate_pd())),
      region(must(pd.register_memory(memory, MemoryAccess::all()))),
      send_cq(must(on.create_cq(send_depth(options)))),
      receive_cq(must(on.create_cq(receive_depth(options)))),
      qp(must(pd.create_qp({.type = options.queues.service,
                            .send_cq = send_cq,
                            .receive_cq = receive_cq,
                            .capacity = {.send_requests = send_depth(options),
                                         .send_pieces = 1,
                                         .inline_size = inline_of(options),
                                         .receive_requests = receive_depth(options),
                                         .receive_pieces = 1}}))),
      inline_size(inline_of(options)) {
  std::ranges::fill(memory, std::byte{0});
}

PostStatus Side::post(const Options& options, std::size_t size, std::uint64_t id, bool signaled) {
  const auto piece = region.piece(0, size);
  driver::SendRequest request{.id = id, .pieces = {&piece, 1}, .signaled = signaled};
  switch (options.verb) {
    case Verb::kSend:
      request.address = &peer_address;
      request.remote_qpn = peer.qpn;
      request.remote_qkey = peer.qkey;
      break;
    case Verb::kWrite:
      request.opcode = SendOpcode::kRdmaWrite;
      break;
    case Verb::kRead:
      request.opcode = SendOpcode::kRdmaRead;
      break;
    case Verb::kAtomic:
      request.opcode = options.compare_and_swap ? SendOpcode::kCompareSwap : SendOpcode::kFetchAdd;
      request.swap_or_add = 1;
      break;
  }
  request.remote_address = peer.address + peer.length / 2;
  request.rkey = peer.rkey;
  if (size <= inline_size) {
    request.pieces = {};
    request.inline_data = region.bytes().first(size);
  }
  return qp.post_send(request);
}

PostStatus Side::receive(std::size_t size) {
  const auto header = qp.type() == QpType::kUd ? device.attributes().datagram_header : 0;
  const auto piece = region.piece(memory.size() / 2, size + header);
  return qp.post_receive({.pieces = {&piece, 1}});
}

void Testbed::make_lab() {
  lab_ = std::make_unique<lab::Lab>(
      options_.ends.devices,
      lab::Lab::Options{.link = options_.ends.infiniband ? wire::Link::kInfiniband
                                                         : wire::Link::kEthernet});
}

util::Result<void> Testbed::open_functions() {
  options_.ends.devices.clear();
  for (const auto& where : options_.ends.functions) {
    auto function = open_function(where);
    if (!function) return tl::unexpected(function.error());
    options_.ends.devices.push_back(function->model);
    functions_.push_back(std::move(*function));
  }
  if (peer_ != nullptr)
    options_.ends.devices.push_back(options_.ends.listens ? "measures" : options_.ends.peer);
  options_.ends.infiniband = functions_[0].device->attributes().lid != 0;
  return {};
}

util::Result<std::unique_ptr<Testbed>> Testbed::create(const Options& options,
                                                       std::uint64_t largest, Peer* peer) {
  std::unique_ptr<Testbed> testbed(new Testbed(options, peer));
  try {
    if (options.ends.functions.empty()) {
      testbed->make_lab();
    } else if (auto done = testbed->open_functions(); !done) {
      return tl::unexpected(done.error());
    }
    const std::size_t ends = peer == nullptr ? 2 : 1;
    for (std::size_t i = 0; i != ends; ++i) {
      const auto good = check(options, largest, testbed->device(i).attributes());
      if (!good) return tl::unexpected(good.error());
    }
    const auto half = std::max<std::size_t>(largest, kAtomicSize) + 64;
    testbed->a_ = std::make_unique<Side>(testbed->device(0), options, 2 * half);
    if (ends == 2) testbed->b_ = std::make_unique<Side>(testbed->device(1), options, 2 * half);
  } catch (const std::runtime_error& error) {
    return util::fail(error.what());
  }
  if (auto done = testbed->connect(); !done) return tl::unexpected(done.error());
  return testbed;
}

util::Result<void> Testbed::reconnect() {
  if (auto done = a_->qp.to_reset(); !done) return done;
  if (peer_ == nullptr) {
    if (auto done = b_->qp.to_reset(); !done) return done;
  }
  return connect();
}

verbs::Endpoint Testbed::describe(Side& side) {
  return verbs::describe(
      side.qp,
      {.path_mtu = options_.queues.mtu, .reads = options_.queues.reads, .memory = &side.region});
}

util::Result<void> Testbed::join(Side& side, const verbs::Endpoint& end) {
  side.peer = end;
  if (options_.queues.service == QpType::kUd) {
    auto address = side.pd.make_address(verbs::path_to(end));
    if (!address) return tl::unexpected(address.error());
    side.peer_address = *address;
  }
  return verbs::connect(side.qp, end,
                        {.path_mtu = options_.queues.mtu,
                         .timeout = static_cast<std::uint8_t>(options_.queues.timeout),
                         .reads = options_.queues.reads});
}

util::Result<void> Testbed::connect() {
  const auto end_a = describe(*a_);
  if (peer_ == nullptr) {
    const auto end_b = describe(*b_);
    if (auto done = join(*a_, end_b); !done) return done;
    return join(*b_, end_a);
  }
  auto end_b = peer_->exchange(end_a);
  if (!end_b) return tl::unexpected(end_b.error());
  return join(*a_, *end_b);
}

}  // namespace softhca::perf
