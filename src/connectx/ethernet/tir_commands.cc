// CREATE_TIR, MODIFY_TIR, DESTROY_TIR, QUERY_TIR (PRM 12.8).
#include <cstring>
#include <utility>

#include "connectx/base/resources.h"
#include "connectx/base/user_contexts.h"
#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/transport_interface.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

constexpr std::uint64_t bit(modify_tir_bit number) {
  return std::uint64_t{1} << static_cast<unsigned>(number);
}

std::uint32_t selected(util::View<rx_hash_field_select> selector) {
  return selector.get(rx_hash_field_select::selected_fields);
}

CommandResult check_hash(util::View<tir_context> context) {
  const auto function = rx_hash_fn(context.get(tir_context::rx_hash_fn));
  const bool direct = tir_disp_type(context.get(tir_context::disp_type)) == tir_disp_type::DIRECT;
  switch (function) {
    case rx_hash_fn::NONE:
      if (direct) return {};
      return refuse(Status::BAD_PARAM, "PRM Table 45", "an indirect TIR without hash function");
    case rx_hash_fn::INVERTED_XOR8:
    case rx_hash_fn::TOEPLITZ:
      if (direct) return refuse(Status::BAD_PARAM, "PRM Table 45", "a direct TIR that hashes");
      break;
    default:
      return refuse(Status::BAD_PARAM, "PRM Table 45", "unknown hash function");
  }
  if (selected(context.get(tir_context::rx_hash_field_selector_inner)) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 45",
                  "selector of inner fields, but tunneled_offload is not a capability");
  }
  constexpr std::uint32_t known =
      (1u << (static_cast<unsigned>(rx_hash_field_bit::IPSEC_SPI) + 1)) - 1;
  if ((selected(context.get(tir_context::rx_hash_field_selector_outer)) & ~known) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 47",
                  "selected_fields beyond addresses, ports and SPI");
  }
  return {};
}

CommandResult check_lro(util::View<tir_context> context) {
  if (context.get(tir_context::lro_enable_mask) != 0) {
    return refuse(Status::BAD_PARAM, "PRM 3.3.6", "LRO is not a capability");
  }
  return {};
}

CommandResult use_destination(DriverState& driver, util::View<tir_context> context,
                              Tir::Destination& to) {
  switch (tir_disp_type(context.get(tir_context::disp_type))) {
    case tir_disp_type::DIRECT:
      to.queue = driver.ethernet().receive_queues().find(Rqn(context.get(tir_context::inline_rqn)));
      if (to.queue == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.8.1", "unknown RQ");
      to.use = to.queue->use();
      return {};
    case tir_disp_type::INDIRECT:
      to.table = driver.ethernet().rqts().find(Rqtn(context.get(tir_context::indirect_table)));
      if (to.table == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.8.1", "unknown RQT");
      to.use = to.table->use();
      return {};
  }
  return refuse(Status::BAD_PARAM, "PRM Table 45", "unknown disp_type");
}

/// Checks a context, and acquires a use of each object that it refers to. Processes (DevX) may omit
/// the transport domain. No document says so, but rdma-core's own tests create TIRs without one.
CommandResult use_context(DriverState& driver, Uid uid, util::View<tir_context> context,
                          Tir::Destination& to) {
  if (context.get(tir_context::tls_en) != 0 || context.get(tir_context::tunneled_offload_en) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 45",
                  "tls_en and tunneled_offload_en are not capabilities");
  }
  if (auto used = use_destination(driver, context, to); !used) return used;
  auto& domains = driver.resources().transport_domains();
  const TransportDomain domain(context.get(tir_context::transport_domain));
  if (domains.contains(domain)) {
    to.domain_use = domains.use(domain);
  } else if (uid == UserContexts::kKernel || domain != Tir::kNoDomain) {
    return refuse(Status::BAD_RESOURCE, "PRM 12.8.1", "unknown transport domain");
  }
  if (auto checked = check_hash(context); !checked) return checked;
  return check_lro(context);
}

void merge_hash(util::MutableView<tir_context> to, util::View<tir_context> from) {
  const auto copy = [&](auto field) { to.set(field, from.get(field)); };
  copy(tir_context::rx_hash_fn);
  copy(tir_context::rx_hash_symmetric);
  const auto copy_bytes = [](auto out, auto in) {
    std::memcpy(out.bytes().data(), in.bytes().data(), in.bytes().size());
  };
  copy_bytes(to.sub(tir_context::rx_hash_field_selector_outer),
             from.get(tir_context::rx_hash_field_selector_outer));
  copy_bytes(to.sub(tir_context::rx_hash_field_selector_inner),
             from.get(tir_context::rx_hash_field_selector_inner));
  const auto key = from.get(tir_context::rx_hash_toeplitz_key);
  std::memcpy(to.sub(tir_context::rx_hash_toeplitz_key).data(), key.data(), key.size());
}

}  // namespace

