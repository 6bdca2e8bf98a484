// A model of the other end of an RC connection: the messages posted, the data that has arrived in
// order, and the peer's responses. It judges each packet and each completion of the requester.
//
// It shares only names with src/rdma: it counts PSNs itself, in 64 bits, from the posted messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <set>
#include <span>
#include <vector>

#include "oracle.h"
#include "rdma/work_request.h"
#include "wire/ib_packet.h"

namespace softhca::fuzz {

class HonestPeer {
 public:
  static constexpr std::uint32_t kMtu = 256;
  static constexpr std::uint32_t kSlots = 64;  ///< reused by messages in turn
  static constexpr std::uint32_t kSlotBytes = 2048;
  static constexpr std::uint64_t kFirstPsn = 0xFFFFF0;
  static constexpr std::byte kUsedAgain{0xDD};

  struct Message {
    std::uint32_t id;  ///< its cookie
    rdma::SendOpcode opcode;
    std::uint32_t length;
    bool signaled;
    std::uint64_t first_psn = 0;
    std::uint32_t psns = 0;
    std::uint64_t original = 0;  ///< value before an executed atomic

    std::uint64_t end() const { return first_psn + psns; }
    bool is_read() const { return opcode == rdma::SendOpcode::kRdmaRead; }
    bool is_atomic() const { return opcode == rdma::SendOpcode::kFetchAdd; }
    bool wants_data() const { return is_read() || is_atomic(); }
    std::uint64_t remote() const { return 0x100000 + std::uint64_t{id} * 8; }
  };

  /// `memory`: kSlots of kSlotBytes. If `lies`, the peer claims anything, and the model accepts its
  /// claim.
  HonestPeer(std::span<std::byte> memory, bool lies) : memory_(memory), lies_(lies) {}

  bool lies() const { return lies_; }
  /// The oldest PSN that has not arrived.
  std::uint64_t expected() const { return expected_; }
  std::uint32_t posted() const { return posted_; }
  std::uint32_t completed() const { return completed_; }
  const std::deque<Message>& messages() const { return messages_; }
  std::span<std::byte> slot(std::uint32_t id) const {
    return memory_.subspan(std::size_t{id % kSlots} * kSlotBytes, kSlotBytes);
  }
  static std::byte sent_byte(std::uint32_t id, std::uint64_t offset) {
    return std::byte(id * 167 + offset * 31 + offset / 256 * 7);
  }
  static std::byte remote_byte(std::uint64_t address) {
    return std::byte(address * 13 + address / 256);
  }

  /// The application posts a message. Messages are posted in order.
  const Message& post(rdma::SendOpcode opcode, std::uint32_t length, bool signaled) {
    check_untouched(posted_);
    Message m{.id = posted_, .opcode = opcode, .length = length, .signaled = signaled};
    m.first_psn = next_psn_;
    const bool local = opcode == rdma::SendOpcode::kNop || opcode == rdma::SendOpcode::kLocal;
    m.psns = local ? 0 : m.is_atomic() ? 1 : std::max(1u, (length + kMtu - 1) / kMtu);
    next_psn_ += m.psns;
    for (std::uint32_t i = 0; i != length; ++i) slot(m.id)[i] = sent_byte(m.id, i);
    ++posted_;
    messages_.push_back(m);
    if (messages_.size() > kSlots) messages_.pop_front();
    return messages_.back();
  }
  /// Resets the QP. @pre the fabric holds no packet of it
  void reset() {
    messages_.clear();
    said_.clear();
    completed_ = posted_;
    next_psn_ = expected_ = sent_end_ = claimed_ = kFirstPsn;
    failed_ = false;
    std::ranges::fill(memory_, kUsedAgain);
  }

  // The wire ------------------------------------------------------------------------------------

  /// Sees a packet that the requester sends. `arrives` is false if it is lost.
  void see(const wire::IbPacket& packet, std::span<const std::byte> payload, bool arrives) {
    const auto psn = expand(packet.bth.psn.value());
    auto* m = find(psn);
    if (m == nullptr) return see_forgotten(psn, packet, payload);
    const auto index = psn - m->first_psn;
    sent_end_ = std::max(sent_end_, m->is_read() ? m->end() : psn + 1);
    // After completion returned a message's buffers, nothing of it may be sent.
    check(m->wants_data() || m->id >= completed_);
    if (m->is_read()) {
      check(packet.info().operation == wire::Operation::kRdmaReadRequest && payload.empty());
      check(packet.ext.reth.virtual_address == m->remote() + index * kMtu);
      check(packet.ext.reth.dma_length == m->length - index * kMtu);
    } else if (m->is_atomic()) {
      check(packet.info().operation == wire::Operation::kFetchAdd && payload.empty());
      check(packet.ext.atomic.virtual_address == m->remote());
    } else {
      see_message(*m, index, packet, payload);
    }
    if (!arrives || psn != expected_) return;
    if (m->is_atomic()) m->original = counter_++;
    expected_ += m->is_read() ? m->psns : 1;
  }

  // Answers -------------------------------------------------------------------------------------

