#include "hub/cm_message.h"

#include "spec/infiniband/constants.h"
#include "wire/bth.h"
#include "wire/deth.h"

namespace softhca::hub {
namespace {

namespace ib = spec::infiniband;

using Header = ib::mad_header;
using Attribute = ib::cm_attribute;

// All structures of cm.layout begin with the sender's number. In those with two numbers, the
// receiver's follows.
using CommIds = ib::cm_rtu;

constexpr std::size_t kMadSize = 256;
constexpr std::size_t kMadOffset = wire::BthLayout::kSize + wire::DethLayout::kSize;
// IBTA 13.4.2 and 12.6.
constexpr std::uint32_t kBaseVersion = 1, kManagement = 7, kClassVersion = 2, kSend = 3;

/// The datagram that `packet` has for QP1; empty if it has none.
std::span<const std::byte> datagram_in(std::span<const std::byte> packet) {
  if (packet.size() != CmMessage::kPacketSize) return {};
  const auto bth = wire::Bth::parse(wire::BthView(packet));
  if (bth.opcode != wire::Opcode::UD_SEND_ONLY || bth.tver != 0) return {};
  if (bth.pad_count != 0 || bth.dest_qp != wire::kGsiQpn) return {};
  const auto deth =
      wire::Deth::parse(util::View<wire::DethLayout>(packet.subspan(wire::BthLayout::kSize)));
  if (deth.qkey.value() != ib::kGsiQkey) return {};
  return packet.subspan(kMadOffset, kMadSize);
}

bool is_cm(util::View<Header> header) {
  return header.get(Header::base_version) == kBaseVersion &&
         header.get(Header::mgmt_class) == kManagement &&
         header.get(Header::class_version) == kClassVersion && header.get(Header::method) == kSend;
}

}  // namespace

const std::size_t CmMessage::kPacketSize = kMadOffset + kMadSize + ib::kIcrcBytes;

std::optional<CmMessage> CmMessage::parse(std::span<const std::byte> packet) {
  const auto mad = datagram_in(packet);
  if (mad.empty() || !is_cm(util::View<Header>(mad))) return std::nullopt;
  const auto body = mad.subspan(Header::kSize);
  const util::View<CommIds> numbers(body);
  CmMessage message;
  message.attribute = static_cast<Attribute>(util::View<Header>(mad).get(Header::attribute_id));
  message.local = numbers.get(CommIds::local_comm_id);
  switch (message.attribute) {
    case Attribute::REQ:
      message.service = util::View<ib::cm_req>(body).get(ib::cm_req::service_id);
      return message;
    case Attribute::SIDR_REQ:
      message.service = util::View<ib::cm_sidr_req>(body).get(ib::cm_sidr_req::service_id);
      return message;
    case Attribute::SIDR_REP:  // it repeats the number of the request
      message.remote = util::View<ib::cm_sidr_rep>(body).get(ib::cm_sidr_rep::request_id);
      return message;
    case Attribute::MRA:
    case Attribute::REJ:
    case Attribute::REP:
    case Attribute::RTU:
    case Attribute::DREQ:
    case Attribute::DREP:
      message.remote = numbers.get(CommIds::remote_comm_id);
      return message;
  }
  return std::nullopt;
}

}  // namespace softhca::hub
