// CREATE_RQT, MODIFY_RQT, DESTROY_RQT, QUERY_RQT (PRM 12.12).
#include <bit>
#include <utility>
#include <vector>

#include "connectx/command/commands.h"
#include "connectx/driver_state.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/transport_interface.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

using Entries = std::vector<Rqt::Entry>;

/// Cost of finding an RQ of a list and acquiring a use of it (util::WorkBudget).
constexpr std::int64_t kRqtListWork = 20;

/// Reads the list after a context. All its RQs must exist.
tl::expected<Entries, Refusal> read_list(DriverState& driver, const Command& command,
                                         util::View<rqt_context> context, std::uint32_t max_size,
                                         std::span<const std::byte> list) {
  const auto size = context.get(rqt_context::rqt_actual_size);
  if (!std::has_single_bit(size)) {
    return refuse(Status::BAD_PARAM, "PRM Table 59", "rqt_actual_size is not a power of two");
  }
  if (size > max_size) {
    return refuse(Status::BAD_PARAM, "PRM Table 59", "rqt_actual_size above rqt_max_size");
  }
  if (list.size() < std::size_t{size} * rqt_context::rq_num_size) {
    return refuse(Status::BAD_INPUT_LEN, "PRM 12.12.1", "the input ends before its RQ list");
  }
  command.work.charge(size * kRqtListWork);
  Entries entries(size);
  for (std::size_t i = 0; i < size; ++i) {
    const util::View<rqt_entry> entry(list.subspan(i * rqt_entry::kSize));
    const Rqn rqn(entry.get(rqt_entry::rq_num));
    auto* rq = driver.ethernet().receive_queues().find(rqn);
    if (rq == nullptr) {
      return refuse(Status::BAD_RESOURCE, "PRM 12.12.1", "unknown RQ in the list");
    }
    entries[i] = {rq, rq->use()};
  }
  return entries;
}

}  // namespace

CommandResult create_rqt(DriverState& driver, const Command& command) {
  const auto context = command.input<create_rqt_in>().get(create_rqt_in::rqt_context);
  const auto max_size = context.get(rqt_context::rqt_max_size);
  if (max_size > Limits::count(driver.limits().log_max_rqt_size)) {
    return refuse(Status::EXCEED_LIM, "PRM Table 59", "rqt_max_size above log_max_rqt_size");
  }
  if (!std::has_single_bit(max_size)) {
    return refuse(Status::BAD_PARAM, "PRM Table 59", "rqt_max_size is not a power of two");
  }
  if (context.get(rqt_context::list_q_type) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 59", "a table of queues other than RQs");
  }
  constexpr auto list_offset = create_rqt_in::rqt_context.kOffset + rqt_context::rq_num_offset;
  auto entries = read_list(driver, command, context, max_size, command.in_tail(list_offset));
  if (!entries) return tl::unexpected(entries.error());
  auto reservation = driver.ethernet().rqt_entries().reserve(max_size);
  if (!reservation) {
    return refuse(Status::NO_RESOURCES, "PRM 7.8", "too many entries of all RQTs");
  }
  auto* rqt = driver.ethernet().rqts().emplace();
  if (rqt == nullptr) return refuse(Status::NO_RESOURCES, "PRM 7.8", "no RQT left");
  rqt->max_size = max_size;
  rqt->reservation = *std::move(reservation);
  rqt->entries = *std::move(entries);
  command.output<create_rqt_out>().set(create_rqt_out::rqtn, rqt->number.value());
  return {};
}

CommandResult modify_rqt(DriverState& driver, const Command& command) {
  const auto in = command.input<modify_rqt_in>();
  auto* rqt = driver.ethernet().rqts().find(Rqtn(in.get(modify_rqt_in::rqtn)));
  if (rqt == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.12.2", "unknown RQT");
  const auto mask = in.get(modify_rqt_in::modify_bitmask);
  if (has_unknown_bits(mask, rqt_bitmask::rqn_list)) {
    return refuse(Status::BAD_PARAM, "PRM 12.12.2", "modify_bitmask has unknown bits");
  }
  if (mask.get(rqt_bitmask::rqn_list) == 0) return {};
  constexpr auto list_offset = modify_rqt_in::rqt_context.kOffset + rqt_context::rq_num_offset;
  auto entries = read_list(driver, command, in.get(modify_rqt_in::rqt_context), rqt->max_size,
                           command.in_tail(list_offset));
  if (!entries) return tl::unexpected(entries.error());
  rqt->entries = *std::move(entries);
  return {};
}

CommandResult destroy_rqt(DriverState& driver, const Command& command) {
  const Rqtn rqtn(command.input<destroy_rqt_in>().get(destroy_rqt_in::rqtn));
  auto* rqt = driver.ethernet().rqts().find(rqtn);
  if (rqt == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.12.3", "unknown RQT");
  if (rqt->in_use()) return refuse(Status::BAD_RES_STATE, "PRM 12.12.3", "a TIR uses the RQT");
  driver.ethernet().rqts().erase(rqtn);
  return {};
}

CommandResult query_rqt(DriverState& driver, const Command& command) {
  auto* rqt =
      driver.ethernet().rqts().find(Rqtn(command.input<query_rqt_in>().get(query_rqt_in::rqtn)));
  if (rqt == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.12.4", "unknown RQT");
  const auto context = command.output<query_rqt_out>().sub(query_rqt_out::rqt_context);
  context.set(rqt_context::rqt_max_size, rqt->max_size);
  context.set(rqt_context::rqt_actual_size, static_cast<std::uint32_t>(rqt->entries.size()));
  // Write as much of the list as fits into the output.
  auto list = command.out.subspan(query_rqt_out::rqt_context.kOffset + rqt_context::rq_num_offset);
  for (const auto& entry : rqt->entries) {
    if (list.size() < rqt_context::rq_num_size) break;
    util::store_be32(list.data(), entry.queue->rqn().value());
    list = list.subspan(rqt_context::rq_num_size);
  }
  return {};
}

}  // namespace softhca::connectx
