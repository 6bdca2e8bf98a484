// What is known of the WQEs of a send queue: nearly every one has the control segment of the one
// before it, but for its index, what is to be completed, and its immediate data. What it means need
// not be found out again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "connectx/qp/send_wqe.h"

namespace softhca::connectx {

class SeenSendWqe {
 public:
  void forget() { usual_ = false; }
  /// After decode_send_wqe() has taken `wqe`. Forgets unless it is one basic block, of a connected
  /// service, with one data segment.
  void remember(std::span<const std::byte> wqe, const SendWqeControl& control,
                const SendWqeRules& rules, const rdma::SendRequest& request);
  /// decode_send_wqe() of a WQE like the one that is remembered, with the cookie. False, and only
  /// the vectors of `request` have changed, if there is more to look at. `block`: copied.
  bool decode(std::span<const std::byte, kWqeBasicBlock> block, std::uint16_t expected_index,
              rdma::SendRequest& request) const;

 private:
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  using Remote = spec::connectx::wqe_raddr_segment;
  using Pointer = spec::connectx::data_segment_pointer;
  using Inline = spec::connectx::data_segment_inline;
  using Words = std::array<std::uint64_t, 2>;
  static_assert(sizeof(Words) == Ctrl::kSize);

  /// Zero in the fields of a control segment that differ from WQE to WQE.
  static const Words kSameInAll;
  static Words words_of(std::span<const std::byte> wqe) {
    Words words;
    std::memcpy(words.data(), wqe.data(), sizeof words);
    return {words[0] & kSameInAll[0], words[1] & kSameInAll[1]};
  }

  bool usual_ = false;
  bool has_remote_ = false;
  bool solicited_ = false;
  bool fence_ = false;
  rdma::SendOpcode opcode_ = rdma::SendOpcode::kNop;
  std::uint8_t inline_room_ = 0;  ///< bytes that its units leave for inline data; 0: a pointer
  std::uint8_t log_message_max_ = 0;
  std::uint8_t wqe_opcode_ = 0;
  Words words_{};  ///< of the control segment, zero where WQEs differ
};

[[gnu::always_inline]] inline bool SeenSendWqe::decode(
    std::span<const std::byte, kWqeBasicBlock> block, std::uint16_t expected_index,
    rdma::SendRequest& request) const {
  const util::View<Ctrl> control(block);
  const auto words = words_of(block);
  if (!usual_ || ((words[0] ^ words_[0]) | (words[1] ^ words_[1])) != 0 ||
      control.get(Ctrl::wqe_index) != expected_index) {
    return false;
  }
  const std::byte* at = block.data() + Ctrl::kSize;
  if (has_remote_) {
    const util::View<Remote> remote({at, Remote::kSize});
    request.remote_address = remote.get(Remote::raddr);
    request.rkey = rdma::MKey(remote.get(Remote::rkey));
    at += Remote::kSize;
  }
  const util::View<Pointer> data({at, Pointer::kSize});
  if ((data.get(Pointer::inline_) != 0) != (inline_room_ != 0)) return false;
  if (inline_room_ != 0) {
    const std::size_t length = util::View<Inline>({at, Inline::kSize}).get(Inline::byte_count);
    // Neither more than there is (the difference wraps), nor so little that a unit is left for
    // another segment.
    if (inline_room_ - length >= kWqeUnit || length == 0) return false;
    at += Inline::kSize;
    request.inline_data.assign({at, length});
    request.is_inline = true;
  } else {
    const auto length = data.get(Pointer::byte_count);
    if (length == 0 || length > std::uint64_t{1} << log_message_max_) return false;
    request.sges.push_back(
        {data.get(Pointer::local_address), length, rdma::MKey(data.get(Pointer::l_key))});
  }
  request.opcode = opcode_;
  const auto ce = static_cast<spec::connectx::wqe_completion>(control.get(Ctrl::ce));
  const bool event = ce == spec::connectx::wqe_completion::CQE_AND_EQE;
  request.signaled = event || ce == spec::connectx::wqe_completion::CQE;
  request.solicited = solicited_;
  request.fence = fence_;
  request.immediate = control.get(Ctrl::imm);
  request.cookie =
      SendCookie{.index = expected_index, .opcode = wqe_opcode_, .event = event}.pack();
  return true;
}

}  // namespace softhca::connectx
