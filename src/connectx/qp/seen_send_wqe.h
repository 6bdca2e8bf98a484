// What is known of the WQEs of a send queue: nearly every one has the control segment of the one
// before it, but for its index, what is to be completed, and its immediate data, and a datagram's
// the same address vector. What these mean need not be found out again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "connectx/qp/send_wqe.h"
#include "spec/connectx/wqe.h"

namespace softhca::connectx {

/// The control segment that a WQE had, and its one data segment.
class SeenControl {
 protected:
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  using Pointer = spec::connectx::data_segment_pointer;
  using Inline = spec::connectx::data_segment_inline;
  using Words = std::array<std::uint64_t, 2>;
  static_assert(sizeof(Words) == Ctrl::kSize);
  static_assert(Pointer::kSize == kWqeUnit);

  /// Of `wqe`, which decode_send_wqe() has taken, and whose data segments begin at `data`. False,
  /// and nothing is kept, unless they are one.
  bool remember(std::span<const std::byte> wqe, std::size_t data, const SendWqeControl& control,
                const SendWqeRules& rules, const rdma::SendRequest& request);
  /// Whether a WQE that begins with `wqe` has that control segment.
  bool matches(std::span<const std::byte> wqe, std::uint16_t expected_index) const {
    const auto words = words_of(wqe);
    return ((words[0] ^ words_[0]) | (words[1] ^ words_[1])) == 0 &&
           util::View<Ctrl>(wqe).get(Ctrl::wqe_index) == expected_index;
  }
  /// The data segment at `segment`, a copy, whose inline data lie at `inline_data`. False if it is
  /// of another kind, too long or not alone.
  bool decode_data(const std::byte* segment, const std::byte* inline_data,
                   rdma::SendRequest& request) const;
  /// What the control segment says, and the cookie. @pre matches()
  void decode_control(std::span<const std::byte> wqe, std::uint16_t index,
                      rdma::SendRequest& request) const;

 private:
  /// Zero in the fields of a control segment that differ from WQE to WQE.
  static const Words kSameInAll;
  static Words words_of(std::span<const std::byte> wqe) {
    Words words;
    std::memcpy(words.data(), wqe.data(), sizeof words);
    return {words[0] & kSameInAll[0], words[1] & kSameInAll[1]};
  }

  bool solicited_ = false;
  bool fence_ = false;
  rdma::SendOpcode opcode_ = rdma::SendOpcode::kNop;
  std::uint8_t inline_room_ = 0;  ///< bytes that its units leave for inline data; 0: a pointer
  std::uint8_t log_message_max_ = 0;
  std::uint8_t wqe_opcode_ = 0;
  Words words_{};  ///< of the control segment, zero where WQEs differ
};

/// Of a connected service.
class SeenSendWqe : SeenControl {
 public:
  void forget() { usual_ = false; }
  bool is_known() const { return usual_; }
  /// After decode_send_wqe() has taken `wqe`. Forgets unless it is one basic block, of a connected
  /// service, with one data segment.
  void remember(std::span<const std::byte> wqe, const SendWqeControl& control,
                const SendWqeRules& rules, const rdma::SendRequest& request);
  /// decode_send_wqe() of a WQE like the one that is remembered, with the cookie. False, and only
  /// the vectors of `request` have changed, if there is more to look at. `block`: copied.
  /// @pre is_known()
  bool decode(std::span<const std::byte, kWqeBasicBlock> block, std::uint16_t expected_index,
              rdma::SendRequest& request) const;

 private:
  using Remote = spec::connectx::wqe_raddr_segment;

  bool usual_ = false;
  bool has_remote_ = false;
};

/// Of datagrams.
class SeenDatagramWqe : SeenControl {
 public:
  void forget() { size_ = 0; }
  /// Bytes of the WQE that is known; 0: none is.
  std::uint32_t size() const { return size_; }
  std::uint32_t basic_blocks() const { return (size_ + kWqeBasicBlock - 1) / kWqeBasicBlock; }
  /// After decode_send_wqe() has taken `wqe`. Forgets unless it is a datagram with one data
  /// segment. Gives its destination the next of `numbers`, if that is another than the one before.
  void remember(std::span<const std::byte> wqe, const SendWqeControl& control,
                const SendWqeRules& rules, rdma::SendRequest& request, std::uint64_t& numbers);
  /// As SeenSendWqe::decode(). `wqe`: of size() bytes, where software may change them meanwhile.
  /// @pre size() != 0
  bool decode(const std::byte* wqe, std::uint16_t expected_index, rdma::SendRequest& request) const;

