#include "driver/sdxi/mailboxes.h"

#include <fmt/format.h>

#include "driver/host.h"
#include "driver/sdxi/context.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::driver::sdxi {
namespace {

using reg = spec::mmio_register;

constexpr std::uint64_t kBlock = 0x10000;  ///< bytes per block of mailboxes (SDXI 9.5)

constexpr std::uint64_t offset(reg name) { return static_cast<std::uint64_t>(name); }

/// Offset of the register with the bit of `peer`, in an array with one bit per peer.
constexpr std::uint64_t word_of(reg array, std::uint16_t peer) {
  return offset(array) + peer / 64 * 8u;
}
constexpr std::uint64_t bit_of(std::uint16_t peer) { return std::uint64_t{1} << peer % 64; }

/// Mailboxes are in blocks; every other block is of the same kind (SDXI 9.5).
constexpr std::uint64_t mailbox(reg first, std::uint16_t peer) {
  const auto at = peer * std::uint64_t{sizeof(Mailboxes::Message)};
  return offset(first) + at / kBlock * 2 * kBlock + at % kBlock;
}

}  // namespace

std::uint64_t Mailboxes::read(std::uint64_t at) {
  std::array<std::byte, 8> bytes;
  function_.host().read_bar(kRegisterBar, at, bytes);
  return util::load_le64(bytes.data());
}

void Mailboxes::write(std::uint64_t at, std::uint64_t value) {
  std::array<std::byte, 8> bytes;
  util::store_le64(bytes.data(), value);
  function_.host().write_bar(kRegisterBar, at, bytes);
}

bool Mailboxes::taken(std::uint16_t peer) {
  if (!sent_.contains(peer)) return true;
  const auto at = word_of(reg::MMIO_MBS_ST, peer);
  if ((read(at) & bit_of(peer)) == 0) return false;
  write(at, bit_of(peer));  // cleared by writing 1
  sent_.erase(peer);
  return true;
}

util::Result<void> Mailboxes::send(std::uint16_t peer, const Message& message) {
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  while (!taken(peer)) {
    if (host.lost()) return util::fail(Host::kLost);
    if (host.now() > until) {
      return util::fail(fmt::format("SDXI mailbox {}: the last message is not taken", peer));
    }
    host.progress();
  }
  // SDXI 9.4: clear ack before a new message; an earlier driver may have left it set.
  if (!sent_.contains(peer)) write(word_of(reg::MMIO_MBS_ST, peer), bit_of(peer));
  const auto at = mailbox(reg::MMIO_MBS, peer);
  write(at, util::load_le64(message.data()));
  write(at + 8, util::load_le64(message.data() + 8));
  util::Struct<spec::mmio_mbs_ctl> control;
  control.set(spec::mmio_mbs_ctl::msg, 1);
  control.set(spec::mmio_mbs_ctl::tgt_vf, peer);
  write(offset(reg::MMIO_MBS_CTL), util::load_le64(control.bytes().data()));
  sent_.insert(peer);
  return {};
}

std::optional<Mailboxes::Message> Mailboxes::receive(std::uint16_t peer) {
  const auto status = word_of(reg::MMIO_MBR_ST, peer);
  if ((read(status) & bit_of(peer)) == 0) return std::nullopt;
  const auto at = mailbox(reg::MMIO_MBR, peer);
  Message message;
  util::store_le64(message.data(), read(at));
  util::store_le64(message.data() + 8, read(at + 8));
  write(status, bit_of(peer));  // from here on the sender may overwrite the message
  return message;
}

util::Result<Mailboxes::Message> Mailboxes::wait(std::uint16_t peer) {
  auto& host = function_.host();
  const auto until = host.now() + function_.patience();
  for (;;) {
    if (const auto message = receive(peer)) return *message;
    if (host.lost()) return util::fail(Host::kLost);
    if (host.now() > until) {
      return util::fail(fmt::format("SDXI mailbox {}: no message comes", peer));
    }
    host.progress();
  }
}

void Mailboxes::set_interrupts(bool when_taken, bool when_arrived) {
  util::Struct<spec::mmio_mb_ctl> control;
  control.set(spec::mmio_mb_ctl::snd, when_taken);
  control.set(spec::mmio_mb_ctl::rcv, when_arrived);
  write(offset(reg::MMIO_MB_CTL), util::load_le64(control.bytes().data()));
}

}  // namespace softhca::driver::sdxi
