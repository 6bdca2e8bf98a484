#include "sdxi/mailboxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "sdxi/format.h"
#include "util/bits.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::sdxi {
namespace {

using spec::mmio_register;

constexpr std::uint64_t at(mmio_register name) { return static_cast<std::uint64_t>(name); }
constexpr std::uint64_t kArraySize = 0x2000;  ///< bytes of MMIO_MBS_ST and of MMIO_MBR_ST
constexpr std::uint64_t kBlock = 0x10000;     ///< bytes of one block of mailboxes
constexpr std::uint64_t kMailboxesPerBlock = kBlock / sizeof(Mailbox);

template <class Layout, class Field>
std::uint32_t field(std::uint64_t value, Field f) {
  util::Struct<Layout> word;
  util::store_le64(word.bytes().data(), value);
  return word.get(f);
}

bool bit(const std::vector<std::uint64_t>& bits, std::uint64_t number) {
  return (bits[number / 64] >> number % 64 & 1) != 0;  // no format: a bitmap
}

bool inside(std::uint64_t offset, std::uint64_t base, std::uint64_t size) {
  return offset - base < size;
}

}  // namespace

Mailboxes::Mailboxes(GroupMember& self, GroupMember* pf, std::uint16_t vf_num, std::uint16_t vfs,
                     const FunctionGroup& group, OwnInterrupt& own_interrupt)
    : self_(self), pf_(pf), vf_num_(vf_num), group_(group), own_interrupt_(own_interrupt) {
  const std::size_t peers = pf != nullptr ? 1 : vfs;
  sent_.resize(peers);
  acknowledged_.resize((peers + 63) / 64);
  received_.resize((peers + 63) / 64);
}

void Mailboxes::reset() {
  control_ = 0;
  std::fill(acknowledged_.begin(), acknowledged_.end(), 0);
  std::fill(received_.begin(), received_.end(), 0);
  std::fill(sent_.begin(), sent_.end(), Mailbox{});
}

GroupMember* Mailboxes::peer(std::uint16_t number) const {
  if (pf_ != nullptr) return pf_;  // a VF's messages always go to its PF
  return number < sent_.size() ? group_.vf_of(self_, number) : nullptr;
}

void Mailboxes::inspect(util::Inspection& out) const {
  struct Seen {
    std::uint64_t peer;
    bool received, acknowledged;
  };
  out.list(
      {.name = "mailboxes", .end = sent_.size(), .count = std::nullopt, .there = !sent_.empty()},
      [this](std::uint64_t place) -> std::optional<Seen> {
        const Seen seen{place, bit(received_, place), bit(acknowledged_, place)};
        return seen.received || seen.acknowledged ? std::optional(seen) : std::nullopt;
      },
      [](const Seen& seen, util::InspectNode& list) {
        auto& one = list.child(fmt::format("mailbox {}", seen.peer));
        one.add("number", seen.peer);
        one.add("MMIO_MBR_ST", seen.received);
        one.add("MMIO_MBS_ST", seen.acknowledged);
      });
}

std::span<std::byte> Mailboxes::send_mailbox(std::uint16_t number) {
  return number < sent_.size() ? std::span<std::byte>(sent_[number]) : std::span<std::byte>{};
}

/// The mailbox bytes at an offset; null if there are none.
std::byte* Mailboxes::data(std::uint64_t offset, bool* writable) {
  const auto from = offset - at(mmio_register::MMIO_MBS);
  const auto block = from / kBlock;
  // Blocks alternate: send, receive (SDXI 9.5).
  const auto number = block / 2 * kMailboxesPerBlock + from % kBlock / sizeof(Mailbox);
  if (number >= sent_.size()) return nullptr;
  *writable = block % 2 == 0;
  auto mailbox = std::span<std::byte>(sent_[number]);
  if (!*writable) {
    auto* sender = peer(static_cast<std::uint16_t>(number));
    if (sender == nullptr) return nullptr;
    mailbox = sender->send_mailbox(own_number());
    if (mailbox.empty()) return nullptr;
  }
  return &mailbox[from % sizeof(Mailbox)];
}

