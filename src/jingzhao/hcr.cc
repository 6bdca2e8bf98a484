#include "jingzhao/hcr.h"

#include "util/endian.h"

namespace softhca::jingzhao {

namespace {

/// Offset of the dword with command, status and go.
constexpr std::uint32_t kControl = Hcr::Layout::go.kOffset;

std::uint64_t join(std::uint32_t high, std::uint32_t low) {
  return std::uint64_t{high} << 32 | low;  // no format: joins two registers
}

}  // namespace

std::uint32_t Hcr::read(std::uint32_t offset) const {
  return util::load_le32(registers_.bytes + offset);
}

bool Hcr::write(std::uint32_t offset, std::uint32_t value) {
  if (busy()) return false;
  util::store_le32(registers_.bytes + offset, value);
  if (offset != kControl) return false;
  view().set(Layout::status, 0);  // only the device sets it
  return busy();
}

Command Hcr::command() const {
  const auto hcr = view();
  return {.op = Opcode(hcr.get(Layout::op)),
          .op_modifier = static_cast<std::uint8_t>(hcr.get(Layout::op_modifier)),
          .in_modifier = hcr.get(Layout::in_modifier),
          .in_param = join(hcr.get(Layout::in_param_h), hcr.get(Layout::in_param_l))};
}

std::uint64_t Hcr::out_param() const {
  const auto hcr = view();
  return join(hcr.get(Layout::out_param_h), hcr.get(Layout::out_param_l));
}

void Hcr::complete(Status status) {
  view().set(Layout::status, static_cast<std::uint32_t>(status));
  view().set(Layout::go, 0);
}

}  // namespace softhca::jingzhao
