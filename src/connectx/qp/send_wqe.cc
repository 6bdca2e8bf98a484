#include "connectx/qp/send_wqe.h"

#include <array>
#include <cassert>
#include <cstring>

#include "connectx/memory/signature_values.h"
#include "connectx/memory/umr.h"
#include "connectx/qp/send_wqe_cache.h"
#include "connectx/queue/data_segment.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx {

namespace {

using rdma::SendOpcode;
using spec::connectx::data_segment_inline;
using spec::connectx::data_segment_pointer;
using spec::connectx::wqe_atomic_segment;
using spec::connectx::wqe_ctrl_segment;
using spec::connectx::wqe_datagram_segment;
using spec::connectx::wqe_dc_key;
using spec::connectx::wqe_masked_cs_32;
using spec::connectx::wqe_masked_cs_64;
using spec::connectx::wqe_masked_fa_32;
using spec::connectx::wqe_masked_fa_64;
using spec::connectx::wqe_opcode;
using spec::connectx::wqe_raddr_segment;
using spec::connectx::wqe_xrc_segment;
using util::View;

/// The segments of a WQE after the control segment. For UD, DC and XRC, they follow the segment of
/// the service.
enum class Form : std::uint8_t {
  kNothing,
  kUmr,
  kSetPsv,
  kGather,
  kRemoteGather,
  kRemoteScatter,
  kAtomic,
  kMaskedAtomic,
};

constexpr bool is_atomic(Form form) { return form == Form::kAtomic || form == Form::kMaskedAtomic; }

struct OpcodeRule {
  wqe_opcode opcode;
  Form form;
  SendOpcode request;
};

constexpr OpcodeRule kOpcodes[] = {
    {wqe_opcode::NOP, Form::kNothing, SendOpcode::kNop},
    {wqe_opcode::SEND_INVAL, Form::kGather, SendOpcode::kSendWithInvalidate},
    {wqe_opcode::RDMA_WRITE, Form::kRemoteGather, SendOpcode::kRdmaWrite},
    {wqe_opcode::RDMA_WRITE_IMM, Form::kRemoteGather, SendOpcode::kRdmaWriteWithImmediate},
    {wqe_opcode::SEND, Form::kGather, SendOpcode::kSend},
    {wqe_opcode::SEND_IMM, Form::kGather, SendOpcode::kSendWithImmediate},
    {wqe_opcode::RDMA_READ, Form::kRemoteScatter, SendOpcode::kRdmaRead},
    {wqe_opcode::ATOMIC_CS, Form::kAtomic, SendOpcode::kCompareSwap},
    {wqe_opcode::ATOMIC_FA, Form::kAtomic, SendOpcode::kFetchAdd},
    {wqe_opcode::ATOMIC_MASKED_CS, Form::kMaskedAtomic, SendOpcode::kMaskedCompareSwap},
    {wqe_opcode::ATOMIC_MASKED_FA, Form::kMaskedAtomic, SendOpcode::kMaskedFetchAdd},
    {wqe_opcode::UMR, Form::kUmr, SendOpcode::kLocal},
    {wqe_opcode::SET_PSV, Form::kSetPsv, SendOpcode::kLocal},
};

/// By opcode. Null for an unknown one.
constexpr auto kOpcodeRules = [] {
  std::array<const OpcodeRule*, 256> rules{};
  for (const auto& rule : kOpcodes) rules[static_cast<std::uint8_t>(rule.opcode)] = &rule;
  return rules;
}();

/// Iterates over the segments of a WQE.
class Segments {
 public:
  explicit Segments(std::span<const std::byte> rest) : rest_(rest) {}

  bool empty() const { return rest_.empty(); }
  template <class Layout>
  bool has() const {
    return rest_.size() >= Layout::kSize;
  }
  /// @pre has<Layout>()
  template <class Layout>
  View<Layout> take() {
    View<Layout> view(rest_);
    rest_ = rest_.subspan(Layout::kSize);
    return view;
  }
  std::span<const std::byte> rest() const { return rest_; }
  void skip(std::size_t bytes) { rest_ = rest_.subspan(bytes); }

