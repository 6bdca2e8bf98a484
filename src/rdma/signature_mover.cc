#include "rdma/signature_mover.h"

#include <algorithm>
#include <array>

#include "util/endian.h"

namespace softhca::rdma {
namespace {

/// Work (util::WorkBudget) per byte, for the copy and one or two checksums, and per block.
constexpr std::int64_t kByteWork = 2;
constexpr std::int64_t kBlockWork = 60;
/// Bytes of a block that are read back per step.
constexpr std::size_t kStoredAtOnce = 512;

}  // namespace

SignatureMover::SignatureMover(KeyTable& keys, MemoryKey& key)
    : keys_(keys), key_(key), signature_(*key.signature_), rules_(signature_.rules()) {}

const SignatureValues::Value* SignatureMover::value_of(const BlockFormat& format) const {
  const auto* values = keys_.signature_values_;
  return values == nullptr ? nullptr : values->find_value(format.value);
}

/// False if one of the values has been destroyed since.
bool SignatureMover::find_values() {
  memory_value_ = value_of(rules_.memory);
  wire_value_ = value_of(rules_.wire);
  const bool there = (!rules_.memory.exists() || memory_value_ != nullptr) &&
                     (!rules_.wire.exists() || wire_value_ != nullptr);
  if (!there) keys_.fault_ = Reason::kSignatureValueGone;
  return there;
}

std::uint32_t SignatureMover::seed(const BlockFormat& format, const SignatureValues::Value& value,
                                   std::uint64_t block) const {
  if (block == 0) return format.has_tags() ? value.guard : value.crc;
  return format.seed_ones ? guard_ones(format.guard) : 0;
}

bool SignatureMover::read(std::uint64_t offset, std::span<std::byte> out) {
  if (!find_values() || !seek(offset, true)) return false;
  keys_.work().charge(static_cast<std::int64_t>(out.size()) * kByteWork);
  while (!out.empty()) {
    if (!read_some(out)) return undo();
  }
  return finish();
}

bool SignatureMover::write(std::uint64_t offset, std::span<const std::byte> in) {
  if (!find_values() || !seek(offset, false)) return false;
  keys_.work().charge(static_cast<std::int64_t>(in.size()) * kByteWork);
  while (!in.empty()) {
    if (!write_some(in)) return undo();
  }
  return finish();
}

bool SignatureMover::finish() {
  signature_.progress = now_;
  if (mismatch_) keys_.fault_ = Reason::kSignatureMismatch;
  return !mismatch_;
}

bool SignatureMover::undo() {
  if (!mismatch_) return false;
  keys_.signature_errors().remove_last();
  signature_.arm();
  return false;
}

/// Data bytes up to the next protection field on either side.
std::uint64_t SignatureMover::bytes_to_boundary(std::size_t limit) const {
  std::uint64_t left = limit;
  for (const auto* format : {&rules_.memory, &rules_.wire}) {
    if (format->exists()) left = std::min(left, format->block - place_.data % format->block);
  }
  return left;
}

void SignatureMover::go_on(std::size_t bytes) {
  now_.next += bytes;
  place_ = signature_.place(now_.next);
}

/// Adds data at place_ to both checksums.
void SignatureMover::add_data(std::span<const std::byte> bytes) {
  const auto add = [&](const BlockFormat& format, std::uint32_t& sum) {
    if (!format.exists()) return;
    sum = add_to_guard(format.guard, sum, bytes, place_.data % format.block);
  };
  add(rules_.memory, now_.memory_sum);
  add(rules_.wire, now_.wire_sum);
}

bool SignatureMover::read_some(std::span<std::byte>& out) {
  if (place_.behind_block) {
    const auto size = rules_.wire.protection();
    const auto n = std::min<std::size_t>(out.size(), size - place_.protection);
    std::copy_n(now_.wire.bytes.begin() + place_.protection, n, out.begin());
    out = out.subspan(n);
    const auto block = place_.data / rules_.wire.block;
    go_on(n);
    if (!place_.behind_block) now_.wire_sum = seed(rules_.wire, *wire_value_, block);
    return true;
  }
  const auto data = out.first(bytes_to_boundary(out.size()));
  if (!keys_.read_pieces(key_, signature_.memory_offset(place_.data), data)) return false;
  add_data(data);
  out = out.subspan(data.size());
  go_on(data.size());
  if (rules_.memory.exists() && place_.data % rules_.memory.block == 0 && !end_memory_block(true)) {
    return false;
  }
  return !place_.behind_block || end_wire_block_of_read();
}

bool SignatureMover::write_some(std::span<const std::byte>& in) {
  if (place_.behind_block) {
    const auto size = rules_.wire.protection();
    const auto n = std::min<std::size_t>(in.size(), size - place_.protection);
    std::copy_n(in.begin(), n, now_.wire.bytes.begin() + place_.protection);
    in = in.subspan(n);
    if (place_.protection + n == size && !end_protection_of_write()) return false;
    go_on(n);
    return true;
  }
  const auto data = in.first(bytes_to_boundary(in.size()));
  if (!keys_.write_pieces(key_, signature_.memory_offset(place_.data), data)) return false;
  add_data(data);
  in = in.subspan(data.size());
  go_on(data.size());
  // With same_structure, memory's protection also needs the wire's, which follows.
  if (rules_.memory.exists() && !rules_.same_structure && place_.data % rules_.memory.block == 0) {
    return end_memory_block(false);
  }
  return true;
}

/// The last data byte of a memory block was read or written.
bool SignatureMover::end_memory_block(bool reads) {
  const auto& format = rules_.memory;
  const auto block = place_.data / format.block - 1;
  const auto made = format.make(*memory_value_, block, now_.memory_sum);
  keys_.work().charge(kBlockWork);
  now_.memory_sum = seed(format, *memory_value_, block + 1);
  if (!reads) return write_protection(made, block);
  if (!read_protection(block, stored_)) return false;
  check(SignatureSide::kMemory, block, stored_, made);
  return true;
}

/// Completes the wire protection of a block. With same_structure, copies the selected bytes from
/// memory's.
bool SignatureMover::end_wire_block_of_read() {
  const auto block = place_.data / rules_.wire.block - 1;
  keys_.work().charge(kBlockWork);
  const auto made = rules_.wire.make(*wire_value_, block, now_.wire_sum);
  now_.wire = rules_.same_structure ? merge(made, stored_) : made;
  return true;
}

/// The whole wire protection of a block has arrived.
bool SignatureMover::end_protection_of_write() {
  const auto block = place_.data / rules_.wire.block - 1;
  keys_.work().charge(kBlockWork);
  const auto wanted = rules_.wire.make(*wire_value_, block, now_.wire_sum);
  check(SignatureSide::kWire, block, now_.wire, wanted);
  now_.wire_sum = seed(rules_.wire, *wire_value_, block + 1);
  if (!rules_.same_structure) return true;
  const auto made = rules_.memory.make(*memory_value_, block, now_.memory_sum);
  now_.memory_sum = seed(rules_.memory, *memory_value_, block + 1);
  return write_protection(merge(made, now_.wire), block);
}

Protection SignatureMover::merge(const Protection& made, const Protection& passed) const {
  auto merged = made;
  for (std::size_t i = 0; i != merged.bytes.size(); ++i) {
    const bool copies = (rules_.copy_mask & 0x80 >> i) != 0;  // no format: a bit for each byte
    if (copies) merged.bytes[i] = passed.bytes[i];
  }
  return merged;
}

bool SignatureMover::read_protection(std::uint64_t block, Protection& found) {
  const auto& format = rules_.memory;
  return keys_.read_pieces(key_, block * format.stride() + format.block,
                           std::span(found.bytes).first(format.protection()));
}

bool SignatureMover::write_protection(const Protection& protection, std::uint64_t block) {
  const auto& format = rules_.memory;
  return keys_.write_pieces(key_, block * format.stride() + format.block,
                            std::span(protection.bytes).first(format.protection()));
}

/// If the access continues the previous one, keeps the running checksums. Otherwise recomputes
/// those of the partial blocks from memory.
bool SignatureMover::seek(std::uint64_t offset, bool reads) {
  place_ = signature_.place(offset);
  now_ = signature_.progress;
  if (now_.next == offset && now_.reads == reads) return true;
  const auto& memory = rules_.memory;
  const auto& wire = rules_.wire;
  const bool same = rules_.same_structure;
  now_ = {};
  now_.next = offset;
  now_.reads = reads;
  const auto data = place_.data;
  if (wire.exists()) {
    const auto begin = place_.behind_block ? data - wire.block : data - data % wire.block;
    if (!add_stored(wire, *wire_value_, begin, data, now_.wire_sum)) return false;
  }
  if (memory.exists()) {
    const bool waits = same && !reads && place_.behind_block;
    const auto begin = waits ? data - memory.block : data - data % memory.block;
    if (!add_stored(memory, *memory_value_, begin, data, now_.memory_sum)) return false;
  }
  if (!place_.behind_block) return true;
  if (same && reads && !read_protection(data / memory.block - 1, stored_)) return false;
  // A write: the protection bytes that arrived before are lost, so assume the correct ones.
  if (reads) return end_wire_block_of_read();
  now_.wire = wire.make(*wire_value_, data / wire.block - 1, now_.wire_sum);
  return true;
}

/// Checksum of the data [first, end), where `first` starts a block of `format`.
bool SignatureMover::add_stored(const BlockFormat& format, const SignatureValues::Value& value,
                                std::uint64_t first, std::uint64_t end, std::uint32_t& sum) {
  sum = seed(format, value, first / format.block);
  keys_.work().charge(static_cast<std::int64_t>(end - first) * kByteWork);
  std::array<std::byte, kStoredAtOnce> bytes;
  for (auto at = first; at != end;) {
    std::uint64_t size = std::min<std::uint64_t>(end - at, bytes.size());
    if (rules_.memory.exists()) {
      size = std::min(size, rules_.memory.block - at % rules_.memory.block);
    }
    const auto part = std::span(bytes).first(size);
    if (!keys_.read_pieces(key_, signature_.memory_offset(at), part)) return false;
    sum = add_to_guard(format.guard, sum, part, at - first);
    at += size;
  }
  return true;
}

void SignatureMover::check(SignatureSide side, std::uint64_t block, const Protection& found,
                           const Protection& wanted) {
  const auto& format = side == SignatureSide::kWire ? rules_.wire : rules_.memory;
  if (!signature_.armed() || format.escapes(found)) return;
  // T10 SBC-3: guard, application tag, reference tag, in that order.
  constexpr std::size_t kGuardBytes = 2;
  constexpr std::size_t kTagBytes = 4;
  std::array<std::byte, 2> app_mask;
  util::store_be16(app_mask.data(), format.app_mask);
  for (std::size_t i = 0; i != format.protection(); ++i) {
    const bool checked = (rules_.check_mask & 0x80 >> i) != 0;  // no format: a bit for each byte
    const bool app = format.has_tags() && i >= kGuardBytes && i < kTagBytes;
    const auto bits = app ? app_mask[i - kGuardBytes] : std::byte{0xFF};
    if (!checked || ((found.bytes[i] ^ wanted.bytes[i]) & bits) == std::byte{0}) continue;
    mismatch_ = keys_.signature_errors().add(
        {.key = key_.key(),
         .side = side,
         .part = !format.has_tags() || i < kGuardBytes ? SignaturePart::kGuard
                 : app                                 ? SignaturePart::kAppTag
                                                       : SignaturePart::kRefTag,
         .offset = block * format.stride(),
         .expected = format.has_tags() ? util::load_be32(found.bytes.data())
                                       : util::load_le32(found.bytes.data()),
         .expected_ref_tag = util::load_be32(found.bytes.data() + kTagBytes),
         .actual = format.has_tags() ? util::load_be32(wanted.bytes.data())
                                     : util::load_le32(wanted.bytes.data()),
         .actual_ref_tag = util::load_be32(wanted.bytes.data() + kTagBytes)});
    if (mismatch_) signature_.disarm();
    return;
  }
}

}  // namespace softhca::rdma
