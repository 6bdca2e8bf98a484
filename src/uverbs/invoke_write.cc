// Commands that have the form of write() still (host-door contract 3.3, 3.5).
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>

#include "spec/connectx/caps.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/resources.h"
#include "uverbs/context.h"

namespace softhca::uverbs {

namespace spec = softhca::spec::connectx;
using spec::command_opcode;
using spec::hca_cap;
template <class Layout>
using Command = driver::connectx::Request<Layout>;

namespace {

constexpr std::uint16_t kCoreIn = UVERBS_ATTR_CORE_IN;
constexpr std::uint16_t kCoreOut = UVERBS_ATTR_CORE_OUT;
constexpr std::uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr std::uint32_t kAnyQp = 0xffffff;
constexpr unsigned kLogSmallPage = 12;
constexpr unsigned kLogPageMax = 30;

std::uint64_t firmware_number(const std::string& text) {
  unsigned major = 0, minor = 0, sub = 0;
  std::sscanf(text.c_str(), "%u.%u.%u", &major, &minor, &sub);
  return std::uint64_t{major} << 32 | minor << 16 | sub;
}

ib_uverbs_query_device_resp describe(Device& device) {
  const auto caps = device.capabilities();
  const auto count = [&](auto field) { return 1u << caps.get(field); };
  ib_uverbs_query_device_resp out{};
  out.fw_ver = firmware_number(device.hca().firmware_version());
  out.node_guid = out.sys_image_guid = __builtin_bswap64(device.options().node_guid);
  out.max_mr_size = UINT64_MAX;
  out.page_size_cap = ~std::uint64_t{0xfff};
  out.vendor_id = 0x15b3;
  out.vendor_part_id = 4115;
  out.max_qp = count(hca_cap::log_max_qp);
  out.max_qp_wr = count(hca_cap::log_max_qp_sz);
  // Port changes, system image GUID, RNR NAK generation: all mlx5 devices.
  out.device_cap_flags = 1u << 5 | 1u << 10 | 1u << 11 | 1u << 12;
  out.max_sge = 30;
  out.max_sge_rd = 30;
  out.max_cq = count(hca_cap::log_max_cq);
  out.max_cqe = count(hca_cap::log_max_cq_sz) - 1;
  out.max_mr = count(hca_cap::log_max_mkey);
  out.max_pd = count(hca_cap::log_max_pd);
  out.max_qp_rd_atom = count(hca_cap::log_max_ra_req_qp);
  out.max_qp_init_rd_atom = count(hca_cap::log_max_ra_res_qp);
  out.max_res_rd_atom = out.max_qp_rd_atom * out.max_qp;
  out.atomic_cap = 1;  // within this HCA
  out.max_ah = INT_MAX;
  out.max_pkeys = 1;
  out.local_ca_ack_delay = static_cast<std::uint8_t>(caps.get(hca_cap::local_ca_ack_delay));
  out.phys_port_cnt = 1;
  return out;
}

}  // namespace

Errno Context::invoke_write(Request& request) {
  struct WriteCommand {
    std::uint32_t number;
    std::uint16_t in;  ///< bytes that it has at least
    std::uint16_t out;
    Errno (Context::*serve)(Request&);
  };
  static constexpr WriteCommand kCommands[] = {
      {IB_USER_VERBS_CMD_QUERY_DEVICE, 8, 176, &Context::query_device},
      {IB_USER_VERBS_EX_CMD_QUERY_DEVICE | kExtended, 8, 184, &Context::query_device_extended},
      {IB_USER_VERBS_CMD_ALLOC_PD, 8, 4, &Context::alloc_pd},
      {IB_USER_VERBS_CMD_REG_MR, 40, 12, &Context::reg_mr},
      {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 8, 4, &Context::create_comp_channel},
      {IB_USER_VERBS_CMD_CREATE_AH, 56, 4, &Context::create_ah},
      {IB_USER_VERBS_CMD_MODIFY_QP, 112, 0, &Context::modify_qp},
      {IB_USER_VERBS_EX_CMD_MODIFY_QP | kExtended, 112, 0, &Context::modify_qp_extended},
      {IB_USER_VERBS_CMD_QUERY_QP, 16, 128, &Context::query_qp},
  };
  const auto number = request.get<std::uint32_t>(UVERBS_ATTR_WRITE_CMD);
  for (const auto& command : kCommands) {
    if (command.number != number) continue;
    if (request.size(kCoreIn) < command.in || request.size(kCoreOut) < command.out) return ENOSPC;
    return (this->*command.serve)(request);
  }
  return EOPNOTSUPP;
}

Errno Context::query_device(Request& request) { return request.put(kCoreOut, describe(device_)); }

Errno Context::query_device_extended(Request& request) {
  ib_uverbs_ex_query_device_resp out{};
  out.base = describe(device_);
  out.response_length = sizeof out;
  out.timestamp_mask = INT64_MAX;
  out.hca_core_clock = device_.capabilities().get(hca_cap::device_frequency_khz);
  out.device_cap_flags_ex = out.base.device_cap_flags;
  if (const auto wrong = request.put(kCoreOut, out); wrong != 0) return wrong;
  mlx5_ib_query_device_resp own{};
  own.response_length = offsetof(mlx5_ib_query_device_resp, tso_caps);
  const auto bytes = std::as_bytes(std::span(&own, 1));
  return request.put_bytes(UVERBS_ATTR_UHW_OUT, bytes.first(own.response_length));
}

Errno Context::alloc_pd(Request& request) {
  const auto out = device_.commands().execute<spec::alloc_pd_out>(
      Command<spec::alloc_pd_in>(command_opcode::ALLOC_PD));
  if (!out) return ENOMEM;
  const auto pdn = out->get(spec::alloc_pd_out::pd);
  const auto handle = objects_.add(std::make_unique<ProtectionDomain>(device_, pdn));
  auto wrong = request.put(kCoreOut, handle);  // ib_uverbs_alloc_pd_resp
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_UHW_OUT, mlx5_ib_alloc_pd_resp{.pdn = pdn});
  if (wrong != 0) objects_.remove(handle);
  return wrong;
}

