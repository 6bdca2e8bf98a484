#include "uverbs/flow_counters.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "spec/connectx/flow_table.h"
#include "util/endian.h"
#include "uverbs/device_command.h"
#include "uverbs/reply.h"

namespace softhca::uverbs {

using Op = spec::command_opcode;

namespace {

using namespace rules;

/// ib_counters_description.
enum Description : std::uint32_t { kPackets, kBytes };
/// Limits of the mlx5 driver: descriptions a call, and indexes in an answer.
constexpr std::uint32_t kPlacesMax = 2;
constexpr std::uint32_t kIndexMax = 4096;

constexpr AttributeRule kCreateCounters[] = {made(UVERBS_ATTR_CREATE_COUNTERS_HANDLE)};
constexpr AttributeRule kDestroyCounters[] = {object(UVERBS_ATTR_DESTROY_COUNTERS_HANDLE)};
constexpr AttributeRule kReadCounters[] = {object(UVERBS_ATTR_READ_COUNTERS_HANDLE),
                                           out(UVERBS_ATTR_READ_COUNTERS_BUFF, 0),
                                           flags_in(UVERBS_ATTR_READ_COUNTERS_FLAGS, true)};

/// Allocates a device counter. 0: the device refuses.
std::uint32_t make_counter(Device& device) {
  const Command<spec::alloc_flow_counter_in> in(Op::ALLOC_FLOW_COUNTER);
  const auto out = device.commands().execute<spec::alloc_flow_counter_out>(in);
  return out ? out->get(spec::alloc_flow_counter_out::flow_counter_id) : 0;
}

}  // namespace

Counters::~Counters() {
  if (id == 0) return;
  Command<spec::dealloc_flow_counter_in> in(Op::DEALLOC_FLOW_COUNTER);
  in.set(spec::dealloc_flow_counter_in::flow_counter_id, id);
  report(device.commands().run(in));
}

std::span<const Method<CounterCommands>> CounterCommands::methods() {
  static constexpr Method<CounterCommands> kMethods[] = {
      {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE, kCreateCounters,
       &CounterCommands::create_counters},
      {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY, kDestroyCounters,
       &CounterCommands::destroy_counters},
      {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ, kReadCounters,
       &CounterCommands::read_counters},
  };
  return kMethods;
}

Errno CounterCommands::create_counters(Request& request) {
  return Reply(request, file_.objects, std::make_unique<Counters>(file_.device))
      .put_handle(UVERBS_ATTR_CREATE_COUNTERS_HANDLE)
      .end();
}

Errno CounterCommands::read_counters(Request& request) {
  Counters* counters = nullptr;
  const auto handle = request.number(UVERBS_ATTR_READ_COUNTERS_HANDLE);
  if (const auto missing = file_.objects.find(handle, counters); missing != 0) return missing;
  if (counters->users == 0 || counters->id == 0) return EINVAL;  // bound to no flow
  constexpr std::uint32_t kPreferCached = IB_UVERBS_READ_COUNTERS_PREFER_CACHED;
  const auto flags = request.get<std::uint32_t>(UVERBS_ATTR_READ_COUNTERS_FLAGS);
  if ((flags & ~kPreferCached) != 0) return EINVAL;
  std::vector<std::uint64_t> values(request.size(UVERBS_ATTR_READ_COUNTERS_BUFF) /
                                    sizeof(std::uint64_t));
  for (const auto& place : counters->places) {
    if (place.index >= values.size()) return EINVAL;
  }
  using In = spec::query_flow_counter_in;
  Command<In> in(Op::QUERY_FLOW_COUNTER);
  in.set(In::flow_counter_id, counters->id);
  const auto out = file_.device.commands().execute<spec::query_flow_counter_out>(
      in, spec::query_flow_counter_out::flow_statistics_size);
  if (!out) return EINVAL;
  // PRM Table 457: packets, then bytes.
  const auto* const now =
      out->all().subspan(spec::query_flow_counter_out::flow_statistics_offset).data();
  for (const auto& place : counters->places) {
    values[place.index] += util::load_be64(now + (place.description == kPackets ? 0 : 8));
  }
  return request.put_bytes(UVERBS_ATTR_READ_COUNTERS_BUFF, std::as_bytes(std::span(values)));
}

Errno CounterCommands::destroy_counters(Request& request) {
  return destroy_object<Counters>(file_.objects,
                                  request.number(UVERBS_ATTR_DESTROY_COUNTERS_HANDLE));
}

Errno count_by(const OpenFile& file, const Request& request, std::uint32_t handle, Flow& flow,
               FlowRule& rule) {
  Counters* counters = nullptr;
  if (const auto missing = file.objects.find(handle, counters); missing != 0) return missing;
  // The driver's part of the call. Only the first flow that uses the counters brings it.
  struct Own {
    std::uint32_t count, reserved;
    mlx5_ib_flow_counters_data data;
  };
  const auto in = request.get<Own>(UVERBS_ATTR_UHW_IN);
  if (in.count > 1 || in.data.ncounters > kPlacesMax) return EINVAL;
  // The descriptions can be replaced only while no flow uses the counters.
  const bool bound = counters->users != 0;
  if (in.count == 1 && in.data.ncounters != 0) {
    if (bound) return EINVAL;
    std::vector<mlx5_ib_flow_counters_desc> places(in.data.ncounters);
    if (!file.memory.read(in.data.counters_data, std::as_writable_bytes(std::span(places)))) {
      return EFAULT;
    }
    for (const auto& place : places) {
      if (place.description > kBytes || place.index >= kIndexMax) return EINVAL;
    }
    counters->places = std::move(places);
  } else if (!bound) {
    return EINVAL;
  }
  if (counters->id == 0) counters->id = make_counter(file.device);
  if (counters->id == 0) return ENOMEM;
  rule.counters.push_back(counters->id);
  flow.counters.emplace_back(counters);
  return 0;
}

}  // namespace softhca::uverbs