 private:
  std::span<const std::byte> rest_;
};

WqeFault take_datagram(Segments& segments, rdma::UdDestination& to) {
  using Av = wqe_datagram_segment;
  to.number = 0;
  if (!segments.has<Av>()) return WqeFault::kNoAddressVector;
  const auto av = segments.take<Av>();
  // Drivers always set `ext`. Without it, the vector would have 16 bytes and no GID.
  if (av.get(Av::ext) == 0) return WqeFault::kShortAddressVector;
  to.dst_mac = rdma::Mac::from(av.get(Av::rmac));
  to.dst_gid = rdma::Gid::from(av.get(Av::rgid_rip));
  to.qpn = rdma::Qpn(av.get(Av::destination_qp_dct));
  to.qkey = av.get(Av::qkey);
  to.src_gid_index = static_cast<std::uint8_t>(av.get(Av::src_addr_index));
  to.hop_limit = static_cast<std::uint8_t>(av.get(Av::hop_limit));
  to.traffic_class = static_cast<std::uint8_t>(av.get(Av::tclass));
  to.flow_label = av.get(Av::flow_label);
  to.vlan_priority = static_cast<std::uint8_t>(av.get(Av::sl_eth_prio));
  to.udp_source_port = static_cast<std::uint16_t>(av.get(Av::rlid_udp_sport));
  return WqeFault::kNone;
}

WqeFault take_remote(Segments& segments, rdma::SendRequest& request) {
  if (!segments.has<wqe_raddr_segment>()) return WqeFault::kNoRemoteAddress;
  const auto remote = segments.take<wqe_raddr_segment>();
  request.remote_address = remote.get(wqe_raddr_segment::raddr);
  request.rkey = rdma::MKey(remote.get(wqe_raddr_segment::rkey));
  return WqeFault::kNone;
}

WqeFault take_atomic(Segments& segments, rdma::SendRequest& request) {
  if (!segments.has<wqe_atomic_segment>()) return WqeFault::kNoAtomicOperands;
  const auto atomic = segments.take<wqe_atomic_segment>();
  request.swap_add = atomic.get(wqe_atomic_segment::swap_add);
  request.compare = atomic.get(wqe_atomic_segment::compare);
  return WqeFault::kNone;
}

/// Reads the operands of the next segment in the order of `fields`. False if the WQE is too short.
template <class Layout, class... Fields>
bool take_operands(Segments& segments, std::array<std::uint64_t*, sizeof...(Fields)> to,
                   Fields... fields) {
  if (!segments.has<Layout>()) return false;
  const auto view = segments.take<Layout>();
  std::size_t i = 0;
  ((*to[i++] = view.get(fields)), ...);
  return true;
}

/// Takes the segment of a masked atomic. `opmod` gives the size of the operands, and thereby that
/// of the segment.
WqeFault take_masked_atomic(Segments& segments, std::uint32_t opmod, rdma::SendRequest& request) {
  using enum spec::connectx::extended_atomic_opmod;
  const auto size = static_cast<spec::connectx::extended_atomic_opmod>(opmod);
  if (size != BYTES_4 && size != BYTES_8) return WqeFault::kAtomicOperandSize;
  auto& masked = request.masked;
  masked = {.size = size == BYTES_4 ? 4u : 8u};
  const bool add = request.opcode == SendOpcode::kMaskedFetchAdd;
  bool taken = false;
  if (add && size == BYTES_4) {
    using L = wqe_masked_fa_32;
    taken = take_operands<L>(segments, {&request.swap_add, &request.compare}, L::add,
                             L::field_boundary);
  } else if (add) {
    using L = wqe_masked_fa_64;
    taken = take_operands<L>(segments, {&request.swap_add, &request.compare}, L::add,
                             L::field_boundary);
  } else {
    const std::array<std::uint64_t*, 4> to{&request.swap_add, &request.compare, &masked.swap_mask,
                                           &masked.compare_mask};
    if (size == BYTES_4) {
      using L = wqe_masked_cs_32;
      taken = take_operands<L>(segments, to, L::swap, L::compare, L::swap_mask, L::compare_mask);
    } else {
      using L = wqe_masked_cs_64;
      taken = take_operands<L>(segments, to, L::swap, L::compare, L::swap_mask, L::compare_mask);
    }
  }
  return taken ? WqeFault::kNone : WqeFault::kNoAtomicOperands;
}

/// Takes an inline data segment. PRM 7.4.4.1.4: "Every data segment containing data occupies one or
/// more octowords."
WqeFault take_inline(Segments& segments, rdma::SendRequest& request) {
  const View<data_segment_inline> segment(segments.rest());
  const std::size_t length = segment.get(data_segment_inline::byte_count);
  const auto bytes = segments.rest().subspan(data_segment_inline::kSize);
  if (length > bytes.size()) return WqeFault::kInlineTooLong;
  // "can set inline segments with zero byte count to extend send WQE"
  if (length != 0) {
    request.sges.push_back({.address = request.inline_data.size(),
                            .length = static_cast<std::uint32_t>(length),
                            .lkey = {},
                            .is_inline = true});
  }
  request.inline_data.append(bytes.first(length));
  const auto octowords = (data_segment_inline::kSize + length + kWqeUnit - 1) / kWqeUnit;
  segments.skip(octowords * kWqeUnit);
  return WqeFault::kNone;
}

/// Fast path of take_inline(). Nearly all inline data are one segment with the whole message.
/// False, with no effect, if there is another segment.
bool take_inline_fast(Segments& segments, rdma::SendRequest& request) {
  const View<data_segment_inline> segment(segments.rest());
  const std::size_t length = segment.get(data_segment_inline::byte_count);
  const auto bytes = segments.rest().subspan(data_segment_inline::kSize);
  if (length == 0 || length > bytes.size() || bytes.size() - length >= kWqeUnit) return false;
  request.inline_data.assign(bytes.first(length));
  request.is_inline = true;
  return true;
}

/// Takes all data segments, inline ones and pointers in any order: "They are distinguished by the
/// value of bit 31 at offset 0".
WqeFault take_data(Segments& segments, rdma::SendRequest& request) {
  if (!segments.empty() &&
      View<data_segment_pointer>(segments.rest()).get(data_segment_pointer::inline_) != 0 &&
      take_inline_fast(segments, request)) {
    return WqeFault::kNone;
  }
  bool has_pointer = false;
  while (!segments.empty()) {
    const View<data_segment_pointer> pointer(segments.rest());
    if (pointer.get(data_segment_pointer::inline_) != 0) {
      if (const auto fault = take_inline(segments, request); fault != WqeFault::kNone) return fault;
      continue;
    }
    // PRM 7.4.4.1.4: "To send a request with zero data, DS should be set such that no data segments
    // appear in the WQE."
    const auto length = segment_length(pointer.get(data_segment_pointer::byte_count));
    request.sges.push_back({pointer.get(data_segment_pointer::local_address), length,
                            rdma::MKey(pointer.get(data_segment_pointer::l_key))});
    has_pointer = true;
    segments.skip(data_segment_pointer::kSize);
  }
  // Nearly all payloads are either all inline or all pointers. Callers then get no inline pieces in
  // `sges`.
  request.is_inline = !has_pointer && !request.inline_data.empty();
  if (request.is_inline) request.sges.clear();
  return WqeFault::kNone;
}

WqeFault take_form(Segments& segments, Form form, std::uint32_t opmod, rdma::SendRequest& request) {
  switch (form) {
    case Form::kNothing:
    case Form::kUmr:
    case Form::kSetPsv:
    case Form::kGather:
      return WqeFault::kNone;
    case Form::kRemoteGather:
    case Form::kRemoteScatter:
      return take_remote(segments, request);
    case Form::kAtomic: {
      const auto fault = take_remote(segments, request);
      return fault != WqeFault::kNone ? fault : take_atomic(segments, request);
    }
    case Form::kMaskedAtomic: {
      const auto fault = take_remote(segments, request);
      return fault != WqeFault::kNone ? fault : take_masked_atomic(segments, opmod, request);
    }
  }
  return WqeFault::kNone;
}

WqeFault check_payload(Form form, const rdma::SendRequest& request) {
  const bool writes_answer = form == Form::kRemoteScatter || is_atomic(form);
  if (writes_answer && !request.inline_data.empty()) return WqeFault::kInlineForRead;
  // PRM 7.4.4.1.4: "atomic WQEs only support a single memory pointer in their gather list". The
  // transport checks the pointer's length, as it does for any message.
  if (is_atomic(form) && request.sges.size() > 1) return WqeFault::kAtomicLength;
  return WqeFault::kNone;
}

}  // namespace

