#include "cli/sdxi_function.h"

#include <utility>

#include "driver/in_process_host.h"
#include "driver/sdxi/context.h"
#include "driver/vfio_host.h"
#include "driver/vfio_user_host.h"
#include "sdxi/device.h"
#include "sdxi/group.h"

namespace softhca::cli {

struct SdxiFunction::InProcess {
  sdxi::FunctionGroup group;
  sdxi::Device device{{}, group};
};

SdxiFunction::SdxiFunction() = default;
SdxiFunction::SdxiFunction(SdxiFunction&&) noexcept = default;
SdxiFunction::~SdxiFunction() {
  // The driver needs its host to stop the function.
  driver_.reset();
  host_.reset();
}

util::Result<SdxiFunction> SdxiFunction::open(const std::string& socket, const std::string& pci) {
  SdxiFunction function;
  if (!socket.empty()) {
    auto host = driver::VfioUserHost::connect(socket, {});
    if (!host) return tl::unexpected(host.error());
    function.host_ = *std::move(host);
  } else if (!pci.empty()) {
    auto host = driver::VfioHost::open(pci);
    if (!host) return tl::unexpected(host.error());
    function.host_ = *std::move(host);
  } else {
    function.in_process_ = std::make_unique<InProcess>();
    auto& device = function.in_process_->device;
    driver::InProcessHost::Options options;
    options.progress = [&device] { device.run(util::monotonic_now()); };
    function.host_ = std::make_unique<driver::InProcessHost>(device, std::move(options));
  }
  auto up = driver::sdxi::Function::bring_up(*function.host_);
  if (!up) return tl::unexpected(up.error());
  function.driver_ = *std::move(up);
  return function;
}

}  // namespace softhca::cli
