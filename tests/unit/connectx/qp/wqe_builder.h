// Send WQEs, built segment by segment as a driver writes them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "spec/connectx/mkey.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/wqe.h"
#include "util/endian.h"
#include "util/field.h"
#include "wire/gid.h"
#include "wire/mac_address.h"

namespace softhca::connectx::test {

class WqeBuilder {
 public:
  using Opcode = spec::connectx::wqe_opcode;

  WqeBuilder(Opcode opcode, std::uint16_t index, std::uint32_t qpn) {
    using Ctrl = spec::connectx::wqe_ctrl_segment;
    auto ctrl = add<Ctrl>();
    ctrl.set(Ctrl::opcode, static_cast<std::uint32_t>(opcode));
    ctrl.set(Ctrl::wqe_index, index);
    ctrl.set(Ctrl::sq_number, qpn);
    ctrl.set(Ctrl::ce, static_cast<std::uint32_t>(spec::connectx::wqe_completion::CQE));
  }

  template <class Field>
  WqeBuilder& control(Field field, std::uint32_t value) {
    using Ctrl = spec::connectx::wqe_ctrl_segment;
    util::MutableView<Ctrl>(bytes_).set(field, value);
    return *this;
  }
  WqeBuilder& unsignaled() { return control(spec::connectx::wqe_ctrl_segment::ce, 0); }
  WqeBuilder& completes(spec::connectx::wqe_completion ce) {
    return control(spec::connectx::wqe_ctrl_segment::ce, static_cast<std::uint32_t>(ce));
  }
  WqeBuilder& immediate(std::uint32_t value) {
    return control(spec::connectx::wqe_ctrl_segment::imm, value);
  }
  /// Replaces the true size in DS.
  WqeBuilder& units(std::uint32_t units) {
    forced_units_ = units;
    return *this;
  }
  WqeBuilder& xrc(std::uint32_t srqn) {
    using Xrc = spec::connectx::wqe_xrc_segment;
    add<Xrc>().set(Xrc::xrc_srqn, srqn);
    return *this;
  }
  WqeBuilder& remote(std::uint64_t address, std::uint32_t rkey) {
    using Raddr = spec::connectx::wqe_raddr_segment;
    auto segment = add<Raddr>();
    segment.set(Raddr::raddr, address);
    segment.set(Raddr::rkey, rkey);
    return *this;
  }
  WqeBuilder& atomic(std::uint64_t swap_add, std::uint64_t compare) {
    using Atomic = spec::connectx::wqe_atomic_segment;
    auto segment = add<Atomic>();
    segment.set(Atomic::swap_add, swap_add);
    segment.set(Atomic::compare, compare);
    return *this;
  }
  /// The operands of a masked atomic. CS: swap, compare, and their masks. FA: the addend, and a
  /// mask of each field's highest bit.
  WqeBuilder& masked(unsigned size, const std::vector<std::uint64_t>& operands) {
    using Ctrl = spec::connectx::wqe_ctrl_segment;
    using Opmod = spec::connectx::extended_atomic_opmod;
    control(Ctrl::opmod, static_cast<std::uint32_t>(size == 4 ? Opmod::BYTES_4 : Opmod::BYTES_8));
    const auto start = bytes_.size();
    bytes_.resize(start + (size * operands.size() + 15) / 16 * 16);
    auto* at = bytes_.data() + start;
    for (const auto operand : operands) {
      if (size == 4) {
        util::store_be32(at, static_cast<std::uint32_t>(operand));
      } else {
        util::store_be64(at, operand);
      }
      at += size;
    }
    return *this;
  }
  WqeBuilder& datagram(std::uint32_t qpn, std::uint32_t qkey, const wire::MacAddress& mac,
                       const wire::Gid& gid, std::uint8_t gid_index, bool extended = true,
                       std::uint8_t service_level = 0) {
    using Av = spec::connectx::wqe_datagram_segment;
    auto segment = add<Av>();
    segment.set(Av::destination_qp_dct, qpn);
    segment.set(Av::qkey, qkey);
    segment.set(Av::ext, extended ? 1 : 0);
    segment.set(Av::grh, 1);
    segment.set(Av::sl_eth_prio, service_level);
    segment.set(Av::src_addr_index, gid_index);
    segment.set(Av::hop_limit, 33);
    segment.set(Av::tclass, 0x48);
    segment.set(Av::flow_label, 0xABCDE);
    segment.set(Av::rlid_udp_sport, 0xC123);
    std::ranges::copy(mac.bytes, segment.sub(Av::rmac).begin());
    std::ranges::copy(gid.bytes, segment.sub(Av::rgid_rip).begin());
    return *this;
  }
  /// The address vector of a DCI.
  WqeBuilder& dc(std::uint32_t dctn, std::uint64_t key, const wire::MacAddress& mac,
                 const wire::Gid& gid, std::uint8_t gid_index) {
    using Key = spec::connectx::wqe_dc_key;
    const std::size_t start = bytes_.size();
    datagram(dctn, 0, mac, gid, gid_index);
    util::MutableView<Key>(std::span(bytes_).subspan(start)).set(Key::dc_key, key);
    return *this;
  }
  WqeBuilder& data(std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
    using Data = spec::connectx::data_segment_pointer;
    auto segment = add<Data>();
    segment.set(Data::byte_count, length);
    segment.set(Data::l_key, lkey);
    segment.set(Data::local_address, address);
    return *this;
  }
  /// `claimed`: the length in the segment, if it differs from the true one.
  WqeBuilder& inline_data(std::string_view text, int claimed = -1) {
    using Inline = spec::connectx::data_segment_inline;
    const std::size_t start = bytes_.size();
    bytes_.resize(start + (Inline::kSize + text.size() + 15) / 16 * 16);
    const util::MutableView<Inline> segment{std::span(bytes_).subspan(start)};
    segment.set(Inline::inline_, 1);
    segment.set(Inline::byte_count,
                claimed < 0 ? static_cast<std::uint32_t>(text.size()) : std::uint32_t(claimed));
    std::ranges::copy(std::as_bytes(std::span<const char>(text)),
                      bytes_.begin() + start + Inline::kSize);
    return *this;
  }

