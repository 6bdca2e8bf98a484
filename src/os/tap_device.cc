#include "os/tap_device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "os/network_interface.h"

namespace softhca::os {
namespace {

constexpr const char* kFile = "/dev/net/tun";

tl::unexpected<util::Error> cannot_open() {
  switch (errno) {
    case ENOENT:
    case ENODEV:
      return util::fail(
          fmt::format("there is no {}: modprobe tun loads it; a container gets it by --device {}",
                      kFile, kFile));
    case EACCES:
    case EPERM:
      return util::fail(
          fmt::format("this user may not open {} (chmod 0666 is its usual mode)", kFile));
    default:
      return util::fail_errno(kFile);
  }
}

/// The reasons of TUNSETIFF.
tl::unexpected<util::Error> cannot_attach(const std::string& name) {
  const int reason = errno;
  const bool exists = ::if_nametoindex(name.c_str()) != 0;
  errno = reason;
  switch (reason) {
    case EPERM:
      return util::fail(fmt::format(
          "{}. As root: {}ip tuntap add dev {} mode tap user $USER && ip link set {} up",
          exists ? fmt::format("{} is not this user's", name)
                 : fmt::format("there is no {}, and making one needs CAP_NET_ADMIN", name),
          exists ? fmt::format("ip link delete {} && ", name) : "", name, name));
    case EBUSY:
      return util::fail(fmt::format("another program has {} open", name));
    case EINVAL:
      return util::fail(fmt::format(
          "{} is no TAP device with one queue; ip -d link show {} shows its kind", name, name));
    default:
      return util::fail_errno(name);
  }
}

}  // namespace

util::Result<std::unique_ptr<TapDevice>> TapDevice::open(const std::string& name) {
  if (auto good = check_interface_name(name); !good) return tl::unexpected(good.error());
  UniqueFd fd(::open(kFile, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return cannot_open();
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), name.size());
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (::ioctl(fd.get(), TUNSETIFF, &request) != 0) return cannot_attach(name);
  // An earlier program may have accepted merged frames and missing checksums.
  if (::ioctl(fd.get(), TUNSETOFFLOAD, 0ul) != 0) return util::fail_errno(name + ": TUNSETOFFLOAD");
  const auto interface = ::if_nametoindex(request.ifr_name);
  if (interface == 0) return util::fail_errno(name);
  return std::unique_ptr<TapDevice>(new TapDevice(std::move(fd), interface));
}

FrameFile::Sent TapDevice::send(std::span<const iovec> pieces) {
  if (::writev(fd_.get(), pieces.data(), static_cast<int>(pieces.size())) >= 0) return Sent::kSent;
  switch (errno) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
      return Sent::kFull;
    case EIO:  // the interface is not up
    case EBADFD:
      return Sent::kDown;
    case EFAULT:
      return Sent::kUnreadable;
    default:
      return Sent::kRefused;
  }
}

FrameFile::Received TapDevice::receive(std::span<std::byte> room) {
  using Status = Received::Status;
  const auto size = ::read(fd_.get(), room.data(), room.size());
  if (size > 0)
    return {
        .status = Status::kFrame, .frame = room.first(static_cast<std::size_t>(size)), .rest = {}};
  return {.status = size < 0 && errno == EBADFD ? Status::kGone : Status::kNothing,
          .frame = {},
          .rest = {}};
}

}  // namespace softhca::os
