#include "door/nldev/nldev.h"

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_netlink.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>

namespace softhca::door::nldev {
namespace {

constexpr std::uint32_t kPort = 1;
/// RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE of Linux 6.5: the next value of an enumeration that
/// grows.
constexpr std::uint16_t kPrivilegedQkey = RDMA_NLDEV_ATTR_STAT_HWCOUNTER_DYNAMIC + 1;
/// RDMA_NLDEV_SYS_ATTR_MONITOR_MODE of Linux 6.12, in the same enumeration.
constexpr std::uint16_t kMonitor = kPrivilegedQkey + 7;
/// RDMA_NODE_IB_CA of the kernel's include/rdma/ib_verbs.h.
constexpr std::uint8_t kNodeCa = 1;

/// huge_encode_dev() of the kernel's include/linux/kdev_t.h.
std::uint64_t encoded(dev_t number) {
  const std::uint64_t minor = ::minor(number);
  return (minor & 0xff) | std::uint64_t{::major(number)} << 8 |  // no format: the kernel's own
         (minor & ~std::uint64_t{0xff}) << 12;                   // no format: as above
}

void put_handle(Replies& to, const Device& device) {
  to.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, device.index);
  to.put_text(RDMA_NLDEV_ATTR_DEV_NAME, device.name);
}

void put_device(Replies& to, const Device& device) {
  put_handle(to, device);
  to.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);  // number of ports
  to.put_u64(RDMA_NLDEV_ATTR_CAP_FLAGS, device.capabilities);
  to.put_text(RDMA_NLDEV_ATTR_FW_VERSION, device.firmware);
  to.put_u64(RDMA_NLDEV_ATTR_NODE_GUID, device.node_guid);
  to.put_u64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, device.system_image_guid);
  to.put_u8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, kNodeCa);
  to.put_u8(RDMA_NLDEV_ATTR_DEV_DIM, 1);  // mlx5_ib supports adaptive CQ moderation
  to.put_text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce");
}

void put_port(Replies& to, const Device& device) {
  put_handle(to, device);
  to.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  to.put_u8(RDMA_NLDEV_ATTR_PORT_STATE, device.port_state);
  to.put_u8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, device.physical_state);
  if (device.interface_index == 0) return;
  to.put_u32(RDMA_NLDEV_ATTR_NDEV_INDEX, device.interface_index);
  to.put_text(RDMA_NLDEV_ATTR_NDEV_NAME, device.interface);
}

void put_file(Replies& to, const CharacterDevice& file) {
  to.put_text(RDMA_NLDEV_ATTR_CHARDEV_NAME, file.name);
  to.put_u64(RDMA_NLDEV_ATTR_CHARDEV_ABI, file.abi);
  to.put_u64(RDMA_NLDEV_ATTR_CHARDEV, encoded(file.number));
}

class Answer {
 public:
  Answer(const Request& request, std::uint32_t port, const System& system)
      : request_(request), system_(system), replies_(request.header, port) {}

  Replies::Datagrams run() {
    const auto type = request_.header.nlmsg_type;
    const bool ours = RDMA_NL_GET_CLIENT(type) == RDMA_NL_NLDEV;
    const int failed = ours ? answer(RDMA_NL_GET_OP(type)) : EINVAL;
    // The end of a dump (NLMSG_DONE) acknowledges it.
    const bool wants_word = request_.has_flags(NLM_F_ACK) && !is_dumped_;
    if (failed != 0 || wants_word) replies_.error(failed);
    return replies_.take();
  }

 private:
  /// Returns an errno, or 0.
  int answer(unsigned command) {
    switch (command) {
      case RDMA_NLDEV_CMD_GET:
        return get_devices();
      case RDMA_NLDEV_CMD_PORT_GET:
        return get_port();
      case RDMA_NLDEV_CMD_GET_CHARDEV:
        return get_file();
      case RDMA_NLDEV_CMD_SYS_GET:
        replies_.begin();
        replies_.put_u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1);
        replies_.put_u8(kPrivilegedQkey, 0);
        replies_.put_u8(RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1);
        replies_.put_u8(kMonitor, 1);
        return 0;
      default:
        return EOPNOTSUPP;
    }
  }

  /// Null: no index was given, or there is no such device.
  const Device* device() const {
    const auto index = request_.u32(RDMA_NLDEV_ATTR_DEV_INDEX);
    const auto at = std::ranges::find_if(
        system_.devices, [&index](const Device& one) { return index && one.index == *index; });
    return at == system_.devices.end() ? nullptr : &*at;
  }

  bool is_dump() const { return request_.has_flags(NLM_F_DUMP); }

  int get_devices() {
    if (is_dump()) {
      for (const auto& one : system_.devices) {
        replies_.begin(NLM_F_MULTI);
        put_device(replies_, one);
      }
      return end_dump();
    }
    const auto* const one = device();
    if (one == nullptr) return EINVAL;
    replies_.begin();
    put_device(replies_, *one);
    return 0;
  }

  int get_port() {
    const auto* const one = device();
    const bool dump = is_dump();
    if (one == nullptr || (!dump && request_.u32(RDMA_NLDEV_ATTR_PORT_INDEX) != kPort)) {
      return EINVAL;
    }
    replies_.begin(dump ? NLM_F_MULTI : 0);
    put_port(replies_, *one);
    return dump ? end_dump() : 0;
  }

  int get_file() {
    const auto type = request_.text(RDMA_NLDEV_ATTR_CHARDEV_TYPE);
    if (!type) return EINVAL;
    if (!request_.attributes.contains(RDMA_NLDEV_ATTR_DEV_INDEX)) {
      if (*type != "rdma_cm") return ENOENT;
      replies_.begin();
      put_file(replies_, system_.rdma_cm);
      return 0;
    }
    const auto* const one = device();
    if (one == nullptr) return EINVAL;
    if (*type != "uverbs") return ENOENT;
    replies_.begin();
    replies_.put_u32(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, RDMA_DRIVER_MLX5);
    put_file(replies_, one->uverbs);
    return 0;
  }

  int end_dump() {
    is_dumped_ = true;
    replies_.done();
    return 0;
  }

  const Request& request_;
  const System& system_;
  Replies replies_;
  bool is_dumped_ = false;
};

}  // namespace

Replies::Datagrams answer(Bytes requests, std::uint32_t port, const System& system) {
  Replies::Datagrams all;
  while (const auto request = take_request(requests)) {
    if (!request->has_flags(NLM_F_REQUEST)) continue;
    for (auto& one : Answer(*request, port, system).run()) all.push_back(std::move(one));
  }
  return all;
}

}  // namespace softhca::door::nldev