WqeFault decode_send_wqe(std::span<const std::byte> wqe, const SendWqeControl& control,
                         std::uint16_t expected_index, const SendWqeRules& rules,
                         rdma::SendRequest& request) {
  assert(wqe.size() >= wqe_ctrl_segment::kSize && wqe.size() % kWqeUnit == 0);
  request.signaled = is_signaled(control.completion);
  if (rules.is_signed && !SendWqeControl::is_signed(wqe)) return WqeFault::kSignature;
  if (control.index != expected_index) return WqeFault::kWrongIndex;
  if (control.qpn != rules.qpn) return WqeFault::kWrongQpn;
  const auto* rule = kOpcodeRules[static_cast<std::uint8_t>(control.opcode)];
  if (rule == nullptr) return WqeFault::kUnknownOpcode;
  const auto& service = rdma::service_rules(rules.type);
  if (!service.may_post.has(rule->request)) return WqeFault::kOpcodeForService;
  if (is_atomic(rule->form) && !rules.atomics) return WqeFault::kAtomicsOff;

  Segments segments(wqe);
  const auto ctrl = segments.take<wqe_ctrl_segment>();
  request.opcode = rule->request;
  // A WRITE without immediate consumes no receive. READs and atomics do not send the bit.
  request.solicited =
      ctrl.get(wqe_ctrl_segment::se) != 0 && request.opcode != rdma::SendOpcode::kRdmaWrite;
  request.immediate = ctrl.get(wqe_ctrl_segment::imm);
  // Requests are always executed in order. These three fence modes also wait for the answers of
  // READs and atomics.
  request.fence = ctrl.get(wqe_ctrl_segment::fm) >=
                  static_cast<std::uint32_t>(spec::connectx::wqe_fence::FENCE);
  const auto opmod = ctrl.get(wqe_ctrl_segment::opmod);
  if (rule->form == Form::kNothing) return WqeFault::kNone;
  if (rule->form == Form::kUmr) {
    request.inline_data.assign(segments.rest());
    return Umr::check(request.inline_data);
  }
  if (rule->form == Form::kSetPsv) {
    request.inline_data.assign(segments.rest());
    return PsvTable::check(request.inline_data);
  }

  WqeFault fault = WqeFault::kNone;
  if (!service.fixed_peer) {
    if (segments.has<wqe_dc_key>()) {
      request.dc_key = View<wqe_dc_key>(segments.rest()).get(wqe_dc_key::dc_key);
    }
    fault = take_datagram(segments, request.ud);
  }
  if (service.names_srq) {
    if (!segments.has<wqe_xrc_segment>()) return WqeFault::kNoXrcSegment;
    const auto srq = segments.take<wqe_xrc_segment>();
    request.remote_srqn = rdma::XrcSrqn(srq.get(wqe_xrc_segment::xrc_srqn));
  }
  if (fault == WqeFault::kNone) fault = take_form(segments, rule->form, opmod, request);
  if (fault == WqeFault::kNone) fault = take_data(segments, request);
  return fault != WqeFault::kNone ? fault : check_payload(rule->form, request);
}

