// Fast path of decode_send_wqe() for the most frequent WQEs (JingZhao 3.4): a SEND or RDMA WRITE of
// a connected QP, with few units and one piece of payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "jingzhao/send_wqe.h"

namespace softhca::jingzhao {

namespace detail {

struct ShortForm {
  rdma::SendOpcode opcode{};
  bool exists = false;
  bool has_raddr = false;
};
/// By wqe_opcode.
inline constexpr auto kShortForms = [] {
  using enum spec::jingzhao::wqe_opcode;
  std::array<ShortForm, 32> forms{};
  const auto put = [&](spec::jingzhao::wqe_opcode opcode, rdma::SendOpcode as, bool has_raddr) {
    forms[static_cast<std::size_t>(opcode)] = {as, true, has_raddr};
  };
  put(RDMA_WRITE, rdma::SendOpcode::kRdmaWrite, true);
  put(RDMA_WRITE_IMM, rdma::SendOpcode::kRdmaWriteWithImmediate, true);
  put(SEND, rdma::SendOpcode::kSend, false);
  put(SEND_IMM, rdma::SendOpcode::kSendWithImmediate, false);
  return forms;
}();

}  // namespace detail

class ShortSendWqe {
  using Next = spec::jingzhao::next_unit;
  using Raddr = spec::jingzhao::raddr_unit;
  using Inline = spec::jingzhao::inline_unit;
  using Data = spec::jingzhao::data_unit;
  static constexpr std::uint32_t kUnit = Next::kSize;

 public:
  /// A next unit, a raddr unit, and inline data of up to 28 bytes.
  static constexpr std::uint32_t kUnits = 4;
  static constexpr std::size_t kSize = kUnits * kUnit;

  /// Copies kSize bytes from `wqe`: software may change them at any time.
  explicit ShortSendWqe(const std::byte* wqe) { std::memcpy(bytes_.data(), wqe, kSize); }

  util::View<Next> next() const { return util::View<Next>(bytes_); }
  /// Fast path of decode_send_wqe(). False, with `request` unchanged, if the WQE needs the slow
  /// path.
  bool decode_fast(const SendWqe& what, const SendRules& rules, rdma::SendRequest& request) const;

 private:
  std::array<std::byte, kSize> bytes_;
};

[[gnu::always_inline]] inline bool ShortSendWqe::decode_fast(const SendWqe& what,
                                                             const SendRules& rules,
                                                             rdma::SendRequest& request) const {
  if (what.opcode >= detail::kShortForms.size() || rules.type == rdma::QpType::kUd) return false;
  const auto form = detail::kShortForms[what.opcode];
  // Payload units: without any, the difference wraps.
  const std::uint32_t before = form.has_raddr ? 2 : 1;
  const std::uint32_t units = what.units - before;
  if (!form.exists || what.units > kUnits || units - 1 >= kUnits) return false;
  const std::byte* const payload = bytes_.data() + std::size_t{before} * kUnit;
  const util::View<Inline> piece({payload, Inline::kSize});
  const auto length = piece.get(Inline::length);
  if (length == 0 || length > rules.message_max) return false;
  if (piece.get(Inline::is_inline) != 0) {
    if (length > units * kUnit - Inline::data_offset) return false;
    request.is_inline = true;
    request.inline_data.assign({payload + Inline::data_offset, length});
  } else {
    if (units != 1) return false;
    const util::View<Data> data({payload, Data::kSize});
    request.sges.push_back({data.get(Data::addr), length, rdma::MKey(data.get(Data::lkey))});
  }
  if (form.has_raddr) {
    const util::View<Raddr> raddr({bytes_.data() + kUnit, Raddr::kSize});
    request.remote_address = raddr.get(Raddr::raddr);
    request.rkey = rdma::MKey(raddr.get(Raddr::rkey));
  }
  request.opcode = form.opcode;
  request.signaled = true;   // as in decode_send_wqe()
  request.solicited = true;  // as in decode_send_wqe()
  request.fence = what.fence;
  request.stale = what.stale;
  request.immediate = next().get(Next::imm_data);
  return true;
}

}  // namespace softhca::jingzhao
