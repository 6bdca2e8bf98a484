// A communication manager's message: a management datagram whose header is followed by one of the
// structures of cm.layout.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>

#include "cm/mad.h"
#include "spec/infiniband/cm.h"
#include "spec/infiniband/constants.h"
#include "util/clock.h"

namespace softhca::cm {

namespace spec = softhca::spec::infiniband;
using spec::cm_attribute;
using spec::kDefaultPkey;

inline constexpr std::uint8_t kHopLimit = 64;
inline constexpr std::uint8_t kRate100Gb = 16;  ///< ib_rate
/// Req::transport of connections that are not RC (IBTA 12.7.33), and Req::extended_transport of XRC
/// (IBTA Annex A14).
inline constexpr std::uint32_t kTransportUc = 1, kTransportExtended = 3, kExtendedXrc = 1;
/// Status of a SIDR_REP (IBTA 12.11.2).
inline constexpr std::uint8_t kSidrNoService = 1, kSidrRejected = 2;

constexpr std::uint16_t number_of(spec::cm_reject_reason reason) {
  return static_cast<std::uint16_t>(reason);
}

/// 4.096 us * 2^exponent, which Linux rounds to 2^(exponent - 8) ms.
constexpr util::Duration timeout_of(unsigned exponent) {
  constexpr unsigned kMillisecond = 8, kMost = 31;
  const auto shift = std::max(std::min(exponent, kMost), kMillisecond) - kMillisecond;
  return std::chrono::milliseconds(std::uint64_t{1} << shift);
}

// Linux's values (cma.c): response time, retransmissions, and packet lifetime on RoCE.
inline constexpr std::uint8_t kResponseTimeout = 20, kRepeats = 15, kPacketLifetime = 16;
/// local_ca_ack_delay of the device.
inline constexpr std::uint8_t kAckDelay = 16;

/// The Local ACK Timeout of a QP whose peer takes `delay` to acknowledge: twice the packet lifetime
/// plus the delay (IBTA 12.7.34). Both are powers of two. The result is the larger one, or its
/// double if they are close.
constexpr std::uint8_t ack_timeout_of(unsigned delay, unsigned packet_lifetime) {
  const auto way = packet_lifetime + 1;
  const auto sum =
      way >= delay ? way + (delay >= way - 1 ? 1 : 0) : delay + (way >= delay - 1 ? 1 : 0);
  return static_cast<std::uint8_t>(std::min(sum, 31u));
}

/// A message with its header.
template <class Layout>
class Message {
  using Header = spec::mad_header;

 public:
  Message(cm_attribute attribute, std::uint64_t transaction) {
    util::MutableView<Header> head(std::span<std::byte>(mad_).first(Header::kSize));
    head.set(Header::base_version, 1);
    head.set(Header::mgmt_class, 7);
    head.set(Header::class_version, 2);
    head.set(Header::method, 3);
    head.set(Header::transaction_id, transaction);
    head.set(Header::attribute_id, static_cast<std::uint32_t>(attribute));
  }
  util::MutableView<Layout> body() {
    return util::MutableView<Layout>(
        std::span<std::byte>(mad_).subspan(Header::kSize, Layout::kSize));
  }
  void set_modifier(std::uint32_t modifier) {
    util::MutableView<Header> head(std::span<std::byte>(mad_).first(Header::kSize));
    head.set(Header::attribute_modifier, modifier);
  }
  const Mad& mad() const { return mad_; }

 private:
  Mad mad_{};
};

template <class Layout>
util::View<Layout> body_of(const Mad& mad) {
  return util::View<Layout>(
      std::span<const std::byte>(mad).subspan(spec::mad_header::kSize, Layout::kSize));
}

inline std::uint64_t transaction_of(const Mad& mad) {
  using Header = spec::mad_header;
  return util::View<Header>(std::span<const std::byte>(mad).first(Header::kSize))
      .get(Header::transaction_id);
}

inline std::uint32_t modifier_of(const Mad& mad) {
  using Header = spec::mad_header;
  return util::View<Header>(std::span<const std::byte>(mad).first(Header::kSize))
      .get(Header::attribute_modifier);
}

}  // namespace softhca::cm
