// A message of a communication manager: a management datagram with one of the structures of
// cm.layout behind its header.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "rdma_cm/management_port.h"
#include "spec/infiniband/cm.h"

namespace softhca::rdma_cm {

namespace spec = softhca::spec::infiniband;
using spec::cm_attribute;

inline constexpr std::size_t kCmaHeader = spec::cma_header::kSize;
inline constexpr std::uint8_t kHopLimit = 64;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;
inline constexpr std::uint8_t kRate100Gb = 16;  ///< ib_rate
inline constexpr auto kConsumerReject =
    static_cast<std::uint16_t>(spec::cm_reject_reason::CONSUMER);
/// Status of a SIDR_REP (IBTA 12.11.2).
inline constexpr std::uint8_t kSidrNoService = 1, kSidrRejected = 2;
inline constexpr std::uint8_t kAckTimeout = 17;  ///< 4.096 us * 2^17

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

inline std::uint64_t service_of(std::uint16_t port_space, std::uint16_t port) {
  return std::uint64_t{port_space} << 16 | port;
}

/// A command of the program; what is missing at its end is 0.
template <class T>
T take(std::span<const std::byte> in) {
  T value{};
  std::memcpy(&value, in.data(), std::min(sizeof value, in.size()));
  return value;
}

}  // namespace softhca::rdma_cm
