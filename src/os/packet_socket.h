// A packet socket of Linux (packet(7)): all frames that a network interface receives, and frames
// sent through it.
//
// Frames that the host itself sends through the interface are not received, and frames sent here
// do not reach the host itself.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "os/frame_file.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::os {

class PacketSocket final : public FrameFile {
 public:
  /// Opens a socket at the Ethernet interface of this name, which becomes promiscuous.
  static util::Result<std::unique_ptr<PacketSocket>> open(const std::string& interface);

  int fd() const override { return fd_.get(); }
  unsigned interface() const override { return interface_; }
  Sent send(std::span<const iovec> pieces) override;
  /// A VLAN tag that the kernel has taken off is put back.
  Received receive(std::span<std::byte> room) override;
  std::uint64_t lost() override;

 private:
  PacketSocket(UniqueFd fd, unsigned interface) : fd_(std::move(fd)), interface_(interface) {}

  UniqueFd fd_;
  unsigned interface_;
  std::uint64_t lost_ = 0;
};

}  // namespace softhca::os
