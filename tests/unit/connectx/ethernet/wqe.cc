#include "connectx/ethernet/wqe.h"

#include <algorithm>

#include "spec/connectx/wqe.h"
#include "util/endian.h"
#include "util/field.h"

namespace softhca::connectx::test {

using namespace spec::connectx;

Wqe::Wqe(wqe_opcode opcode, std::uint32_t sqn, std::uint16_t index)
    : bytes_(wqe_ctrl_segment::kSize) {
  const util::MutableView<wqe_ctrl_segment> control(bytes_);
  control.set(wqe_ctrl_segment::opcode, static_cast<std::uint8_t>(opcode));
  control.set(wqe_ctrl_segment::wqe_index, index);
  control.set(wqe_ctrl_segment::sq_number, sqn);
  control.set(wqe_ctrl_segment::ce, static_cast<std::uint8_t>(wqe_completion::CQE));
}

Wqe& Wqe::eth(std::span<const std::byte> header, bool checksums, std::uint16_t mss) {
  const auto start = bytes_.size();
  const auto size = std::max<std::size_t>(wqe_eth_segment::kSize, 14 + header.size());
  bytes_.resize(start + (size + 15) / 16 * 16);
  const auto rest = std::span(bytes_).subspan(start);
  const util::MutableView<wqe_eth_segment> eth(rest);
  eth.set(wqe_eth_segment::l3cs, checksums);
  eth.set(wqe_eth_segment::l4cs, checksums);
  eth.set(wqe_eth_segment::mss, mss);
  eth.set(wqe_eth_segment::inline_header_size, static_cast<std::uint32_t>(header.size()));
  std::ranges::copy(header, bytes_.begin() + static_cast<std::ptrdiff_t>(start) + 14);
  return *this;
}

Wqe& Wqe::insert_vlan(std::uint16_t tci) {
  const auto rest = std::span(bytes_).subspan(28);
  const util::MutableView<wqe_eth_insert_vlan> insert(rest);
  insert.set(wqe_eth_insert_vlan::insert_vlan, 1);
  insert.set(wqe_eth_insert_vlan::vlan_tci, tci);
  return *this;
}

Wqe& Wqe::pointer(std::uint32_t key, std::uint64_t address, std::uint32_t size) {
  util::Struct<data_segment_pointer> segment;
  segment.set(data_segment_pointer::byte_count, size);
  segment.set(data_segment_pointer::l_key, key);
  segment.set(data_segment_pointer::local_address, address);
  bytes_.insert(bytes_.end(), segment.bytes().begin(), segment.bytes().end());
  return *this;
}

Wqe& Wqe::inline_data(std::span<const std::byte> data) {
  const auto start = bytes_.size();
  bytes_.resize(start + (4 + data.size() + 15) / 16 * 16);
  util::store_be32(bytes_.data() + start, 0x80000000u | static_cast<std::uint32_t>(data.size()));
  std::ranges::copy(data, bytes_.begin() + static_cast<std::ptrdiff_t>(start) + 4);
  return *this;
}

Wqe& Wqe::unsignaled() { return completes(wqe_completion::ON_ERROR); }

Wqe& Wqe::completes(wqe_completion ce) {
  util::MutableView<wqe_ctrl_segment>(bytes_).set(wqe_ctrl_segment::ce,
                                                  static_cast<std::uint32_t>(ce));
  return *this;
}

Bytes Wqe::finish() {
  util::MutableView<wqe_ctrl_segment>(bytes_).set(wqe_ctrl_segment::ds,
                                                  static_cast<std::uint32_t>(bytes_.size() / 16));
  return bytes_;
}

}  // namespace softhca::connectx::test
