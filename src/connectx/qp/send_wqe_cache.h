// Templates of the WQEs of a send queue. Nearly every WQE has the control segment of the previous
// one, except for its index, its completion field and its immediate data. A datagram also has the
// address vector of the previous one. A template caches the decoded segments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "connectx/qp/send_wqe.h"
#include "spec/connectx/wqe.h"
#include "util/same_bytes.h"

namespace softhca::connectx {

/// The control segment of the last WQE, and the kind of its only data segment.
class ControlCache {
 protected:
  using Ctrl = spec::connectx::wqe_ctrl_segment;
  using Pointer = spec::connectx::data_segment_pointer;
  using Inline = spec::connectx::data_segment_inline;
  using Words = std::array<std::uint64_t, 2>;
  static_assert(sizeof(Words) == Ctrl::kSize);
  static_assert(Pointer::kSize == kWqeUnit);

  /// Remembers `wqe`, which decode_send_wqe() has decoded. Its data segments begin at `data`.
  /// Returns false, with nothing remembered, unless there is exactly one.
  bool remember(std::span<const std::byte> wqe, std::size_t data, const SendWqeControl& control,
                const SendWqeRules& rules, const rdma::SendRequest& request);
  /// True if `wqe`, the beginning of a WQE, has the remembered control segment.
  bool matches(std::span<const std::byte> wqe, std::uint16_t expected_index) const {
    const auto words = words_of(wqe);
    return ((words[0] ^ words_[0]) | (words[1] ^ words_[1])) == 0 &&
           util::View<Ctrl>(wqe).get(Ctrl::wqe_index) == expected_index;
  }
  /// Location of the payload.
  struct Data {
    std::uint32_t length;          ///< bytes
    const std::byte* inline_data;  ///< null: the payload is at `address`
    std::uint64_t address;
    rdma::MKey lkey;

    void put(rdma::SendRequest& request) const {
      request.is_inline = inline_data != nullptr;
      if (inline_data != nullptr) {
        request.inline_data.assign({inline_data, length});
      } else {
        request.sges.push_back({address, length, lkey});
      }
    }
  };
  /// Decodes `segment`, a copy of the data segment. Inline data are at `inline_data`. False if the
  /// segment is of the other kind, too long, or not the only one.
  bool find_data(const std::byte* segment, const std::byte* inline_data, Data& data) const;
  /// Decodes the control segment, and sets the cookie. @pre matches()
  template <class Request>
  void decode_control(std::span<const std::byte> wqe, std::uint16_t index, Request& request) const;
  bool fence() const { return fence_; }

 private:
  /// A mask of a control segment. It is zero in the fields that differ from WQE to WQE.
  static const Words kSameInAll;
  static Words words_of(std::span<const std::byte> wqe) {
    Words words;
    std::memcpy(words.data(), wqe.data(), sizeof words);
    return {words[0] & kSameInAll[0], words[1] & kSameInAll[1]};
  }

  bool solicited_ = false;
  bool fence_ = false;
  rdma::SendOpcode opcode_ = rdma::SendOpcode::kNop;
  std::uint8_t inline_room_ = 0;  ///< maximum bytes of inline data; 0: a pointer
  std::uint8_t wqe_opcode_ = 0;
  Words words_{};  ///< the control segment, with kSameInAll applied
};

/// Template for WQEs of a connected service.
class SendWqeCache : ControlCache {
 public:
  void forget() { is_set_ = false; }
  bool is_set() const { return is_set_; }
  /// Call it after decode_send_wqe() has decoded `wqe`. If `wqe` is one basic block of a connected
  /// service with one data segment, remembers it, else forgets the template.
  void remember(std::span<const std::byte> wqe, const SendWqeControl& control,
                const SendWqeRules& rules, const rdma::SendRequest& request);
  /// Fast path of decode_send_wqe() for a WQE that matches the template. It also sets the cookie.
  /// If the WQE does not match, returns false and changes at most the vectors of `request`.
  /// `block`: a copy of the WQE.
  /// @pre is_set()
  bool decode_fast(std::span<const std::byte, kWqeBasicBlock> block, std::uint16_t expected_index,
                   rdma::SendRequest& request) const;

 private:
  using Remote = spec::connectx::wqe_raddr_segment;

