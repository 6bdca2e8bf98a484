#include "rsnic/csr.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "spec/connectx/cq.h"
#include "spec/connectx/eq.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/raw_queues.h"
#include "util/endian.h"

namespace softhca::rsnic {

using spec::connectx::command_opcode;

namespace {

/// Position of a field in a message: the offsets of its enclosing structures plus its own.
struct Place {
  std::size_t at = 0;
  unsigned hi = 0, lo = 0;
};
template <class Field>
constexpr Place place(Field) {
  return {Field::kOffset, Field::kHi, Field::kLo};
}
template <class Outer, class... Rest>
constexpr Place place(Outer, Rest... rest) {
  auto inner = place(rest...);
  inner.at += Outer::kOffset;
  return inner;
}

/// A row without its table.
constexpr CsrRow number(unsigned offset, unsigned hi, unsigned lo, std::string_view name,
                        std::optional<std::uint32_t> printed, CsrSource source, Place from) {
  CsrRow row{};
  row.offset = static_cast<std::uint16_t>(offset);
  row.hi = static_cast<std::uint16_t>(hi);
  row.lo = static_cast<std::uint16_t>(lo);
  row.name = name;
  row.printed = printed;
  row.source = source;
  row.at = static_cast<std::uint16_t>(from.at);
  row.source_hi = static_cast<std::uint8_t>(from.hi);
  row.source_lo = static_cast<std::uint8_t>(from.lo);
  return row;
}

constexpr CsrRow bytes(unsigned offset, unsigned size, std::string_view name, CsrSource source,
                       unsigned at) {
  CsrRow row{};
  row.offset = static_cast<std::uint16_t>(offset);
  row.size = static_cast<std::uint16_t>(size);
  row.name = name;
  row.source = source;
  row.at = static_cast<std::uint16_t>(at);
  return row;
}

std::vector<CsrRow> make_table() {
  using namespace spec::connectx;
  using enum CsrSource;
  using adapter = query_adapter_param_block;
  constexpr std::optional<std::uint32_t> kNone;
  constexpr auto kAdapter = query_adapter_out::query_adapter_struct;
  constexpr auto kMkey = query_mkey_out::mkey_context;
  constexpr auto kEq = query_eq_out::eq_context_entry;
  constexpr auto kCq = query_cq_out::cq_context_entry;
  constexpr auto kSq = create_sq_in::sq_context;
  constexpr auto kRq = create_rq_in::rq_context;
  std::vector<CsrRow> rows;
  CsrRow table{};
  const auto add = [&](CsrRow row) {
    row.section = table.section;
    row.title = table.title;
    row.command = table.command;
    rows.push_back(row);
  };
#define TABLE(section_, title_, command_) \
  table.section = section_;               \
  table.title = title_;                   \
  table.command = command_opcode::command_;
#define CAP(offset, hi, lo, name, printed, field) \
  add(number(offset, hi, lo, name, printed, kCapability, place(hca_cap::field)));
#define OUT(offset, hi, lo, name, printed, ...) \
  add(number(offset, hi, lo, name, printed, kOutput, place(__VA_ARGS__)));
#define IN(offset, hi, lo, name, printed, ...) \
  add(number(offset, hi, lo, name, printed, kInput, place(__VA_ARGS__)));
#define TEXT(offset, size, name, source, at) add(bytes(offset, size, name, source, at));
#define kSqWq kSq, sq_context::wq
#define kRqWq kRq, rq_context::wq
#include "rsnic/csr_list.inc"
#undef kSqWq
#undef kRqWq
  return rows;
}

/// Bytes as text if all are printable, else as hexadecimal digits; trailing zeros are cut.
std::string show(std::span<const std::byte> bytes) {
  while (!bytes.empty() && bytes.back() == std::byte{0}) bytes = bytes.first(bytes.size() - 1);
  if (bytes.empty()) return "0h";
  const auto printable = [](std::byte b) { return std::isprint(static_cast<int>(b)) != 0; };
  std::string text;
  if (std::ranges::all_of(bytes, printable)) {
    for (const auto b : bytes) text += static_cast<char>(b);
    return text;
  }
  for (const auto b : bytes) text += fmt::format("{:02X}", static_cast<unsigned>(b));
  return text + "h";
}

std::uint64_t low_bits(std::uint64_t value, unsigned width) {
  return width >= 64 ? value : value & ((std::uint64_t{1} << width) - 1);
}

/// The value of a field in a message, cut to the bits that the table provides.
std::uint64_t read(const CsrRow& row, std::span<const std::byte> message) {
  const auto* at = message.data() + row.at;
  const std::uint64_t word = row.source_hi > 31 ? util::load_be64(at) : util::load_be32(at);
  const auto value = low_bits(word >> row.source_lo, row.source_hi - row.source_lo + 1u);
  return low_bits(value, row.hi - row.lo + 1u);
}

/// MANAGE_PAGES: op_mod 1 is "SW gives pages to HCA".
bool gives_pages(std::span<const std::byte> in) {
  using In = spec::connectx::manage_pages_in;
  return util::View<In>(in).get(In::op_mod) ==
         static_cast<std::uint32_t>(spec::connectx::manage_pages_op_mod::GIVE);
}

void keep(std::span<const std::byte> message, std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  std::ranges::copy(message.first(std::min(message.size(), out.size())), out.begin());
}

}  // namespace

std::string CsrRow::place() const {
  if (size != 0) return fmt::format("{:02X}h {} bytes {}", offset, size, name);
  if (hi == lo) return fmt::format("{:02X}h {} {}", offset, hi, name);
  return fmt::format("{:02X}h {}:{} {}", offset, hi, lo, name);
}

std::span<const CsrRow> csr_table() {
  static const auto rows = make_table();
  return rows;
}

CsrFile::CsrFile() {
  for (const auto& row : csr_table()) {
    if (find(row.command) == nullptr)
      saved_.push_back({.opcode = row.command, .in = {}, .out = {}});
  }
}

void CsrFile::reset() {
  for (auto& saved : saved_) saved.seen = false;
}

const CsrFile::Saved* CsrFile::find(command_opcode opcode) const {
  const auto found = std::ranges::find(saved_, opcode, &Saved::opcode);
  return found == saved_.end() ? nullptr : &*found;
}

void CsrFile::note(command_opcode opcode, std::span<const std::byte> in,
                   std::span<const std::byte> out) {
  const auto found = std::ranges::find(saved_, opcode, &Saved::opcode);
  if (found == saved_.end()) return;
  keep(in, found->in);
  keep(out, found->out);
  found->seen = true;
}

std::optional<std::string> CsrFile::value(const CsrRow& row,
                                          util::View<spec::connectx::hca_cap> general) const {
  if (row.source == CsrSource::kCapability) return fmt::format("{:X}h", read(row, general.bytes()));
  const auto* saved = find(row.command);
  if (saved == nullptr || !saved->seen) return std::nullopt;
  const bool input = row.source == CsrSource::kInput ||
                     (row.source == CsrSource::kPages && gives_pages(saved->in));
  const std::span<const std::byte> message = input ? saved->in : saved->out;
  if (row.size != 0) return show(message.subspan(row.at, row.size));
  return fmt::format("{:X}h", read(row, message));
}

}  // namespace softhca::rsnic