std::uint64_t Mailboxes::read(std::uint64_t offset) {
  if (sent_.empty()) return 0;
  const auto element = [offset](const Bits& bits, mmio_register base) {
    const auto index = (offset - at(base)) / 8;
    return index < bits.size() ? bits[index] : 0;
  };
  if (inside(offset, at(mmio_register::MMIO_MBS_ST), kArraySize)) {
    return element(acknowledged_, mmio_register::MMIO_MBS_ST);
  }
  if (inside(offset, at(mmio_register::MMIO_MBR_ST), kArraySize)) {
    return element(received_, mmio_register::MMIO_MBR_ST);
  }
  if (offset < at(mmio_register::MMIO_MBS)) return 0;
  bool writable = false;
  const auto* bytes = data(offset, &writable);
  return bytes == nullptr ? 0 : util::load_le64(bytes);
}

void Mailboxes::write(std::uint64_t offset, std::uint64_t value, std::uint64_t written) {
  if (sent_.empty()) return;
  if (offset == at(mmio_register::MMIO_MB_CTL)) {
    using ctl = spec::mmio_mb_ctl;
    constexpr std::uint64_t kWritable = util::in_place(ctl::snd, 1) | util::in_place(ctl::rcv, 1);
    control_ = ((control_ & ~written) | (value & written)) & kWritable;
  } else if (offset == at(mmio_register::MMIO_MBS_CTL)) {
    send(value & written);
  } else if (inside(offset, at(mmio_register::MMIO_MBS_ST), kArraySize)) {
    const auto index = (offset - at(mmio_register::MMIO_MBS_ST)) / 8;
    if (index < acknowledged_.size()) acknowledged_[index] &= ~(value & written);
  } else if (inside(offset, at(mmio_register::MMIO_MBR_ST), kArraySize)) {
    clear_received((offset - at(mmio_register::MMIO_MBR_ST)) / 8, value & written);
  } else if (offset >= at(mmio_register::MMIO_MBS)) {
    bool writable = false;
    auto* bytes = data(offset, &writable);
    if (bytes != nullptr && writable) {
      util::store_le64(bytes, (util::load_le64(bytes) & ~written) | (value & written));
    }
  }
}

void Mailboxes::send(std::uint64_t control) {
  using ctl = spec::mmio_mbs_ctl;
  if (field<ctl>(control, ctl::msg) == 0) return;
  auto* target = peer(static_cast<std::uint16_t>(field<ctl>(control, ctl::tgt_vf)));
  if (target != nullptr) target->message_arrived(own_number());
}

void Mailboxes::message_arrived(std::uint16_t number) {
  if (number >= sent_.size()) return;
  const auto bit = std::uint64_t{1} << number % 64;
  const bool news = (received_[number / 64] & bit) == 0;
  received_[number / 64] |= bit;
  if (news && field<spec::mmio_mb_ctl>(control_, spec::mmio_mb_ctl::rcv) != 0)
    own_interrupt_.raise();
}

/// SDXI 9.4: clearing rcv notifies the sender, by setting its ack bit.
void Mailboxes::clear_received(std::size_t word, std::uint64_t ones) {
  if (word >= received_.size()) return;
  auto cleared = received_[word] & ones;
  received_[word] &= ~ones;
  for (; cleared != 0; cleared &= cleared - 1) {
    const auto number = static_cast<std::uint16_t>(word * 64 + std::countr_zero(cleared));
    if (auto* sender = peer(number)) sender->message_taken(own_number());
  }
}

void Mailboxes::message_taken(std::uint16_t number) {
  if (number >= sent_.size()) return;
  const auto bit = std::uint64_t{1} << number % 64;
  const bool news = (acknowledged_[number / 64] & bit) == 0;
  acknowledged_[number / 64] |= bit;
  if (news && field<spec::mmio_mb_ctl>(control_, spec::mmio_mb_ctl::snd) != 0)
    own_interrupt_.raise();
}

}  // namespace softhca::sdxi