  bool is_set_ = false;
  bool has_remote_ = false;
};

/// Template for datagrams.
class DatagramWqeCache : ControlCache {
 public:
  void forget() {
    size_ = 0;
    to_.number = 0;
  }
  /// Bytes of the remembered WQE; 0: none.
  std::uint32_t size() const { return size_; }
  std::uint32_t basic_blocks() const { return blocks_; }
  /// UdDestination::number of the template; 0: there is none.
  std::uint64_t destination() const { return to_.number; }
  /// Call it after decode_send_wqe() has decoded `wqe`. If `wqe` is a datagram with one data
  /// segment, remembers it, else forgets the template. A destination that differs from the last one
  /// gets the next of `numbers`.
  void remember(std::span<const std::byte> wqe, const SendWqeControl& control,
                const SendWqeRules& rules, rdma::SendRequest& request, std::uint64_t& numbers);
  /// Fast path of decode_send_wqe(), as SendWqeCache::decode_fast(). `wqe`: size() bytes that
  /// software may change concurrently.
  /// @pre size() != 0
  bool decode_fast(const std::byte* wqe, std::uint16_t expected_index,
                   rdma::SendRequest& request) const;
  /// The same, but inline data stay in `wqe`. Use `datagram` before software can reuse the WQE.
  bool decode_fast(const std::byte* wqe, std::uint16_t expected_index,
                   rdma::ShortDatagram& datagram) const;

 private:
  using Av = spec::connectx::wqe_datagram_segment;
  static constexpr std::size_t kData = Ctrl::kSize + Av::kSize;
  bool same_av(std::span<const std::byte> wqe) const {
    return util::same_bytes<Av::kSize>(wqe.data() + Ctrl::kSize, av_.data());
  }

  using Begin = std::array<std::byte, kData + kWqeUnit>;
  bool find_data(const std::byte* wqe, std::uint16_t expected_index, Begin& begin,
                 Data& data) const {
    std::memcpy(begin.data(), wqe, begin.size());
    return matches(begin, expected_index) && same_av(begin) &&
           ControlCache::find_data(begin.data() + kData, wqe + kData + Inline::kSize, data);
  }

  std::uint32_t size_ = 0;
  std::uint32_t blocks_ = 0;
  std::array<std::byte, Av::kSize> av_{};
  rdma::UdDestination to_;  ///< the destination that av_ stands for
};

[[gnu::always_inline]] inline bool ControlCache::find_data(const std::byte* segment,
                                                           const std::byte* inline_data,
                                                           Data& data) const {
  const util::View<Pointer> pointer({segment, Pointer::kSize});
  if ((pointer.get(Pointer::inline_) != 0) != (inline_room_ != 0)) return false;
  if (inline_room_ != 0) {
    const std::size_t length = util::View<Inline>({segment, Inline::kSize}).get(Inline::byte_count);
    // The data must fit (else the difference wraps) and leave no unit for another segment.
    if (inline_room_ - length >= kWqeUnit || length == 0) return false;
    data = {static_cast<std::uint32_t>(length), inline_data, 0, {}};
  } else {
    const auto length = pointer.get(Pointer::byte_count);
    if (length == 0) return false;
    data = {length, nullptr, pointer.get(Pointer::local_address),
            rdma::MKey(pointer.get(Pointer::l_key))};
  }
  return true;
}

template <class Request>
[[gnu::always_inline]] inline void ControlCache::decode_control(std::span<const std::byte> wqe,
                                                                std::uint16_t index,
                                                                Request& request) const {
  const util::View<Ctrl> control(wqe);
  request.opcode = opcode_;
  const auto completion = SendWqeControl::completion_of(control);
  request.signaled = is_signaled(completion);
  request.solicited = solicited_;
  request.immediate = control.get(Ctrl::imm);
  request.cookie =
      SendCookie{.index = index, .opcode = wqe_opcode_, .completion = completion}.pack();
}

[[gnu::always_inline]] inline bool SendWqeCache::decode_fast(
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
  Data data;
  if (!find_data(at, at + Inline::kSize, data)) return false;
  data.put(request);
  decode_control(block, expected_index, request);
  request.fence = fence();
  return true;
}

[[gnu::always_inline]] inline bool DatagramWqeCache::decode_fast(const std::byte* wqe,
                                                                 std::uint16_t expected_index,
                                                                 rdma::SendRequest& request) const {
  Begin begin;
  Data data;
  if (!find_data(wqe, expected_index, begin, data)) return false;
  data.put(request);
  decode_control(begin, expected_index, request);
  request.fence = fence();
  // `request` is reused and often has this destination already.
  if (request.ud.number != to_.number) request.ud = to_;
  return true;
}

[[gnu::always_inline]] inline bool DatagramWqeCache::decode_fast(
    const std::byte* wqe, std::uint16_t expected_index, rdma::ShortDatagram& datagram) const {
  Begin begin;
  Data data;
  if (!find_data(wqe, expected_index, begin, data)) return false;
  datagram.length = data.length;
  datagram.inline_data = data.inline_data;
  datagram.address = data.address;
  datagram.lkey = data.lkey;
  decode_control(begin, expected_index, datagram);
  return true;
}

}  // namespace softhca::connectx
