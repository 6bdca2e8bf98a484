// A shared library with a device that it closes as the process ends (lives_ends.cc).
#include <infiniband/verbs.h>

#include <cstdio>

namespace {

struct Owner {
  ibv_context* context = nullptr;
  ~Owner() {
    if (context != nullptr && ibv_close_device(context) == 0) std::puts("closed");
    std::fflush(stdout);
  }
};
Owner owner;

}  // namespace

extern "C" void open_device() {
  auto** const list = ibv_get_device_list(nullptr);
  owner.context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
}
