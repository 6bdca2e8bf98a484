#include "connectx/queue/wqe_fault.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace softhca::connectx {

namespace {

constexpr std::string_view kWqeSection = "mlx5 driver interface 8.3";
constexpr std::string_view kData = "PRM 7.4.4.1.4";
constexpr std::string_view kUmr = "PRM Table 33";
constexpr std::string_view kUmrSteps = "PRM 10.1.1.1";
constexpr std::string_view kUmrDriver = "mlx5 driver interface 8.6";
constexpr std::string_view kEthernet = "PRM Table 41";
constexpr std::string_view kEthSegment = "PRM Table 28";
constexpr std::string_view kLso = "PRM 3.3.2";
constexpr std::string_view kMultiPacket = "mlx5 driver interface 8.3";

constexpr WqeFaultInfo kFaults[] = {
    {WqeFault::kNone, "", ""},
    {WqeFault::kSizeZero, "ds is 0: not even a control segment", "PRM Table 26"},
    {WqeFault::kPastPosted, "ds reaches past the send counter", kWqeSection},
    {WqeFault::kWrongIndex, "wqe_index is not the one that is due", "PRM Table 26"},
    {WqeFault::kWrongQpn, "sq_number is not the queue's", "PRM Table 26"},
    {WqeFault::kUnknownOpcode, "opcode is unknown or not offered", kWqeSection},
    {WqeFault::kOpcodeForService, "opcode does not belong to the QP's service", "IBTA Table 36"},
    {WqeFault::kMaskedAtomic, "a masked atomic (older versions refused it)", kWqeSection},
    {WqeFault::kMemoryKeyUpdate, "UMR (older versions refused it)", kUmrDriver},
    {WqeFault::kNoRemoteAddress, "ds leaves no room for the remote address segment", kWqeSection},
    {WqeFault::kNoAtomicOperands, "ds leaves no room for the atomic segment", kWqeSection},
    {WqeFault::kNoAddressVector, "ds leaves no room for the datagram segment", kWqeSection},
    {WqeFault::kShortAddressVector, "datagram segment without the extension bit", kWqeSection},
    {WqeFault::kInlineForRead, "inline data where the answer is to be written", kData},
    {WqeFault::kInlineTooLong, "inline data is longer than the WQE", kData},
    {WqeFault::kMixedPayload, "inline data and pointers in one WQE (older versions refused them)",
     kData},
    {WqeFault::kAtomicLength, "an atomic has more than one pointer", kData},
    {WqeFault::kMessageTooLong, "the message is longer than log_msg_max (older versions)",
     "mlx5 driver interface 7.2"},
    {WqeFault::kAtomicsOff, "atomics are not offered", kWqeSection},
    {WqeFault::kNoXrcSegment, "ds leaves no room for the XRC segment", kWqeSection},
    {WqeFault::kUmrShort, "ds leaves no room for the UMR control and MKey segments",
     "PRM 7.4.4.1.3"},
    {WqeFault::kUmrCheckReserved, "check_free of a UMR is 3, which is reserved", kUmr},
    {WqeFault::kUmrListUnaligned,
     "size or offset of a UMR's translations is not a multiple of 64 bytes", kUmr},
    {WqeFault::kUmrListMissing, "ds leaves no room for the translations of a UMR, or their pointer",
     kUmr},
    {WqeFault::kUmrPointerUnaligned, "the pointer of a UMR is not aligned to 2 KiB",
     "PRM Table 35"},
    {WqeFault::kUmrKeyUnknown, "umr_mkey is no memory key", kUmrSteps},
    {WqeFault::kUmrNotEnabled, "umr_en of the memory key is 0", kUmrSteps},
    {WqeFault::kUmrOtherPd, "the memory key belongs to another protection domain than the QP",
     kUmrSteps},
    {WqeFault::kUmrOtherQp, "the memory key is bound to another QP", kUmrDriver},
    {WqeFault::kUmrNotFree, "the memory key is in use, and check_free wants it free", kUmr},
    {WqeFault::kUmrFree, "the memory key is free, and check_free wants it in use", kUmr},
    {WqeFault::kUmrMask, "mkey_ctx_bit_mask names a field that this QP cannot change", kUmr},
    {WqeFault::kUmrPhysical, "a key of pages is changed by a QP without fre", kUmrDriver},
    {WqeFault::kUmrListTooLong, "more translations than translations_octword_size", kUmrSteps},
    {WqeFault::kUmrNoTranslations, "all translations are in use", kUmrSteps},
    {WqeFault::kUmrUnknownPd, "the PD for the memory key does not exist", kUmrDriver},
    {WqeFault::kUmrRange, "start_addr and len pass the end of the address space", "PRM Table 10"},
    {WqeFault::kUmrPageSize, "log_page_size is not one that the access mode allows",
     "PRM Table 10"},
    {WqeFault::kUmrStrided, "the strided layout does not add up", kUmrDriver},
    {WqeFault::kAtomicOperandSize, "opmod of a masked atomic is not that of 4 or 8 bytes",
     kWqeSection},
    {WqeFault::kSignature, "the bytes of the WQE do not XOR to 0xff", "PRM 9.2.3"},
    {WqeFault::kReceiveSignature,
     "the bytes of the receive WQE, of its index and of its queue's number do not XOR to 0xff",
     "PRM Table 23"},
    {WqeFault::kUmrBsfSize, "the BSF of a UMR is not one of 64 bytes in the WQE", kUmrDriver},
    {WqeFault::kUmrNotSignable, "a BSF for a memory key that was made without room for one",
     kUmrDriver},
    {WqeFault::kUmrBsfMissing, "bsf_en of a memory key that has no BSF", kUmrDriver},
    {WqeFault::kUmrBsf, "the BSF asks for what is not offered, or contradicts itself", kUmrDriver},
    {WqeFault::kPsvUnknown, "the PSV does not exist, or belongs to another protection domain",
     kUmrDriver},
    {WqeFault::kSetPsvShort, "ds leaves no room for the SET_PSV segment", kWqeSection},
    {WqeFault::kNotAnEthernetOpcode, "opcode is not NOP, SEND or LSO", kEthernet},
    {WqeFault::kNoTis, "the SQ has no TIS to send through", "PRM 7.6"},
    {WqeFault::kNoEthSegment, "ds leaves no room for the Eth segment", kEthernet},
    {WqeFault::kInnerChecksums, "checksums of inner headers are not offered", kEthSegment},
    {WqeFault::kInlineHeadersTooLong, "inline headers are longer than the WQE", kEthSegment},
    {WqeFault::kLsoWithoutMss, "mss of an LSO WQE is 0", kEthSegment},
    {WqeFault::kFrameTooLong, "the frame is longer than 64 KiB", "PRM 3.3"},
    {WqeFault::kLsoTooLong, "the message is longer than max_lso_cap", kLso},
    {WqeFault::kLsoHeadersTooLong, "the inline headers of an LSO WQE are too long", kLso},
    {WqeFault::kLsoNotTcpOrUdp, "the inline headers of an LSO WQE are not TCP's or UDP's", kLso},
    {WqeFault::kLsoHeadersEndElsewhere, "bytes follow the TCP or UDP header of an LSO WQE", kLso},
    {WqeFault::kLsoMss, "mss is larger than an IP packet can be", kLso},
    {WqeFault::kMultiPacketWithoutMss, "mss of a multi-packet send WQE is 0", kMultiPacket},
    {WqeFault::kMultiPacketInline, "a multi-packet send WQE has inline headers", kMultiPacket},
    {WqeFault::kMultiPacketTooLong, "a multi-packet send WQE is longer than 1 MiB", kMultiPacket},
};

static_assert(std::ranges::is_sorted(kFaults, std::ranges::less{}, &WqeFaultInfo::fault));

const WqeFaultInfo* find(WqeFault fault) {
  const auto* found = std::ranges::lower_bound(kFaults, fault, {}, &WqeFaultInfo::fault);
  return found == std::end(kFaults) || found->fault != fault ? nullptr : found;
}

}  // namespace

const WqeFaultInfo& describe(WqeFault fault) {
  const auto* info = find(fault);
  assert(info != nullptr);
  return *info;
}

std::optional<ReasonMeaning> explain_reason(std::uint32_t number) {
  if (number == 0 || number > 0xFF) return std::nullopt;
  if (const auto* fault = find(static_cast<WqeFault>(number))) {
    return ReasonMeaning{"a work queue entry is refused", fault->text, fault->section};
  }
  for (const auto& info : rdma::reason_table()) {
    if (static_cast<std::uint32_t>(info.reason) == number) {
      return ReasonMeaning{"the transport refused, or was refused", info.text, info.section};
    }
  }
  return std::nullopt;
}

}  // namespace softhca::connectx
