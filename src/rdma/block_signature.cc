#include "rdma/block_signature.h"

#include "util/endian.h"

namespace softhca::rdma {
namespace {

constexpr std::size_t kAppTagAt = 2;
constexpr std::size_t kRefTagAt = 4;

}  // namespace

Protection BlockFormat::make(const SignatureValues::Value& start, std::uint64_t number,
                             std::uint32_t sum) const {
  Protection made;
  const auto guard_field = guard_value(guard, sum);
  if (!has_tags()) {
    util::store_le32(made.bytes.data(), guard_field);
    return made;
  }
  const auto first = refresh ? ref_tag : start.ref_tag;
  const auto counted = ref_tag_counts ? static_cast<std::uint32_t>(number) : 0;
  util::store_be16(made.bytes.data(), static_cast<std::uint16_t>(guard_field));
  util::store_be16(made.bytes.data() + kAppTagAt, refresh ? app_tag : start.app_tag);
  util::store_be32(made.bytes.data() + kRefTagAt, first + counted);
  return made;
}

bool BlockFormat::escapes(const Protection& found) const {
  if (escape == Escape::kNone || !has_tags()) return false;
  if (util::load_be16(found.bytes.data() + kAppTagAt) != 0xFFFF) return false;
  return escape == Escape::kAppTag || util::load_be32(found.bytes.data() + kRefTagAt) == 0xFFFFFFFF;
}

SignaturePlace BlockSignature::place(std::uint64_t wire_offset) const {
  const auto& wire = rules_.wire;
  if (!wire.exists()) return {wire_offset, 0, false};
  const auto block = wire_offset / wire.stride();
  const auto rest = static_cast<std::uint32_t>(wire_offset % wire.stride());
  const auto data = block * wire.block;
  if (rest < wire.block) return {data + rest, 0, false};
  return {data + wire.block, rest - wire.block, true};
}

std::uint64_t BlockSignature::memory_offset(std::uint64_t data) const {
  const auto& memory = rules_.memory;
  if (!memory.exists()) return data;
  return data / memory.block * memory.stride() + data % memory.block;
}

}  // namespace softhca::rdma