namespace {

// ib_access_flags.
constexpr std::uint32_t kLocalWrite = 1;
constexpr std::uint32_t kRemoteWrite = 2;
constexpr std::uint32_t kRemoteRead = 4;
constexpr std::uint32_t kRemoteAtomic = 8;
constexpr std::uint32_t kZeroBased = 32;
constexpr std::uint32_t kOnDemand = 64;

Errno check(const ib_uverbs_reg_mr& in) {
  const auto end = in.start + in.length;
  if (end < in.start || end > Device::kProgramMemory || in.start % 4096 != in.hca_va % 4096) {
    return EINVAL;
  }
  const bool writes_remotely = (in.access_flags & (kRemoteWrite | kRemoteAtomic)) != 0;
  if (writes_remotely && (in.access_flags & kLocalWrite) == 0) return EINVAL;
  return (in.access_flags & (kOnDemand | kZeroBased)) != 0 ? EOPNOTSUPP : 0;
}

/// Tells whether the memory is there, as pinning it would: all of its pages come now.
Errno populate(const ib_uverbs_reg_mr& in) {
  if (in.length == 0) return 0;
  const auto first = in.start & ~std::uint64_t{4095};
  const auto size = ((in.start + in.length + 4095) & ~std::uint64_t{4095}) - first;
  const int advice =
      (in.access_flags & kLocalWrite) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (::madvise(reinterpret_cast<void*>(first), size, advice) == 0) return 0;
  if (errno == EINVAL) return 0;  // a kernel that cannot
  return errno == ENOMEM ? EFAULT : errno;
}

/// Pages of a region, as large as both of its addresses agree: its bus addresses follow each other.
struct Pages {
  explicit Pages(const ib_uverbs_reg_mr& in) {
    while (log_size < kLogPageMax && (in.start ^ in.hca_va) % (std::uint64_t{2} << log_size) == 0 &&
           (std::uint64_t{1} << log_size) < in.length) {
      ++log_size;
    }
    const auto size = std::uint64_t{1} << log_size;
    begin = in.start & ~(size - 1);
    count = in.length == 0 ? 0 : (in.start + in.length - begin + size - 1) / size;
  }
  unsigned log_size = kLogSmallPage;
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
};

/// CREATE_MKEY. Nothing if the device refuses.
std::optional<std::uint32_t> create_key(Device& device, const ib_uverbs_reg_mr& in,
                                        std::uint32_t pdn) {
  const Pages pages(in);
  const auto octwords = (pages.count * spec::mtt_entry::kSize + 15) / 16;
  Command<spec::create_mkey_in> create(command_opcode::CREATE_MKEY, octwords * 16);
  create.set(spec::create_mkey_in::translations_octword_actual_size,
             static_cast<std::uint32_t>(octwords));
  using Mkc = spec::mkey_context;
  const auto context = create.sub(spec::create_mkey_in::mkey_context);
  context.set(Mkc::access_mode, static_cast<std::uint32_t>(spec::mkey_access_mode::MTT));
  context.set(Mkc::lr, 1);
  context.set(Mkc::lw, (in.access_flags & kLocalWrite) != 0);
  context.set(Mkc::rr, (in.access_flags & kRemoteRead) != 0);
  context.set(Mkc::rw, (in.access_flags & kRemoteWrite) != 0);
  context.set(Mkc::a, (in.access_flags & kRemoteAtomic) != 0);
  context.set(Mkc::umr_en, 1);
  context.set(Mkc::pd, pdn);
  context.set(Mkc::qpn, kAnyQp);
  context.set(Mkc::start_addr, in.hca_va);
  context.set(Mkc::len, in.length);
  context.set(Mkc::translations_octword_size, static_cast<std::uint32_t>(octwords));
  context.set(Mkc::log_page_size, pages.log_size);
  const auto variant = device.hca().next_key_variant();
  context.set(Mkc::mkey, variant);
  auto list = create.all().subspan(spec::create_mkey_in::klm_pas_mtt_offset);
  for (std::uint64_t i = 0; i != pages.count; ++i, list = list.subspan(spec::mtt_entry::kSize)) {
    const auto address = Device::bus_address(pages.begin + (i << pages.log_size));
    util::MutableView<spec::mtt_entry>(list).set(spec::mtt_entry::ptag,
                                                 address >> spec::mtt_entry::ptag.kLo);
  }
  const auto out = device.commands().execute<spec::create_mkey_out>(create);
  if (!out) return std::nullopt;
  return out->get(spec::create_mkey_out::mkey_index) << 8 | variant;
}

}  // namespace