const ControlCache::Words ControlCache::kSameInAll = [] {
  Words words;
  words.fill(~std::uint64_t{0});
  const util::MutableView<Ctrl> mask(std::as_writable_bytes(std::span(words)));
  mask.set(Ctrl::wqe_index, 0);
  mask.set(Ctrl::ce, 0);
  mask.set(Ctrl::imm, 0);
  return words;
}();

bool ControlCache::remember(std::span<const std::byte> wqe, std::size_t data,
                            const SendWqeControl& control, const SendWqeRules& rules,
                            const rdma::SendRequest& request) {
  const bool one_segment = !rules.is_signed && wqe.size() > data &&
                           (request.is_inline || wqe.size() == data + Pointer::kSize);
  const auto room = wqe.size() - data - Inline::kSize;
  if (!one_segment || room > UINT8_MAX) return false;
  solicited_ = request.solicited;
  fence_ = request.fence;
  opcode_ = request.opcode;
  inline_room_ = request.is_inline ? static_cast<std::uint8_t>(room) : std::uint8_t{0};
  wqe_opcode_ = static_cast<std::uint8_t>(control.opcode);
  words_ = words_of(wqe);
  return true;
}

void SendWqeCache::remember(std::span<const std::byte> wqe, const SendWqeControl& control,
                            const SendWqeRules& rules, const rdma::SendRequest& request) {
  const auto& rule = *kOpcodeRules[static_cast<std::uint8_t>(control.opcode)];
  const auto& service = rdma::service_rules(rules.type);
  has_remote_ = rule.form == Form::kRemoteGather || rule.form == Form::kRemoteScatter;
  const auto data = wqe_ctrl_segment::kSize + (has_remote_ ? wqe_raddr_segment::kSize : 0);
  is_set_ = wqe.size() <= kWqeBasicBlock && service.fixed_peer && !service.names_srq &&
            (has_remote_ || rule.form == Form::kGather) &&
            ControlCache::remember(wqe, data, control, rules, request);
}

void DatagramWqeCache::remember(std::span<const std::byte> wqe, const SendWqeControl& control,
                                const SendWqeRules& rules, rdma::SendRequest& request,
                                std::uint64_t& numbers) {
  const auto before = to_.number;
  forget();
  const auto& rule = *kOpcodeRules[static_cast<std::uint8_t>(control.opcode)];
  if (!rdma::service_rules(rules.type).datagram || rule.form != Form::kGather ||
      !ControlCache::remember(wqe, kData, control, rules, request)) {
    return;
  }
  size_ = static_cast<std::uint32_t>(wqe.size());
  blocks_ = static_cast<std::uint32_t>(control.basic_blocks());
  request.ud.number = before != 0 && same_av(wqe) ? before : ++numbers;
  std::memcpy(av_.data(), wqe.data() + Ctrl::kSize, av_.size());
  to_ = request.ud;
}

}  // namespace softhca::connectx