CommandResult create_tir(DriverState& driver, const Command& command) {
  const auto context = command.input<create_tir_in>().get(create_tir_in::tir_context);
  Tir::Destination to;
  const Uid uid(command.uid);
  if (auto used = use_context(driver, uid, context, to); !used) return used;
  auto* tir = driver.ethernet().tirs().emplace();
  if (tir == nullptr) return refuse(Status::NO_RESOURCES, "PRM 7.5", "no TIR left");
  tir->set(SavedContext(context), std::move(to));
  command.output<create_tir_out>().set(create_tir_out::tirn, tir->number.value());
  return {};
}

CommandResult modify_tir(DriverState& driver, const Command& command) {
  const auto in = command.input<modify_tir_in>();
  auto* tir = driver.ethernet().tirs().find(Tirn(in.get(modify_tir_in::tirn)));
  if (tir == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.8.2", "unknown TIR");
  const auto mask = util::load_be64(in.get(modify_tir_in::modify_bitmask).bytes().data());
  constexpr auto known = bit(modify_tir_bit::LRO) | bit(modify_tir_bit::INDIRECT_TABLE) |
                         bit(modify_tir_bit::HASH) | bit(modify_tir_bit::SELF_LB_EN);
  if ((mask & ~known) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 48", "modify_bitmask has unknown bits");
  }
  // Merge the new context and check it as a whole, so that an error changes nothing.
  const auto from = in.get(modify_tir_in::tir_context);
  auto merged = tir->context();
  if ((mask & bit(modify_tir_bit::LRO)) != 0) {
    if (auto checked = check_lro(from); !checked) return checked;
  }
  if ((mask & bit(modify_tir_bit::INDIRECT_TABLE)) != 0) {
    merged.view().set(tir_context::indirect_table, from.get(tir_context::indirect_table));
  }
  if ((mask & bit(modify_tir_bit::HASH)) != 0) merge_hash(merged.view(), from);
  if ((mask & bit(modify_tir_bit::SELF_LB_EN)) != 0) {
    const auto to = merged.view();
    to.set(tir_context::self_lb_en_unicast, from.get(tir_context::self_lb_en_unicast));
    to.set(tir_context::self_lb_en_multicast, from.get(tir_context::self_lb_en_multicast));
  }
  Tir::Destination to;
  const Uid uid(command.uid);
  if (auto used = use_context(driver, uid, std::as_const(merged).view(), to); !used) return used;
  tir->set(merged, std::move(to));
  return {};
}

CommandResult destroy_tir(DriverState& driver, const Command& command) {
  const Tirn tirn(command.input<destroy_tir_in>().get(destroy_tir_in::tirn));
  auto* tir = driver.ethernet().tirs().find(tirn);
  if (tir == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.8.3", "unknown TIR");
  if (tir->in_use()) {
    return refuse(Status::BAD_RES_STATE, "PRM 12.8.3", "a flow forwards to the TIR");
  }
  driver.ethernet().tirs().erase(tirn);
  return {};
}

CommandResult query_tir(DriverState& driver, const Command& command) {
  auto* tir =
      driver.ethernet().tirs().find(Tirn(command.input<query_tir_in>().get(query_tir_in::tirn)));
  if (tir == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.8.4", "unknown TIR");
  tir->context().copy_to(command.output<query_tir_out>().sub(query_tir_out::tir_context));
  return {};
}

}  // namespace softhca::connectx