 private:
  using Av = spec::connectx::wqe_datagram_segment;
  static constexpr std::size_t kData = Ctrl::kSize + Av::kSize;
  using AvWords = std::array<std::uint64_t, Av::kSize / sizeof(std::uint64_t)>;
  static_assert(sizeof(AvWords) == Av::kSize);
  static AvWords av_of(std::span<const std::byte> wqe) {
    AvWords words;
    std::memcpy(words.data(), wqe.data() + Ctrl::kSize, sizeof words);
    return words;
  }
  bool same_av(const AvWords& av) const {
    std::uint64_t differs = 0;
    for (std::size_t i = 0; i != av.size(); ++i) differs |= av[i] ^ av_[i];
    return differs == 0;
  }

  std::uint32_t size_ = 0;
  AvWords av_{};
  rdma::UdDestination to_;  ///< what these mean
};

[[gnu::always_inline]] inline bool SeenControl::decode_data(const std::byte* segment,
                                                            const std::byte* inline_data,
                                                            rdma::SendRequest& request) const {
  const util::View<Pointer> data({segment, Pointer::kSize});
  if ((data.get(Pointer::inline_) != 0) != (inline_room_ != 0)) return false;
  if (inline_room_ != 0) {
    const std::size_t length = util::View<Inline>({segment, Inline::kSize}).get(Inline::byte_count);
    // Neither more than there is (the difference wraps), nor so little that a unit is left for
    // another segment.
    if (inline_room_ - length >= kWqeUnit || length == 0) return false;
    request.inline_data.assign({inline_data, length});
    request.is_inline = true;
  } else {
    const auto length = data.get(Pointer::byte_count);
    if (length == 0 || length > std::uint64_t{1} << log_message_max_) return false;
    request.sges.push_back(
        {data.get(Pointer::local_address), length, rdma::MKey(data.get(Pointer::l_key))});
  }
  return true;
}

[[gnu::always_inline]] inline void SeenControl::decode_control(std::span<const std::byte> wqe,
                                                               std::uint16_t index,
                                                               rdma::SendRequest& request) const {
  const util::View<Ctrl> control(wqe);
  request.opcode = opcode_;
  const auto ce = static_cast<spec::connectx::wqe_completion>(control.get(Ctrl::ce));
  const bool event = ce == spec::connectx::wqe_completion::CQE_AND_EQE;
  request.signaled = event || ce == spec::connectx::wqe_completion::CQE;
  request.solicited = solicited_;
  request.fence = fence_;
  request.immediate = control.get(Ctrl::imm);
  request.cookie = SendCookie{.index = index, .opcode = wqe_opcode_, .event = event}.pack();
}

[[gnu::always_inline]] inline bool SeenSendWqe::decode(
    std::span<const std::byte, kWqeBasicBlock> block, std::uint16_t expected_index,
    rdma::SendRequest& request) const {
  if (!matches(block, expected_index)) return false;
  const std::byte* at = block.data() + Ctrl::kSize;
  if (has_remote_) {
    const util::View<Remote> remote({at, Remote::kSize});
    request.remote_address = remote.get(Remote::raddr);
    request.rkey = rdma::MKey(remote.get(Remote::rkey));
    at += Remote::kSize;
  }
  if (!decode_data(at, at + Inline::kSize, request)) return false;
  decode_control(block, expected_index, request);
  return true;
}

[[gnu::always_inline]] inline bool SeenDatagramWqe::decode(const std::byte* wqe,
                                                           std::uint16_t expected_index,
                                                           rdma::SendRequest& request) const {
  std::array<std::byte, kData + kWqeUnit> begin;
  std::memcpy(begin.data(), wqe, begin.size());
  if (!matches(begin, expected_index) || !same_av(av_of(begin))) return false;
  if (!decode_data(begin.data() + kData, wqe + kData + Inline::kSize, request)) return false;
  decode_control(begin, expected_index, request);
  // The entry often had it before.
  if (request.ud.number != to_.number) request.ud = to_;
  return true;
}

}  // namespace softhca::connectx
