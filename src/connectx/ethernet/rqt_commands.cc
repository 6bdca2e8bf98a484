// CREATE_RQT, MODIFY_RQT, DESTROY_RQT, QUERY_RQT (PRM 12.12).
#include <bit>
#include <vector>

#include "connectx/command/commands.h"
#include "connectx/device.h"
#include "connectx/ethernet/ethernet.h"
#include "connectx/ethernet/receive_queue.h"
#include "connectx/ethernet/transport_interface.h"
#include "util/endian.h"

namespace softhca::connectx {

namespace {

using namespace spec::connectx;

using RqnList = std::vector<Rqn>;

/// The list behind a context, all of whose RQs exist.
tl::expected<RqnList, Refusal> read_list(Device& device, util::View<rqt_context> context,
                                         std::uint32_t max_size, std::span<const std::byte> list) {
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
  RqnList rqns(size);
  for (std::size_t i = 0; i < size; ++i) {
    constexpr std::uint32_t kNumberMask = 0xFFFFFF;
    rqns[i] = Rqn(util::load_be32(list.data() + i * rqt_context::rq_num_size) & kNumberMask);
    if (device.ethernet().receive_queues().find(rqns[i]) == nullptr) {
      return refuse(Status::BAD_RESOURCE, "PRM 12.12.1", "unknown RQ in the list");
    }
  }
  return rqns;
}

/// Counts the uses of the new list before it releases the old one's.
void replace_list(Device& device, Rqt& rqt, RqnList rqns) {
  auto& queues = device.ethernet().receive_queues();
  for (const auto rqn : rqns) ++queues.find(rqn)->users;
  for (const auto rqn : rqt.rqns) --queues.find(rqn)->users;
  rqt.rqns = std::move(rqns);
}

}  // namespace

CommandResult create_rqt(Device& device, const Command& command) {
  const auto context = command.input<create_rqt_in>().get(create_rqt_in::rqt_context);
  const auto max_size = context.get(rqt_context::rqt_max_size);
  if (max_size > Limits::count(device.limits().log_max_rqt_size)) {
    return refuse(Status::EXCEED_LIM, "PRM Table 59", "rqt_max_size above log_max_rqt_size");
  }
  if (!std::has_single_bit(max_size)) {
    return refuse(Status::BAD_PARAM, "PRM Table 59", "rqt_max_size is not a power of two");
  }
  if (context.get(rqt_context::list_q_type) != 0) {
    return refuse(Status::BAD_PARAM, "PRM Table 59", "a table of queues other than RQs");
  }
  constexpr auto list_offset = create_rqt_in::rqt_context.kOffset + rqt_context::rq_num_offset;
  auto rqns = read_list(device, context, max_size, command.in_tail(list_offset));
  if (!rqns) return tl::unexpected(rqns.error());
  auto* rqt = device.ethernet().rqts().emplace();
  if (rqt == nullptr) return refuse(Status::NO_RESOURCES, "PRM 7.8", "no RQT left");
  rqt->max_size = max_size;
  replace_list(device, *rqt, std::move(*rqns));
  command.output<create_rqt_out>().set(create_rqt_out::rqtn, rqt->number.value());
  return {};
}

CommandResult modify_rqt(Device& device, const Command& command) {
  const auto in = command.input<modify_rqt_in>();
  auto* rqt = device.ethernet().rqts().find(Rqtn(in.get(modify_rqt_in::rqtn)));
  if (rqt == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.12.2", "unknown RQT");
  if (in.get(modify_rqt_in::modify_bitmask).get(rqt_bitmask::rqn_list) == 0) return {};
  constexpr auto list_offset = modify_rqt_in::rqt_context.kOffset + rqt_context::rq_num_offset;
  auto rqns = read_list(device, in.get(modify_rqt_in::rqt_context), rqt->max_size,
                        command.in_tail(list_offset));
  if (!rqns) return tl::unexpected(rqns.error());
  replace_list(device, *rqt, std::move(*rqns));
  return {};
}

CommandResult destroy_rqt(Device& device, const Command& command) {
  const Rqtn rqtn(command.input<destroy_rqt_in>().get(destroy_rqt_in::rqtn));
  auto* rqt = device.ethernet().rqts().find(rqtn);
  if (rqt == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.12.3", "unknown RQT");
  if (rqt->users != 0) return refuse(Status::BAD_RES_STATE, "PRM 12.12.3", "a TIR uses the RQT");
  replace_list(device, *rqt, {});
  device.ethernet().rqts().erase(rqtn);
  return {};
}

CommandResult query_rqt(Device& device, const Command& command) {
  auto* rqt =
      device.ethernet().rqts().find(Rqtn(command.input<query_rqt_in>().get(query_rqt_in::rqtn)));
  if (rqt == nullptr) return refuse(Status::BAD_RESOURCE, "PRM 12.12.4", "unknown RQT");
  const auto context = command.output<query_rqt_out>().sub(query_rqt_out::rqt_context);
  context.set(rqt_context::rqt_max_size, rqt->max_size);
  context.set(rqt_context::rqt_actual_size, static_cast<std::uint32_t>(rqt->rqns.size()));
  // As much of the list as the sender has room for.
  auto list = command.out.subspan(query_rqt_out::rqt_context.kOffset + rqt_context::rq_num_offset);
  for (const auto rqn : rqt->rqns) {
    if (list.size() < rqt_context::rq_num_size) break;
    util::store_be32(list.data(), rqn.value());
    list = list.subspan(rqt_context::rq_num_size);
  }
  return {};
}

}  // namespace softhca::connectx
