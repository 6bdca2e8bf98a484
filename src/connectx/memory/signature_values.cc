#include "connectx/memory/signature_values.h"

#include <array>

#include "spec/connectx/resources.h"
#include "spec/connectx/wqe.h"

namespace softhca::connectx {

namespace {

using PsvSegment = spec::connectx::wqe_set_psv_segment;

constexpr std::uint32_t kAtOnceMax = 4;

}  // namespace

CommandResult PsvTable::create(const Command& command) {
  using In = spec::connectx::create_psv_in;
  using Out = spec::connectx::create_psv_out;
  constexpr std::string_view kCreate = "mlx5 driver interface: CREATE_PSV";
  const auto in = command.input<In>();
  const auto count = in.get(In::num_psv);
  if (count == 0 || count > kAtOnceMax) {
    return refuse(Status::BAD_PARAM, kCreate, "num_psv is not between 1 and 4");
  }
  // The user context would own only one of the numbers in the output (opcodes.layout).
  if (count != 1 && Uid(command.uid) != UserContexts::kKernel) {
    return refuse(Status::BAD_PARAM, kCreate, "several PSVs at once for a user context");
  }
  const Pd pd(in.get(In::pd));
  if (!resources_.pds().contains(pd)) {
    return refuse(Status::BAD_RESOURCE, kCreate, "unknown PD");
  }
  if (table_.count() + count > kPsvsMax) {
    return refuse(Status::NO_RESOURCES, kCreate, "all PSVs are in use");
  }
  const auto out = command.output<Out>();
  std::array<std::uint32_t, kAtOnceMax> numbers{};
  for (std::uint32_t i = 0; i != count; ++i) {
    auto* psv = table_.emplace();
    psv->value.pd = pd;
    psv->pd_use = resources_.pds().use(pd);
    numbers[i] = psv->number.value();
  }
  out.set(Out::psv0_index, numbers[0]);
  out.set(Out::psv1_index, numbers[1]);
  out.set(Out::psv2_index, numbers[2]);
  out.set(Out::psv3_index, numbers[3]);
  return {};
}

CommandResult PsvTable::destroy(Psvn number) {
  if (table_.find(number) == nullptr) {
    return refuse(Status::BAD_RESOURCE, "mlx5 driver interface: DESTROY_PSV", "unknown PSV");
  }
  table_.erase(number);
  return {};
}

WqeFault PsvTable::check(std::span<const std::byte> body) {
  return body.size() < PsvSegment::kSize ? WqeFault::kSetPsvShort : WqeFault::kNone;
}

rdma::LocalOutcome PsvTable::set(std::span<const std::byte> body, const UmrUser& user) {
  const util::View<PsvSegment> segment(body);
  auto* psv = table_.find(Psvn(segment.get(PsvSegment::psv_num)));
  if (psv == nullptr || (psv->value.pd != user.pd && !user.any_pd)) {
    return refused(WqeFault::kPsvUnknown);
  }
  auto& value = psv->value;
  value.crc = segment.get(PsvSegment::transient_sig);
  value.guard = static_cast<std::uint16_t>(segment.get(PsvSegment::guard));
  value.app_tag = static_cast<std::uint16_t>(segment.get(PsvSegment::app_tag));
  value.ref_tag = segment.get(PsvSegment::ref_tag);
  return {};
}

}  // namespace softhca::connectx
