#include <algorithm>

#include "sdxi/operation.h"

namespace softhca::sdxi {
namespace {

using spec::admin_subtype;
using spec::atomic_subtype;
using spec::dma_base_subtype;
using spec::dsc_type;
using spec::err_class;
using Bit = Operation::Bit;

constexpr Operation dma(dma_base_subtype subtype, std::string_view section, Bit se,
                        Checked<Progress> (*execute)(Work&, Execution&)) {
  return {dsc_type::DMA_BASE_GRP,
          static_cast<std::uint8_t>(subtype),
          to_string(subtype),
          section,
          se,
          Bit::kFree,
          false,
          execute};
}

// SDXI 6.6: the formats say "se = *" and "Shall be set to 0" of the same bit; it must be 0 here.
constexpr Operation admin(admin_subtype subtype, std::string_view section, Bit fe,
                          Checked<Progress> (*execute)(Work&, Execution&)) {
  return {dsc_type::ADMIN_GRP,
          static_cast<std::uint8_t>(subtype),
          to_string(subtype),
          section,
          Bit::kZero,
          fe,
          false,
          execute};
}

constexpr Operation atomic(atomic_subtype subtype, bool minimal = false) {
  return {dsc_type::ATOMIC_GRP,
          static_cast<std::uint8_t>(subtype),
          to_string(subtype),
          "SDXI 6.3",
          Bit::kFree,
          Bit::kFree,
          minimal,
          execute_atomic};
}

constexpr std::array kOperations{
    dma(dma_base_subtype::DSC_DMAB_NOP, "SDXI 6.2.1", Bit::kZero, execute_nop),
    dma(dma_base_subtype::DSC_DMAB_WRT_IMM, "SDXI 6.2.2", Bit::kFree, execute_write_immediate),
    dma(dma_base_subtype::DSC_DMAB_COPY, "SDXI 6.2.3", Bit::kFree, execute_copy),
    dma(dma_base_subtype::DSC_DMAB_REPCOPY, "SDXI 6.2.4", Bit::kFree, execute_repeat_copy),
    admin(admin_subtype::DSC_FN_UPD, "SDXI 6.6.7", Bit::kFree, execute_function_update),
    admin(admin_subtype::DSC_CXT_UPD, "SDXI 6.6.6", Bit::kFree, execute_context_update),
    admin(admin_subtype::DSC_AKEY_UPD, "SDXI 6.6.5", Bit::kFree, execute_akey_update),
    admin(admin_subtype::DSC_CXT_START_NM, "SDXI 6.6.3", Bit::kOne, execute_start_normal),
    admin(admin_subtype::DSC_CXT_STOP, "SDXI 6.6.4", Bit::kOne, execute_stop),
    admin(admin_subtype::DSC_ADM_INTR, "SDXI 6.6.10", Bit::kFree, execute_admin_interrupt),
    admin(admin_subtype::DSC_SYNC, "SDXI 6.6.9", Bit::kFree, execute_sync),
    admin(admin_subtype::DSC_RKEY_UPD, "SDXI 6.6.8", Bit::kFree, execute_rkey_update),
    admin(admin_subtype::DSC_CXT_START_RS, "SDXI 6.6.3", Bit::kOne, execute_start_resume),
    atomic(atomic_subtype::DSC_ATM_SWAP, true),
    atomic(atomic_subtype::DSC_ATM_UADD, true),
    atomic(atomic_subtype::DSC_ATM_USUB),
    atomic(atomic_subtype::DSC_ATM_AND),
    atomic(atomic_subtype::DSC_ATM_OR),
    atomic(atomic_subtype::DSC_ATM_XOR),
    atomic(atomic_subtype::DSC_ATM_SMIN),
    atomic(atomic_subtype::DSC_ATM_SMAX),
    atomic(atomic_subtype::DSC_ATM_UMIN),
    atomic(atomic_subtype::DSC_ATM_UMAX),
    atomic(atomic_subtype::DSC_ATM_UCLAMPI),
    atomic(atomic_subtype::DSC_ATM_UCLAMPD),
    atomic(atomic_subtype::DSC_ATM_CMPSWAP, true),
    Operation{dsc_type::INTR_GRP, static_cast<std::uint8_t>(spec::intr_subtype::DSC_INTR),
              "DSC_INTR", "SDXI 6.4", Bit::kFree, Bit::kFree, false, execute_interrupt},
};

constexpr std::size_t kTypes = 5;
constexpr std::size_t kSubtypes = 16;

/// Position in kOperations plus one, by type and subtype.
constexpr auto kPlaces = [] {
  std::array<std::array<std::uint8_t, kSubtypes>, kTypes> places{};
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    const auto type = static_cast<std::size_t>(kOperations[i].type);
    places[type][kOperations[i].subtype] = static_cast<std::uint8_t>(i + 1);
  }
  return places;
}();

constexpr std::uint32_t bit(spec::op_grp group) { return 1u << static_cast<unsigned>(group); }

/// SDXI 5.1: the bits of opb_000 that make an operation usable, any of them. 0: always usable.
constexpr std::uint32_t groups_of(const Operation& operation) {
  switch (operation.type) {
    case dsc_type::ATOMIC_GRP:
      return bit(spec::op_grp::FULL_ATOMIC) |
             (operation.minimal ? bit(spec::op_grp::MINIMAL_ATOMIC) : 0);
    case dsc_type::INTR_GRP:
      return bit(spec::op_grp::INTERRUPT);
    default:
      return 0;
  }
}

bool allows(Bit rule, std::uint32_t value) {
  return rule == Bit::kFree || value == (rule == Bit::kOne ? 1u : 0u);
}

tl::unexpected<Refusal> bad_header(err_class cls, std::string_view reason, std::string_view section,
                                   std::uint64_t value) {
  return refuse(invalid(spec::err_step::ERRV_DSC_GEN, cls, reason, section, value));
}

Checked<void> check_availability(const Registers& registers, const ContextEntry& context,
                                 const Operation& operation, std::uint32_t type) {
  const bool administrative = operation.type == dsc_type::ADMIN_GRP;
  if (administrative && context.number != 0) {
    return bad_header(err_class::UNSUPPORTED_OPCODE, "an AdminGrp operation outside of context 0",
                      "SDXI 6.6", type);
  }
  if (!administrative && context.number == 0) {
    return bad_header(err_class::UNSUPPORTED_OPCODE, "context 0 has administrative operations only",
                      "SDXI 3.5", type);
  }
  const auto groups = groups_of(operation);
  const auto usable = registers.cap1.get(spec::mmio_cap1::opb_000_cap) &
                      registers.ctl2.get(spec::mmio_ctl2::opb_000_avl) & context.opb_000_enb;
  if (groups != 0 && (groups & usable) == 0) {
    return bad_header(err_class::UNSUPPORTED_OPCODE,
                      "the operation group is not in all of opb_000_cap, _avl and _enb", "SDXI 5.1",
                      type);
  }
  return {};
}

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation* find_operation(std::uint32_t type, std::uint32_t subtype) {
  if (type >= kTypes || subtype >= kSubtypes) return nullptr;
  const auto place = kPlaces[type][subtype];
  return place == 0 ? nullptr : &kOperations[place - 1u];
}

Checked<const Operation*> check_header(const Registers& registers, const ContextEntry& context,
                                       util::View<spec::dsc_header> header) {
  using dsc = spec::dsc_header;
  const auto type = header.get(dsc::type);
  const auto subtype = header.get(dsc::subtype);
  const auto* operation = find_operation(type, subtype);
  if (operation == nullptr) {
    return bad_header(err_class::UNSUPPORTED_OPCODE, "no such operation, or a vendor's", "SDXI 6",
                      type << 8 | subtype);
  }
  if (const auto usable = check_availability(registers, context, *operation, type); !usable) {
    return refuse(usable.error());
  }
  if (header.get(dsc::ch) != 0) {
    return bad_header(err_class::UNSUPPORTED_ENCODING, "no operation uses a chain", "SDXI 5.7.1",
                      1);
  }
  if (!allows(operation->fe, header.get(dsc::fe))) {
    return bad_header(err_class::UNSUPPORTED_ENCODING, "the operation wants fe = 1",
                      operation->section, 0);
  }
  if (!allows(operation->se, header.get(dsc::se))) {
    return bad_header(err_class::UNSUPPORTED_ENCODING, "the operation wants se = 0",
                      operation->section, 1);
  }
  const bool non_atomic_only = registers.cap0.get(spec::mmio_cap0::cs_cap) ==
                               static_cast<std::uint32_t>(spec::cs_cap::CS_NON_ATOMIC);
  if (non_atomic_only && header.get(dsc::csr) == 0) {
    return bad_header(err_class::UNSUPPORTED_ENCODING,
                      "csr = 0, and the function has no atomic completion status", "SDXI 4.4.2", 0);
  }
  return operation;
}

bool raises_interrupt(const Operation& operation) {
  return operation.execute == execute_interrupt || operation.execute == execute_admin_interrupt;
}

}  // namespace softhca::sdxi
