// Submits descriptors to the ring, and waits for their end (SDXI 5.2, 4.4).
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "driver/host.h"
#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"

namespace softhca::driver::sdxi {
namespace {

using spec::cxtv;

constexpr auto kStateInterval = std::chrono::milliseconds(100);

}  // namespace

bool Context::enqueue(std::span<const Descriptor> descriptors) {
  const auto end = ring_.enqueue(descriptors);
  if (!end) return false;
  function_.ring_doorbell(number_, *end);
  return true;
}

util::Result<void> Context::enqueue_patiently(std::span<const Descriptor> descriptors) {
  if (descriptors.size() > ring_.entries()) return util::fail("more descriptors than the ring has");
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (!enqueue(descriptors)) {
    if (state() != cxtv::CXTV_RUN) return failure();
    if (host.lost()) return util::fail(Host::kLost);
    if (host.now() > until) return util::fail("the SDXI ring stays full");
    host.progress();
  }
  return {};
}

/// SDXI 3.4: error information is available once the context is in CXTV_ERR_FN, not before.
util::Result<void> Context::failure() const {
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (!has_stopped(state()) && !host.lost() && host.now() <= until) host.progress();
  std::string why;
  if (state() == cxtv::CXTV_ERR_FN) {
    for (const auto& record : function_.take_errors_of(number_)) why += "; " + record.to_text();
  }
  return util::fail(fmt::format("SDXI context {} is in {}{}", number_, to_string(state()), why));
}

util::Result<Completion> Context::submit(std::span<const Descriptor> descriptors,
                                         std::optional<std::uint16_t> interrupt) {
  assert(!descriptors.empty());
  function_.look_at_errors();
  auto completion = blocks_.take();
  if (!completion) return completion;
  std::vector<Descriptor> batch(descriptors.begin(), descriptors.end());
  if (batch.size() > 1) batch.back().fence();
  batch.back().complete_at(blocks_.iova(*completion));
  // After the completion, so that the woken program finds it.
  if (interrupt) batch.push_back(Descriptor::interrupt(*interrupt).fence());
  if (auto ok = enqueue_patiently(batch); !ok) {
    blocks_.give_back(*completion);
    return tl::unexpected(ok.error());
  }
  return completion;
}

util::Result<void> Context::wait(const Completion& completion) {
  return wait(completion, std::nullopt);
}

util::Result<void> Context::wait_interrupt(const Completion& completion, unsigned vector) {
  return wait(completion, std::optional(vector));
}

util::Result<void> Context::wait(const Completion& completion, std::optional<unsigned> vector) {
  auto& host = function_.host();
  function_.look_at_errors();
  const auto until = host.now() + function_.patience();
  while (!poll(completion)) {
    // Descriptors behind a failed one never complete.
    if (state() == cxtv::CXTV_ERR_FN && !poll(completion)) break;
    if (host.lost()) return util::fail(Host::kLost);
    if (host.now() > until) return util::fail("an SDXI descriptor does not complete");
    if (!vector) {
      host.progress();
      continue;
    }
    // Consumes earlier interrupts before the block is polled again, so that only later ones wake. A
    // context that fails raises none, so its state is polled from time to time.
    (void)host.interrupts(*vector);
    if (poll(completion)) break;
    host.wait_interrupt(*vector, std::min(until, host.now() + kStateInterval));
  }
  if (blocks_.given_up(completion)) {
    return util::fail("the SDXI descriptor was given up when its context recovered");
  }
  const bool good = poll(completion) && !blocks_.failed(completion);
  blocks_.give_back(completion);
  if (good) return {};
  return failure();
}

util::Result<void> Context::wait_interrupt(unsigned vector, std::uint64_t count) {
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (host.interrupts(vector) < count) {
    if (state() == cxtv::CXTV_ERR_FN) return failure();
    if (host.lost()) return util::fail(Host::kLost);
    if (host.now() > until)
      return util::fail(fmt::format("SDXI interrupt {} does not come", vector));
    host.wait_interrupt(vector, std::min(until, host.now() + kStateInterval));
  }
  return {};
}

}  // namespace softhca::driver::sdxi
