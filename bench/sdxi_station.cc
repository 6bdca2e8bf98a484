#include "sdxi_station.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "peers.h"
#include "spec/sdxi/context.h"

namespace softhca::bench {
namespace {

template <class T>
T must(util::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

std::uint64_t* word(const driver::DmaBuffer& buffer) {
  return reinterpret_cast<std::uint64_t*>(buffer.bytes().data());
}

}  // namespace

SdxiStation::SdxiStation(unsigned workers, unsigned contexts, unsigned first_cpu,
                         std::size_t memory)
    : device_({.workers = workers}, group_),
      host_(device_, {.progress = [this] { device_.run(util::monotonic_now()); }}),
      function_(must(driver::sdxi::Function::bring_up(host_))),
      source_(must(driver::DmaBuffer::allocate(host_, memory))),
      target_(must(driver::DmaBuffer::allocate(host_, memory))) {
  for (unsigned i = 0; i < workers; ++i) {
    pin_thread(group_.workers().native_handle(i), first_cpu + i);
  }
  std::fill(target_.bytes().begin(), target_.bytes().end(), std::byte{0});  // takes the page faults
  std::fill(source_.bytes().begin(), source_.bytes().end(), std::byte{0x5a});
  for (unsigned i = 0; i < contexts; ++i) {
    lanes_.push_back({.context = must(function_->make_context(kRing)),
                      .block = must(driver::DmaBuffer::allocate(host_, 64)),
                      .batch = {},
                      .interrupt_key = {}});
  }
}

void SdxiStation::arm(Lane& lane, std::uint64_t signal) const {
  __atomic_store_n(word(lane.block), signal, __ATOMIC_RELEASE);
}

bool SdxiStation::done(const Lane& lane) {
  return __atomic_load_n(word(lane.block), __ATOMIC_ACQUIRE) == 0;
}

SdxiStation::Descriptor SdxiStation::interrupt() {
  auto& lane = lanes_.front();
  if (!lane.interrupt_key) lane.interrupt_key = must(lane.context->akeys().use_interrupt(1));
  return Descriptor::interrupt(*lane.interrupt_key);
}

SdxiStation::Descriptor SdxiStation::last(const Lane& lane, Descriptor descriptor) const {
  return descriptor.fence().complete_at(lane.block.iova());
}

void SdxiStation::enqueue(Lane& lane, std::span<const Descriptor> descriptors) {
  for (unsigned tries = 1; !lane.context->enqueue(descriptors); ++tries) {
    // Without workers, or for work that workers hand back, the function runs here.
    if (device_.options().workers == 0 || tries % 256 == 0) host_.progress();
    relax();
  }
}

void SdxiStation::wait(const Lane& lane) {
  for (unsigned tries = 1; !done(lane); ++tries) {
    if (device_.options().workers == 0 || tries % 1024 == 0) host_.progress();
  }
  if (lane.context->state() != spec::sdxi::cxtv::CXTV_RUN) {
    throw std::runtime_error("the context has stopped");
  }
}

void SdxiStation::stream(std::span<const Descriptor> pattern, std::uint64_t n) {
  auto& lane = lanes_.front();
  // Whole batches of the pattern, so that each takes one driver call.
  const auto same = [](const Descriptor& a, const Descriptor& b) {
    return std::ranges::equal(a.bytes(), b.bytes());
  };
  if (lane.batch.size() != std::max(pattern.size(), kBatch) ||
      !std::ranges::equal(pattern, std::span(lane.batch).first(pattern.size()), same)) {
    lane.batch.clear();
    for (std::size_t i = 0; i < std::max(pattern.size(), kBatch); ++i) {
      lane.batch.push_back(pattern[i % pattern.size()]);
    }
  }
  arm(lane, 1);
  std::size_t at = 0;
  for (auto left = n - 1; left > 0;) {
    const auto count = std::min<std::uint64_t>({left, kBatch, lane.batch.size() - at});
    enqueue(lane, std::span(lane.batch).subspan(at, count));
    at = (at + count) % lane.batch.size();
    left -= count;
  }
  enqueue(lane, std::array{last(lane, lane.batch[at])});
  wait(lane);
}

std::chrono::nanoseconds SdxiStation::burst(std::span<const Descriptor> descriptors,
                                            std::uint64_t n) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    auto& lane = lanes_[i];
    lane.batch.assign(n, descriptors[i]);
    lane.batch.back() = last(lane, lane.batch.back());
    arm(lane, 1);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (auto& lane : lanes_) enqueue(lane, lane.batch);
  host_.progress();  // the control thread handles the first doorbell of a context
  while (!std::ranges::all_of(lanes_, done)) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return std::chrono::steady_clock::now() - begin;
}

void SdxiStation::one_by_one(Descriptor descriptor, std::uint64_t n) {
  auto& lane = lanes_.front();
  const std::array one{last(lane, descriptor)};
  for (std::uint64_t i = 0; i < n; ++i) {
    arm(lane, 1);
    enqueue(lane, one);
    wait(lane);
  }
}

}  // namespace softhca::bench
