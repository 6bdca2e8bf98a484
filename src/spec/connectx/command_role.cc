#include "spec/connectx/command_role.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "util/endian.h"

namespace softhca::spec::connectx {

namespace {

#include "spec/connectx/command_roles.inc"

using Word = std::array<std::byte, sizeof(std::uint32_t)>;

template <class Row, std::size_t Size>
constexpr bool is_sorted(const std::array<Row, Size>& rows) {
  return std::ranges::is_sorted(rows, {}, &Row::opcode);
}
static_assert(is_sorted(kRoles) && is_sorted(kReferences) && is_sorted(kSharedFields));

template <class Row, std::size_t Size>
std::span<const Row> rows_of(const std::array<Row, Size>& rows, command_opcode opcode) {
  return std::ranges::equal_range(rows, opcode, {}, &Row::opcode);
}

}  // namespace

std::uint32_t NumberField::read(std::span<const std::byte> message) const {
  Word word{};
  if (offset < message.size()) {
    std::ranges::copy(message.subspan(offset).first(std::min(word.size(), message.size() - offset)),
                      word.begin());
  }
  return util::load<util::ByteOrder::kBig, std::uint32_t>(word.data()) >> lo & mask;
}

void NumberField::write(std::span<std::byte> message, std::uint32_t value) const {
  assert((value & ~mask) == 0 && offset + sizeof(Word) <= message.size());
  auto* at = message.data() + offset;
  const auto others = util::load<util::ByteOrder::kBig, std::uint32_t>(at) & ~(mask << lo);
  util::store<util::ByteOrder::kBig, std::uint32_t>(at, others | value << lo);
}

const CommandRole* find_role(command_opcode opcode) {
  const auto rows = rows_of(kRoles, opcode);
  return rows.empty() ? nullptr : rows.data();
}

const CommandRole* find_end(object_kind kind) {
  const auto* at = std::ranges::find_if(kRoles, [&](const CommandRole& role) {
    return role.object.verb == Verb::kEnds && role.object.kind == kind;
  });
  return at == kRoles.end() ? nullptr : at;
}

std::span<const CommandReference> references_of(command_opcode opcode) {
  return rows_of(kReferences, opcode);
}

std::span<const SharedField> shared_fields_of(command_opcode opcode) {
  return rows_of(kSharedFields, opcode);
}

}  // namespace softhca::spec::connectx