  /// Response `psn` acknowledges everything before `end`. `taken`: the QP accepts responses in its
  /// state. A response to a PSN that was never sent acknowledges nothing.
  void claim(std::uint64_t psn, std::uint64_t end, bool taken) {
    check(lies_ || end <= expected_);
    if (taken && (lies_ || psn < sent_end_)) claimed_ = std::max(claimed_, end);
  }
  /// A NAK or RNR NAK of `psn`.
  void refuse(std::uint64_t psn) { said_.insert(psn); }
  /// The bytes of READ response `psn`, which belongs to `m`.
  static std::vector<std::byte> response(const Message& m, std::uint64_t psn) {
    const auto offset = (psn - m.first_psn) * kMtu;
    std::vector<std::byte> data(std::min<std::uint64_t>(kMtu, m.length - offset));
    for (std::size_t i = 0; i != data.size(); ++i) data[i] = remote_byte(m.remote() + offset + i);
    return data;
  }
  Message* find(std::uint64_t psn) {
    for (auto& m : messages_) {
      if (psn >= m.first_psn && psn < m.end()) return &m;
    }
    return nullptr;
  }

  // Completions ---------------------------------------------------------------------------------

  void complete(const rdma::SendCompletion& completion, bool keys_changed) {
    // In order, each once. A skipped message was unsignaled, and has succeeded.
    check(completion.cookie >= completed_ && completion.cookie < posted_);
    for (; completed_ != completion.cookie; ++completed_) {
      const auto& m = at(completed_);
      check(!m.signaled && !failed_);
      succeed(m);
    }
    const auto& m = at(completion.cookie);
    if (completion.status == rdma::WorkStatus::kSuccess) {
      check(m.signaled && !failed_);
      succeed(m);
    } else if (completion.status != rdma::WorkStatus::kFlushed) {
      check(!failed_);
      check_blame(m, completion.status, keys_changed);
    }
    failed_ = failed_ || completion.status != rdma::WorkStatus::kSuccess;
    std::ranges::fill(slot(m.id), kUsedAgain);
    ++completed_;
  }

 private:
  std::uint64_t expand(std::uint32_t psn) const {
    const auto ahead = (psn - expected_) & wire::Psn::kMask;
    return ahead < 1u << 23 ? expected_ + ahead : expected_ + ahead - (1u << 24);
  }
  const Message& at(std::uint32_t id) const { return messages_.at(id - messages_.front().id); }
  void check_untouched(std::uint32_t id) const {
    check(std::ranges::all_of(slot(id), [](std::byte b) { return b == kUsedAgain; }));
  }
  /// A packet may wait on the wire until its message was flushed and forgotten, unless it refers to
  /// the message's buffer.
  void see_forgotten(std::uint64_t psn, const wire::IbPacket& packet,
                     std::span<const std::byte> payload) const {
    const auto operation = packet.info().operation;
    check(!messages_.empty() && psn < messages_.front().first_psn && payload.empty());
    check(operation == wire::Operation::kRdmaReadRequest ||
          operation == wire::Operation::kFetchAdd);
  }
  void see_message(const Message& m, std::uint64_t index, const wire::IbPacket& packet,
                   std::span<const std::byte> payload) const {
    const bool write = m.opcode == rdma::SendOpcode::kRdmaWrite;
    const auto operation = write ? wire::Operation::kRdmaWrite : wire::Operation::kSend;
    const bool last = index + 1 == m.psns;
    check(packet.info().operation == operation && packet.info().last == last &&
          packet.info().first == (index == 0));
    check(payload.size() == (last ? m.length - index * kMtu : kMtu));
    for (std::size_t i = 0; i != payload.size(); ++i) {
      check(payload[i] == sent_byte(m.id, index * kMtu + i));
    }
    if (write && index == 0) check(packet.ext.reth.dma_length == m.length);
  }
  void succeed(const Message& m) const {
    check(m.end() <= (lies_ ? claimed_ : expected_));
    const auto bytes = slot(m.id).first(m.length);
    if (!lies_ && m.is_read()) {
      for (std::uint32_t i = 0; i != m.length; ++i) {
        check(bytes[i] == remote_byte(m.remote() + i));
      }
    }
    if (!lies_ && m.is_atomic()) check(std::memcmp(bytes.data(), &m.original, 8) == 0);
    std::ranges::fill(slot(m.id), kUsedAgain);
  }
  /// Checks that the error belongs to this request and to no other.
  void check_blame(const Message& m, rdma::WorkStatus status, bool keys_changed) const {
    using enum rdma::WorkStatus;
    switch (status) {
      case kRemoteAccess:
      case kRemoteInvalidRequest:
      case kRemoteOperation:
      case kRnrRetryExceeded:
        check(std::ranges::any_of(
            said_, [&](std::uint64_t psn) { return psn >= m.first_psn && psn < m.end(); }));
        break;
      case kTransportRetryExceeded: {
        // An acknowledged request is sent again only if an earlier READ still waits for data.
        const bool waits = std::ranges::any_of(messages_, [&](const Message& other) {
          return other.id >= completed_ && other.id <= m.id && other.wants_data();
        });
        check(lies_ || m.end() > claimed_ || waits);
        break;
      }
      case kBadResponse:
        check(lies_);
        break;
      case kLocalProtection:
        check(keys_changed);
        break;
      default:
        check(false);
    }
  }

  std::span<std::byte> memory_;
  bool lies_;
  std::deque<Message> messages_;  ///< the last kSlots
  std::set<std::uint64_t> said_;  ///< PSNs that were NAKed
  std::uint32_t posted_ = 0;      ///< messages ever posted
  std::uint32_t completed_ = 0;   ///< the next message to complete
  std::uint64_t next_psn_ = kFirstPsn;
  std::uint64_t expected_ = kFirstPsn;
  std::uint64_t sent_end_ = kFirstPsn;  ///< everything before it was sent
  std::uint64_t claimed_ = kFirstPsn;   ///< everything before it was acknowledged by the peer
  std::uint64_t counter_ = 1;           ///< target of all atomics
  bool failed_ = false;
};

}  // namespace softhca::fuzz
