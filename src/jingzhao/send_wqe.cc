#include "jingzhao/send_wqe.h"

#include <optional>

#include "jingzhao/addresses.h"

namespace softhca::jingzhao {

using rdma::QpType;
using rdma::SendOpcode;
using spec::jingzhao::atomic_unit;
using spec::jingzhao::data_unit;
using spec::jingzhao::inline_unit;
using spec::jingzhao::next_unit;
using spec::jingzhao::raddr_unit;
using spec::jingzhao::ud_unit;
using spec::jingzhao::wqe_opcode;

namespace {

constexpr std::size_t kUnit = next_unit::kSize;
/// Ends the scatter list of a driver that comes from the Arbel interface (docs/jingzhao.md).
constexpr std::uint32_t kTerminatorLkey = 0x100;

std::optional<SendOpcode> opcode_of(std::uint8_t opcode) {
  switch (wqe_opcode(opcode)) {
    case wqe_opcode::NOP:
      return SendOpcode::kNop;
    case wqe_opcode::RDMA_WRITE:
      return SendOpcode::kRdmaWrite;
    case wqe_opcode::RDMA_WRITE_IMM:
      return SendOpcode::kRdmaWriteWithImmediate;
    case wqe_opcode::SEND:
      return SendOpcode::kSend;
    case wqe_opcode::SEND_IMM:
      return SendOpcode::kSendWithImmediate;
    case wqe_opcode::RDMA_READ:
      return SendOpcode::kRdmaRead;
    case wqe_opcode::ATOMIC_CS:
      return SendOpcode::kCompareSwap;
    case wqe_opcode::ATOMIC_FA:
      return SendOpcode::kFetchAdd;
    default:
      return std::nullopt;
  }
}

bool is_atomic(SendOpcode opcode) {
  return opcode == SendOpcode::kCompareSwap || opcode == SendOpcode::kFetchAdd;
}
bool is_send(SendOpcode opcode) {
  return opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImmediate;
}

/// The units of a WQE, one after the other.
class Units {
 public:
  explicit Units(std::span<const std::byte> bytes) : left_(bytes) {}
  template <class Layout>
  std::optional<util::View<Layout>> take() {
    if (left_.size() < Layout::kSize) return std::nullopt;
    const util::View<Layout> view(left_);
    left_ = left_.subspan(Layout::kSize);
    return view;
  }
  std::span<const std::byte> left() const { return left_; }

 private:
  std::span<const std::byte> left_;
};

void add_piece(util::View<data_unit> unit, std::vector<rdma::Sge>& sges) {
  if (unit.get(data_unit::byte_cnt) == 0) return;
  sges.push_back({unit.get(data_unit::addr), unit.get(data_unit::byte_cnt),
                  rdma::MKey(unit.get(data_unit::lkey))});
}

WqeFault decode_inline(std::span<const std::byte> units, rdma::SendRequest& request) {
  const auto length = util::View<inline_unit>(units).get(inline_unit::length);
  const auto data = units.subspan(inline_unit::data_offset);
  if (length > data.size()) return WqeFault::kInlineTooLong;
  request.is_inline = true;
  request.inline_data.assign(data.first(length));
  return WqeFault::kNone;
}

WqeFault decode_payload(std::span<const std::byte> units, rdma::SendRequest& request) {
  if (units.empty()) return WqeFault::kNone;
  if (util::View<inline_unit>(units).get(inline_unit::is_inline) != 0) {
    const bool takes_data = request.opcode == SendOpcode::kRdmaRead || is_atomic(request.opcode);
    return takes_data ? WqeFault::kInlineForbidden : decode_inline(units, request);
  }
  if (units.size() / kUnit > limits::kMaxSges) return WqeFault::kTooManyPieces;
  for (; !units.empty(); units = units.subspan(kUnit)) {
    const util::View<data_unit> unit(units);
    if (unit.get(data_unit::is_inline) != 0) return WqeFault::kMixedPayload;
    add_piece(unit, request.sges);
  }
  return WqeFault::kNone;
}

std::uint64_t length_of(const rdma::SendRequest& request) {
  if (request.is_inline) return request.inline_data.size();
  std::uint64_t length = 0;
  for (const auto& piece : request.sges) length += piece.length;
  return length;
}

void decode_destination(util::View<ud_unit> unit, const SendRules& rules,
                        rdma::UdDestination& destination) {
  static_cast<rdma::Path&>(destination) = make_path(unit, rules.link);
  destination.qpn = Qpn(unit.get(ud_unit::dqpn) & 0xFFFFFF);
  const auto qkey = unit.get(ud_unit::qkey);
  // IBTA 10.2.5: one with its top bit set means the QP's own.
  const bool own = (qkey & 0x80000000) != 0;
  destination.qkey = own ? rules.qkey : qkey;
  destination.number = 0;
}

}  // namespace

WqeFault decode_send_wqe(std::span<const std::byte> wqe, const SendWqe& what,
                         const SendRules& rules, rdma::SendRequest& request) {
  request.signaled = true;   // "C" is not used: each WQE has its CQE
  request.solicited = true;  // "S" is not used: as the RTL does
  request.fence = what.fence;
  request.stale = what.stale;
  const auto opcode = opcode_of(what.opcode);
  if (!opcode) return WqeFault::kUnknownOpcode;
  request.opcode = *opcode;
  Units units(wqe);
  const auto next = units.take<next_unit>();
  if (!next) return WqeFault::kTooShort;
  request.immediate = next->get(next_unit::imm_data);
  if (*opcode == SendOpcode::kNop) return WqeFault::kNone;
  if (!rdma::service_rules(rules.type).may_post.has(*opcode)) return WqeFault::kOtherService;
  if (rules.type == QpType::kUd) {
    const auto unit = units.take<ud_unit>();
    if (!unit) return WqeFault::kTooShort;
    decode_destination(*unit, rules, request.ud);
  } else if (!is_send(*opcode)) {
    const auto unit = units.take<raddr_unit>();
    if (!unit) return WqeFault::kTooShort;
    request.remote_address = unit->get(raddr_unit::raddr);
    request.rkey = rdma::MKey(unit->get(raddr_unit::rkey));
  }
  if (is_atomic(*opcode)) {
    const auto unit = units.take<atomic_unit>();
    if (!unit) return WqeFault::kTooShort;
    request.swap_add = unit->get(atomic_unit::swap_add);
    request.compare = unit->get(atomic_unit::cmp);
  }
  if (const auto fault = decode_payload(units.left(), request); fault != WqeFault::kNone) {
    return fault;
  }
  return length_of(request) > rules.message_max ? WqeFault::kMessageTooLong : WqeFault::kNone;
}

bool decode_scatter_list(std::span<const std::byte> units, std::vector<rdma::Sge>& sges) {
  for (; units.size() >= data_unit::kSize; units = units.subspan(data_unit::kSize)) {
    const util::View<data_unit> unit(units);
    const auto lkey = unit.get(data_unit::lkey);
    if (unit.get(data_unit::byte_cnt) == 0 && (lkey == 0 || lkey == kTerminatorLkey)) return true;
    if (sges.size() == limits::kMaxSges) return false;
    add_piece(unit, sges);
  }
  return true;
}

}  // namespace softhca::jingzhao