Errno Context::reg_mr(Request& request) {
  const auto in = request.get<ib_uverbs_reg_mr>(kCoreIn);
  auto* pd = objects_.find<ProtectionDomain>(in.pd_handle);
  if (pd == nullptr) return EINVAL;
  if (const auto wrong = check(in); wrong != 0) return wrong;
  if (const auto wrong = populate(in); wrong != 0) return wrong;
  const auto key = create_key(device_, in, pd->pdn);
  if (!key) return ENOMEM;
  auto region = std::make_unique<MemoryRegion>(device_, *pd);
  region->key = *key;
  region->memory = {.begin = in.start, .size = in.length};
  const auto handle = objects_.add(std::move(region));
  const std::array answer{handle, *key, *key};  // ib_uverbs_reg_mr_resp: the LKey is the RKey
  const auto wrong = request.put(kCoreOut, answer);
  if (wrong != 0) objects_.remove(handle);
  return wrong;
}

Errno Context::create_comp_channel(Request& request) {
  std::shared_ptr<EventFile> file;
  int number = 0;
  if (const auto wrong = new_event_file(sizeof(ib_uverbs_comp_event_desc), file, number);
      wrong != 0) {
    return wrong;
  }
  const auto wrong = request.put(
      kCoreOut, ib_uverbs_create_comp_channel_resp{.fd = static_cast<std::uint32_t>(number)});
  if (wrong != 0) {
    options_.take_back(number);
    return wrong;
  }
  channels_[options_.identify(number)] = std::move(file);
  return 0;
}

Errno Context::create_ah(Request& request) {
  const auto in = request.get<ib_uverbs_create_ah>(kCoreIn);
  if (objects_.find<ProtectionDomain>(in.pd_handle) == nullptr || in.attr.is_global == 0) {
    return EINVAL;
  }
  driver::Gid to;
  std::memcpy(to.bytes.data(), in.attr.grh.dgid, to.bytes.size());
  driver::Mac mac;
  if (device_.gid(in.attr.grh.sgid_index) == nullptr) return EINVAL;
  if (!device_.find_mac(to, mac)) return ENETUNREACH;
  mlx5_ib_create_ah_resp own{};
  own.response_length = offsetof(mlx5_ib_create_ah_resp, dmac) + sizeof own.dmac;
  std::memcpy(own.dmac, mac.bytes.data(), sizeof own.dmac);
  const auto handle = objects_.add(std::make_unique<AddressHandle>());
  auto wrong = request.put(kCoreOut, handle);  // ib_uverbs_create_ah_resp
  if (wrong == 0) wrong = request.put(UVERBS_ATTR_UHW_OUT, own);
  if (wrong != 0) objects_.remove(handle);
  return wrong;
}

Errno Context::modify_qp(Request& request) {
  const auto in = request.get<QpAttributes>(kCoreIn);
  auto* qp = objects_.find<QueuePair>(in.qp_handle);
  return qp == nullptr ? EINVAL : change_qp(*qp, in);
}

Errno Context::modify_qp_extended(Request& request) {
  if (const auto wrong = modify_qp(request); wrong != 0) return wrong;
  ib_uverbs_ex_modify_qp_resp out{};
  out.response_length = sizeof out;
  if (const auto wrong = request.put(kCoreOut, out); wrong != 0) return wrong;
  mlx5_ib_modify_qp_resp own{};
  own.response_length = offsetof(mlx5_ib_modify_qp_resp, dctn);
  return request.put(UVERBS_ATTR_UHW_OUT, own);
}

}  // namespace softhca::uverbs
