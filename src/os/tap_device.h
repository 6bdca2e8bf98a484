// A TAP device of Linux: an interface whose other end is this process.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "os/frame_file.h"
#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::os {

class TapDevice final : public FrameFile {
 public:
  /// Attaches to the TAP device of this name. If there is none, makes one that goes with this
  /// object, and is down.
  static util::Result<std::unique_ptr<TapDevice>> open(const std::string& name);

  int fd() const override { return fd_.get(); }
  unsigned interface() const override { return interface_; }
  Sent send(std::span<const iovec> pieces) override;
  Received receive(std::span<std::byte> room) override;

 private:
  TapDevice(UniqueFd fd, unsigned interface) : fd_(std::move(fd)), interface_(interface) {}

  UniqueFd fd_;
  unsigned interface_;
};

}  // namespace softhca::os
