#include "driver/jingzhao/command_interface.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "driver/pci.h"

namespace softhca::driver::jingzhao {

using spec::hcr;
using spec::reset_register;

namespace {

/// "Unique"; this is the token of a driver that polls.
constexpr std::uint32_t kPollToken = 0xFFFF;
constexpr std::uint32_t kControl = hcr::go.kOffset;

std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);  // no format: splits a number
}

}  // namespace

util::Result<std::unique_ptr<CommandInterface>> CommandInterface::create(Host& host,
                                                                         util::Duration patience) {
  std::unique_ptr<CommandInterface> made(new CommandInterface(host, patience));
  for (auto* mailbox : {&made->in_, &made->out_}) {
    auto memory = DmaBuffer::allocate(host, kMailbox);
    if (!memory) return tl::unexpected(memory.error());
    *mailbox = std::move(*memory);
  }
  if (read_pci_id(host).device == kAuthorsCard) made->hcr_ = kHcrOffsetOfAuthorsCard;
  return made;
}

std::uint32_t CommandInterface::read(std::uint64_t offset) {
  std::array<std::byte, sizeof(std::uint32_t)> bytes{};
  host_.read_bar(kHcrBar, offset, bytes);
  return util::load_le32(bytes.data());
}

void CommandInterface::write(std::uint64_t offset, std::uint32_t value) {
  std::array<std::byte, sizeof(std::uint32_t)> bytes;
  util::store_le32(bytes.data(), value);
  host_.write_bar(kHcrBar, offset, bytes);
}

/// Lets the device work until `done` returns true. False if it took too long, or the device is
/// gone.
template <class Done>
bool CommandInterface::wait(Done&& done) {
  const auto deadline = host_.now() + patience_;
  while (!done()) {
    if (host_.lost() || host_.now() > deadline) return false;
    host_.progress();
  }
  return true;
}

util::Result<void> CommandInterface::reset() {
  util::Struct<reset_register> value;
  value.set(reset_register::reset, 1);
  write(kResetOffset, util::load_le32(value.bytes().data()));
  if (!wait([&] { return read(kResetOffset) == 0; })) {
    return util::fail("the device does not come out of its reset (JingZhao 3.1.1)");
  }
  stalled_ = false;
  return {};
}

void CommandInterface::start(const Request& request) {
  const auto in = request.in.empty() ? request.in_param : in_.iova();
  const auto out = request.out.empty() ? 0 : out_.iova();
  util::Struct<hcr> command;
  command.set(hcr::in_param_h, high(in));
  command.set(hcr::in_param_l, static_cast<std::uint32_t>(in));
  command.set(hcr::in_modifier, request.in_modifier);
  command.set(hcr::out_param_h, high(out));
  command.set(hcr::out_param_l, static_cast<std::uint32_t>(out));
  command.set(hcr::token, kPollToken);
  command.set(hcr::go, 1);
  command.set(hcr::op_modifier, request.op_modifier);
  command.set(hcr::op, static_cast<std::uint32_t>(request.op));
  // One dword at a time, the one with `go` last.
  for (std::uint32_t at = 0; at != hcr::kSize; at += sizeof(std::uint32_t)) {
    write(hcr_ + at, util::load_le32(command.bytes().data() + at));
  }
}

util::Result<void> CommandInterface::run(const Request& request) {
  const auto failed = [&](std::string_view why) {
    return util::fail(fmt::format("{}: {}", to_string(request.op), why));
  };
  if (host_.lost()) return util::fail(Host::kLost);
  if (stalled_) return failed("an earlier command was never completed");
  std::ranges::copy(request.in, in_.bytes().begin());
  std::ranges::fill(out_.bytes(), std::byte{0});
  std::atomic_thread_fence(std::memory_order_release);
  start(request);
  util::Struct<hcr> reply;
  const bool done = wait([&] {
    util::store_le32(reply.bytes().data() + kControl, read(hcr_ + kControl));
    return reply.get(hcr::go) == 0;
  });
  if (!done) {
    stalled_ = true;
    if (host_.lost()) return util::fail(Host::kLost);
    return failed("the device does not answer");
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto status = spec::hcr_status(reply.get(hcr::status));
  if (status != spec::hcr_status::OK) {
    return failed(
        fmt::format("status {} ({:#x})", to_string(status), static_cast<unsigned>(status)));
  }
  std::ranges::copy(out_.bytes().first(request.out.size()), request.out.begin());
  return {};
}

}  // namespace softhca::driver::jingzhao
