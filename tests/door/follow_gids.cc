// Prints the IPv4 GIDs of the first device, and again after each event that reports a change of the
// table: follow_gids TIMES
#include <infiniband/verbs.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void print(ibv_context* context) {
  std::vector<ibv_gid_entry> entries(256);
  const auto count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  std::printf("gids");
  for (int i = 0; i < count; ++i) {
    const auto& entry = entries[static_cast<std::size_t>(i)];
    const auto* at = entry.gid.raw;
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || entry.gid.global.subnet_prefix != 0) continue;
    std::printf(" %u:%u.%u.%u.%u", entry.gid_index, at[12], at[13], at[14], at[15]);
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int count = 0;
  auto** const list = ibv_get_device_list(&count);
  auto* const context = count == 0 ? nullptr : ibv_open_device(list[0]);
  if (context == nullptr) return 1;
  print(context);
  for (int left = std::atoi(argv[1]); left != 0; --left) {
    ibv_async_event event;
    if (ibv_get_async_event(context, &event) != 0) return 1;
    if (event.event_type != IBV_EVENT_GID_CHANGE || event.element.port_num != 1) return 1;
    ibv_ack_async_event(&event);
    print(context);
  }
  ibv_close_device(context);
  ibv_free_device_list(list);
}
