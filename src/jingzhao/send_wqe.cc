#include "jingzhao/send_wqe.h"

#include <array>
#include <optional>

#include "jingzhao/addresses.h"
#include "spec/infiniband/constants.h"

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

/// Ends the scatter list of drivers derived from the Arbel interface (docs/jingzhao.md).
constexpr std::uint32_t kTerminatorLkey = 0x100;

/// The request and the units of an opcode.
struct Form {
  std::optional<SendOpcode> opcode = {};
  bool is_nop = false;
  bool has_raddr = false;
  bool is_atomic = false;
};

/// By wqe_opcode.
constexpr auto kForms = [] {
  using enum wqe_opcode;
  std::array<Form, 32> forms{};
  const auto put = [&](wqe_opcode opcode, Form form) {
    forms[static_cast<std::size_t>(opcode)] = form;
  };
  put(NOP, {.opcode = SendOpcode::kNop, .is_nop = true});
  put(RDMA_WRITE, {.opcode = SendOpcode::kRdmaWrite, .has_raddr = true});
  put(RDMA_WRITE_IMM, {.opcode = SendOpcode::kRdmaWriteWithImmediate, .has_raddr = true});
  put(SEND, {.opcode = SendOpcode::kSend});
  put(SEND_IMM, {.opcode = SendOpcode::kSendWithImmediate});
  put(RDMA_READ, {.opcode = SendOpcode::kRdmaRead, .has_raddr = true});
  put(ATOMIC_CS, {.opcode = SendOpcode::kCompareSwap, .has_raddr = true, .is_atomic = true});
  put(ATOMIC_FA, {.opcode = SendOpcode::kFetchAdd, .has_raddr = true, .is_atomic = true});
  return forms;
}();

/// Reads the units of a WQE in order.
class Units {
 public:
  explicit Units(std::span<const std::byte> bytes) : at_(bytes.data()), left_(bytes.size()) {}
  template <class Layout>
  bool has() const {
    return left_ >= Layout::kSize;
  }
  /// @pre has()
  template <class Layout>
  util::View<Layout> take() {
    const util::View<Layout> view({at_, Layout::kSize});
    at_ += Layout::kSize;
    left_ -= Layout::kSize;
    return view;
  }
  std::span<const std::byte> left() const { return {at_, left_}; }

 private:
  const std::byte* at_;
  std::size_t left_;
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

bool takes_data(SendOpcode opcode) {
  return opcode == SendOpcode::kRdmaRead || opcode == SendOpcode::kCompareSwap ||
         opcode == SendOpcode::kFetchAdd;
}

WqeFault decode_payload(std::span<const std::byte> units, rdma::SendRequest& request) {
  if (units.empty()) return WqeFault::kNone;
  if (util::View<inline_unit>(units).get(inline_unit::is_inline) != 0) {
    return takes_data(request.opcode) ? WqeFault::kInlineForbidden : decode_inline(units, request);
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
  destination.qpn = Qpn(unit.get(ud_unit::dqpn) & rules.qpn_mask);
  destination.qkey = unit.get(ud_unit::qkey);
  destination.number = 0;
}

}  // namespace

WqeFault decode_send_wqe(std::span<const std::byte> wqe, const SendWqe& what,
                         const SendRules& rules, rdma::SendRequest& request) {
  request.signaled = true;   // "C" is not used: each WQE has its CQE
  request.solicited = true;  // "S" is not used: as the RTL does
  request.fence = what.fence;
  request.stale = what.stale;
  if (what.opcode >= kForms.size()) return WqeFault::kUnknownOpcode;
  const auto& form = kForms[what.opcode];
  if (!form.opcode) return WqeFault::kUnknownOpcode;
  request.opcode = *form.opcode;
  Units units(wqe);
  if (!units.has<next_unit>()) return WqeFault::kTooShort;
  request.immediate = units.take<next_unit>().get(next_unit::imm_data);
  if (form.is_nop) return WqeFault::kNone;
  if (!rdma::service_rules(rules.type).may_post.has(request.opcode)) {
    return WqeFault::kOtherService;
  }
  if (rules.type == QpType::kUd) {
    if (!units.has<ud_unit>()) return WqeFault::kTooShort;
    decode_destination(units.take<ud_unit>(), rules, request.ud);
  } else if (form.has_raddr) {
    if (!units.has<raddr_unit>()) return WqeFault::kTooShort;
    const auto unit = units.take<raddr_unit>();
    request.remote_address = unit.get(raddr_unit::raddr);
    request.rkey = rdma::MKey(unit.get(raddr_unit::rkey));
  }
  if (form.is_atomic) {
    if (!units.has<atomic_unit>()) return WqeFault::kTooShort;
    const auto unit = units.take<atomic_unit>();
    request.swap_add = unit.get(atomic_unit::swap_add);
    request.compare = unit.get(atomic_unit::cmp);
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
