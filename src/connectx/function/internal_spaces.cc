#include "connectx/function/internal_spaces.h"

#include <algorithm>

#include "spec/connectx/gateway.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using spec::connectx::icmd_opcode;
using spec::connectx::icmd_tlv;
using IcmdControl = spec::connectx::icmd_control;
using Access = spec::connectx::icmd_register_access;

constexpr std::uint32_t kDword = sizeof(std::uint32_t);

/// Offset of the dword at `address` in the mailbox.
std::optional<std::size_t> place_in_mailbox(std::uint32_t address) {
  const auto place = address - InternalSpaces::kIcmdMailbox;  // wraps to a large number if it is
                                                              // below
  if (place >= InternalSpaces::kMailboxBytes) return std::nullopt;
  return place;
}

}  // namespace

std::optional<std::uint32_t> InternalSpaces::read(Space space, std::uint32_t address) const {
  if (address % kDword != 0) return std::nullopt;
  if (space == Space::SEMAPHORE) {
    if (address / kDword >= kSemaphores) return std::nullopt;
    return semaphores_[address / kDword];
  }
  if (space != Space::ICMD) return std::nullopt;
  if (address == kIcmdControl) return control_;
  if (address == kIcmdMailboxSize) return kMailboxBytes;
  const auto place = place_in_mailbox(address);
  if (!place) return std::nullopt;
  return util::load_be32(&mailbox_[*place]);
}

bool InternalSpaces::write(Space space, std::uint32_t address, std::uint32_t value) {
  if (address % kDword != 0) return false;
  if (space == Space::SEMAPHORE) {
    if (address / kDword >= kSemaphores) return false;
    auto& semaphore = semaphores_[address / kDword];
    // The writer reads the semaphore back. If it reads its own value, it holds the semaphore.
    if (semaphore == 0 || value == 0) semaphore = value;
    return true;
  }
  if (space != Space::ICMD) return false;
  if (address == kIcmdControl) {
    write_control(value);
    return true;
  }
  const auto place = place_in_mailbox(address);
  if (!place) return false;
  util::store_be32(&mailbox_[*place], value);
  return true;
}

void InternalSpaces::reset() {
  semaphores_ = {};
  control_ = 0;
  mailbox_ = {};
}

/// Handles a write of the control register. The command is complete when the write is.
void InternalSpaces::write_control(std::uint32_t value) {
  util::Struct<IcmdControl> control;
  util::store_be32(control.bytes().data(), value);
  if (control.get(IcmdControl::busy) != 0) {
    const auto opcode = static_cast<icmd_opcode>(control.get(IcmdControl::opcode));
    control.set(IcmdControl::status, static_cast<std::uint32_t>(execute(opcode)));
    control.set(IcmdControl::busy, 0);
  }
  control_ = util::load_be32(control.bytes().data());
}

InternalSpaces::IcmdStatus InternalSpaces::execute(icmd_opcode opcode) {
  if (opcode == icmd_opcode::ACCESS_REGISTER) return access_register();
  notes_.warn("internal command {:#06x} refused: INVALID_OPCODE: only access to registers is there",
              static_cast<unsigned>(opcode));
  return IcmdStatus::INVALID_OPCODE;
}

InternalSpaces::IcmdStatus InternalSpaces::access_register() {
  const util::MutableView<Access> message(mailbox_);
  const auto length = message.get(Access::register_length);
  const auto size = Access::register_type.kOffset + std::size_t{length} * kDword;
  if (length == 0 || size > mailbox_.size()) {
    notes_.warn("internal command ACCESS_REGISTER refused: a register of {} dwords", length);
    return IcmdStatus::BAD_PARAMETER;
  }
  const auto status = access_register(std::span(mailbox_).first(size));
  message.set(Access::operation_status, static_cast<std::uint32_t>(status));
  message.set(Access::is_response, 1);
  return IcmdStatus::OK;
}

InternalSpaces::RegisterStatus InternalSpaces::access_register(std::span<std::byte> message) {
  using Class = spec::connectx::icmd_register_class;
  using Method = spec::connectx::icmd_register_method;
  const util::View<Access> access(message);
  const auto is = [](auto value, auto wanted) {
    return static_cast<decltype(wanted)>(value) == wanted;
  };
  if (!is(access.get(Access::operation_type), icmd_tlv::OPERATION) ||
      !is(access.get(Access::register_type), icmd_tlv::REGISTER)) {
    return RegisterStatus::UNKNOWN_TLV;
  }
  if (!is(access.get(Access::operation_class), Class::REGISTER_ACCESS)) {
    return RegisterStatus::CLASS_NOT_SUPPORTED;
  }
  const bool write = is(access.get(Access::method), Method::WRITE);
  if (!write && !is(access.get(Access::method), Method::QUERY)) {
    return RegisterStatus::METHOD_NOT_SUPPORTED;
  }
  const auto id = static_cast<spec::connectx::register_id>(access.get(Access::register_id));
  const auto data = message.subspan(Access::register_data_offset);
  const auto done = access_register_(id, write, data, data);
  if (done) return RegisterStatus::SUCCESS;
  if (done.error().status == Status::BAD_OP) return RegisterStatus::REGISTER_NOT_SUPPORTED;
  notes_.warn("internal access to register {:#06x} refused: {} ({})", static_cast<unsigned>(id),
              done.error().text, done.error().section);
  return RegisterStatus::BAD_PARAMETER;
}

}  // namespace softhca::connectx