  /// The segments after the control segment of a UMR; `fill(control, mask, context)` sets their
  /// fields.
  template <class Fill>
  WqeBuilder& umr(Fill&& fill) {
    using Control = spec::connectx::wqe_umr_ctrl_segment;
    using Context = spec::connectx::mkey_context;
    const std::size_t start = bytes_.size();
    bytes_.resize(start + Control::kSize + Context::kSize);
    const auto body = std::span(bytes_).subspan(start);
    const util::MutableView<Control> control(body);
    fill(control, control.sub(Control::mkey_ctx_bit_mask),
         util::MutableView<Context>(body.subspan(Control::kSize)));
    return *this;
  }
  WqeBuilder& klm(std::uint32_t byte_count, std::uint32_t mkey, std::uint64_t address) {
    using Klm = spec::connectx::klm_entry;
    auto entry = add<Klm>();
    entry.set(Klm::byte_count, byte_count);
    entry.set(Klm::mkey, mkey);
    entry.set(Klm::address, address);
    return *this;
  }
  /// The BSF after the list of a UMR; `fill(bsf)` sets its fields.
  template <class Fill>
  WqeBuilder& bsf(Fill&& fill) {
    fill(add<spec::connectx::block_signature_format>());
    return *this;
  }
  WqeBuilder& set_psv(std::uint32_t psv, std::uint32_t transient_sig, std::uint32_t ref_tag) {
    using Psv = spec::connectx::wqe_set_psv_segment;
    auto segment = add<Psv>();
    segment.set(Psv::psv_num, psv);
    segment.set(Psv::transient_sig, transient_sig);
    segment.set(Psv::ref_tag, ref_tag);
    return *this;
  }
  WqeBuilder& octwords_of_zero(std::size_t count) {
    bytes_.resize(bytes_.size() + 16 * count);
    return *this;
  }
  /// Two page addresses with their rights.
  WqeBuilder& mtts(std::uint64_t first, std::uint64_t second) {
    const std::size_t start = bytes_.size();
    bytes_.resize(start + 16);
    util::store_be64(bytes_.data() + start, first);
    util::store_be64(bytes_.data() + start + 8, second);
    return *this;
  }

  /// The WQE with its size in the control segment.
  std::vector<std::byte> bytes() const {
    using Ctrl = spec::connectx::wqe_ctrl_segment;
    auto copy = bytes_;
    util::MutableView<Ctrl>(copy).set(
        Ctrl::ds, forced_units_ ? *forced_units_ : static_cast<std::uint32_t>(copy.size() / 16));
    return copy;
  }

 private:
  template <class Segment>
  util::MutableView<Segment> add() {
    const std::size_t start = bytes_.size();
    bytes_.resize(start + Segment::kSize);
    return util::MutableView<Segment>(std::span(bytes_).subspan(start));
  }

  std::vector<std::byte> bytes_;
  std::optional<std::uint32_t> forced_units_;
};

}  // namespace softhca::connectx::test
