#include <algorithm>

#include "sdxi/operation.h"
#include "util/bits.h"

namespace softhca::sdxi {
namespace {

using spec::admin_subtype;
using spec::atomic_subtype;
using spec::dma_base_subtype;
using spec::dsc_type;
using spec::err_class;
using Bit = Operation::Bit;

constexpr std::uint32_t bit(spec::op_grp group) { return 1u << static_cast<unsigned>(group); }

/// SDXI 5.1: bits of opb_000; any of them makes the operation usable. 0: always usable.
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

/// Derives the remaining members. The header rules include type and subtype.
constexpr Operation complete(Operation operation) {
  using dsc = spec::dsc_header;
  const auto header = [](std::uint32_t type, std::uint32_t subtype) {
    return util::in_place(dsc::type, type) | util::in_place(dsc::subtype, subtype);
  };
  operation.header_mask = header(dsc::type.kMax, dsc::subtype.kMax);
  operation.header_value = header(static_cast<std::uint32_t>(operation.type), operation.subtype);
  const auto rule = [&operation](Bit want, unsigned position) {
    if (want == Bit::kFree) return;
    operation.header_mask |= 1u << position;
    if (want == Bit::kOne) operation.header_value |= 1u << position;
  };
  rule(operation.se, dsc::se.kLo);
  rule(operation.fe, dsc::fe.kLo);
  rule(Bit::kZero, dsc::ch.kLo);
  operation.groups = groups_of(operation);
  return operation;
}

constexpr Operation dma(dma_base_subtype subtype, std::string_view section, Bit se,
                        Checked<Progress> (*execute)(Work&, Execution&)) {
  return complete({.type = dsc_type::DMA_BASE_GRP,
                   .subtype = static_cast<std::uint8_t>(subtype),
                   .name = to_string(subtype),
                   .section = section,
                   .se = se,
                   .fe = Bit::kFree,
                   .by_worker = true,
                   .execute = execute});
}

// SDXI 6.6: the formats say both "se = *" and "Shall be set to 0" of this bit; here it must be 0.
constexpr Operation admin(admin_subtype subtype, std::string_view section, Bit fe,
                          Checked<Progress> (*execute)(Work&, Execution&)) {
  return complete({.type = dsc_type::ADMIN_GRP,
                   .subtype = static_cast<std::uint8_t>(subtype),
                   .name = to_string(subtype),
                   .section = section,
                   .se = Bit::kZero,
                   .fe = fe,
                   .execute = execute});
}

constexpr Operation atomic(atomic_subtype subtype, bool minimal = false) {
  return complete({.type = dsc_type::ATOMIC_GRP,
                   .subtype = static_cast<std::uint8_t>(subtype),
                   .name = to_string(subtype),
                   .section = "SDXI 6.3",
                   .se = Bit::kFree,
                   .fe = Bit::kFree,
                   .minimal = minimal,
                   .by_worker = true,
                   .execute = execute_atomic});
}

constexpr Operation interrupt() {
  return complete({.type = dsc_type::INTR_GRP,
                   .subtype = static_cast<std::uint8_t>(spec::intr_subtype::DSC_INTR),
                   .name = "DSC_INTR",
                   .section = "SDXI 6.4",
                   .se = Bit::kFree,
                   .fe = Bit::kFree,
                   .by_worker = true,
                   .raises_interrupt = true,
                   .execute = execute_interrupt});
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
    interrupt(),
};

constexpr std::size_t kTypes = 5;
constexpr std::size_t kSubtypes = 16;

/// Index into kOperations plus one, by type and subtype.
constexpr auto kPlaces = [] {
  std::array<std::array<std::uint8_t, kSubtypes>, kTypes> places{};
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    const auto type = static_cast<std::size_t>(kOperations[i].type);
    places[type][kOperations[i].subtype] = static_cast<std::uint8_t>(i + 1);
  }
  return places;
}();

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
  const auto usable = header_rules(registers, context).groups;
  if (operation.groups != 0 && (operation.groups & usable) == 0) {
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

HeaderRules header_rules(const Registers& registers, const ContextEntry& context) {
  return {.groups = registers.cap1.get(spec::mmio_cap1::opb_000_cap) &
                    registers.ctl2.get(spec::mmio_ctl2::opb_000_avl) & context.opb_000_enb,
          .administrative = context.number == 0,
          .simple_only = registers.cap0.get(spec::mmio_cap0::cs_cap) ==
                         static_cast<std::uint32_t>(spec::cs_cap::CS_NON_ATOMIC)};
}

HeaderPattern header_pattern(const HeaderRules& rules, spec::dma_base_subtype subtype) {
  using dsc = spec::dsc_header;
  if (rules.administrative) return {};
  const auto& operation = *find_operation(static_cast<std::uint32_t>(dsc_type::DMA_BASE_GRP),
                                          static_cast<std::uint32_t>(subtype));
  const auto ones = util::in_place(dsc::vl, 1) | util::in_place(dsc::csr, rules.simple_only);
  return {.mask = operation.header_mask | ones, .value = operation.header_value | ones};
}

const Operation* accept_header(const HeaderRules& rules, util::View<spec::dsc_header> header) {
  using dsc = spec::dsc_header;
  const auto* operation = find_operation(header.get(dsc::type), header.get(dsc::subtype));
  if (operation == nullptr) return nullptr;
  const auto word = util::load_le32(header.bytes().data());
  const bool good = (word & operation->header_mask) == operation->header_value &&
                    (operation->groups == 0 || (operation->groups & rules.groups) != 0) &&
                    (operation->type == dsc_type::ADMIN_GRP) == rules.administrative &&
                    (!rules.simple_only || header.get(dsc::csr) != 0);
  return good ? operation : nullptr;
}

Checked<const Operation*> check_header(const Registers& registers, const ContextEntry& context,
                                       util::View<spec::dsc_header> header) {
  using dsc = spec::dsc_header;
  const auto type = header.get(dsc::type);
  const auto* operation = find_operation(type, header.get(dsc::subtype));
  if (operation == nullptr) {
    return bad_header(err_class::UNSUPPORTED_OPCODE, "no such operation, or a vendor's", "SDXI 6",
                      util::load_le32(header.bytes().data()));
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
  if (header_rules(registers, context).simple_only && header.get(dsc::csr) == 0) {
    return bad_header(err_class::UNSUPPORTED_ENCODING,
                      "csr = 0, and the function has no atomic completion status", "SDXI 4.4.2", 0);
  }
  return operation;
}

bool raises_interrupt(const Operation& operation) {
  return operation.execute == execute_interrupt || operation.execute == execute_admin_interrupt;
}

}  // namespace softhca::sdxi
