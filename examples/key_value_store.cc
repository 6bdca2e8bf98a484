// A key-value store whose server sleeps: a client finds keys in the server's memory with RDMA READ
// alone. The table is an array of slots, and a key is in the slot of its hash or in one of the
// next. A slot has a version at both ends, so that a reader notices a concurrent write.
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "driver/verbs/verbs.h"
#include "lab/lab.h"

using namespace softhca;
using namespace softhca::driver;
using namespace softhca::driver::verbs;

struct Slot {
  std::uint32_t version = 0;  ///< 0: empty
  char key[24] = {};
  char value[96] = {};
  std::uint32_t same_version = 0;
};
constexpr std::size_t kSlots = 4096, kProbes = 16;

std::size_t slot_of(const std::string& key) { return std::hash<std::string>()(key) % kSlots; }

/// The server: memory, and the code that writes to it. It posts and polls nothing.
struct Server {
  explicit Server(Device& device)
      : pd(device.allocate_pd().value()),
        region(pd.register_memory(std::as_writable_bytes(std::span(table)), {.remote_read = true})
                   .value()),
        cq(device.create_cq().value()),
        qp(pd.create_qp({.send_cq = cq, .receive_cq = cq}).value()) {}

  bool put(const std::string& key, const std::string& value) {
    for (std::size_t i = 0; i != kProbes; ++i) {
      Slot& slot = table[(slot_of(key) + i) % kSlots];
      if (slot.version != 0 && key != slot.key) continue;
      ++slot.version;  // while they differ, a reader retries
      std::snprintf(slot.key, sizeof(slot.key), "%s", key.c_str());
      std::snprintf(slot.value, sizeof(slot.value), "%s", value.c_str());
      slot.same_version = slot.version;
      return true;
    }
    return false;
  }

  std::vector<Slot> table = std::vector<Slot>(kSlots);
  ProtectionDomain pd;
  MemoryRegion region;
  CompletionQueue cq;
  QueuePair qp;
};

/// The client: one slot of memory that READs go to.
struct Client {
  explicit Client(Device& device)
      : pd(device.allocate_pd().value()),
        region(pd.register_memory(std::as_writable_bytes(std::span(&slot, 1))).value()),
        cq(device.create_cq().value()),
        qp(pd.create_qp({.send_cq = cq, .receive_cq = cq}).value()) {}

  bool read(const Endpoint& server, std::size_t index) {
    const auto piece = region.piece(0, sizeof(Slot));
    const auto status = qp.post_send({.opcode = SendOpcode::kRdmaRead,
                                      .pieces = {&piece, 1},
                                      .remote_address = server.address + index * sizeof(Slot),
                                      .rkey = server.rkey});
    const auto done = cq.wait();
    return status == PostStatus::kOk && done && done->status == WorkStatus::kSuccess;
  }
  std::optional<std::string> get(const Endpoint& server, const std::string& key) {
    for (std::size_t i = 0; i != kProbes; ++i) {
      do {
        if (!read(server, (slot_of(key) + i) % kSlots)) return std::nullopt;
      } while (slot.version != slot.same_version);
      if (slot.version == 0) return std::nullopt;
      if (key == slot.key) return slot.value;
    }
    return std::nullopt;
  }

  Slot slot;
  ProtectionDomain pd;
  MemoryRegion region;
  CompletionQueue cq;
  QueuePair qp;
};

/// Throws the reason if a step has failed.
void must(const util::Result<void>& done) {
  if (!done) throw std::runtime_error(done.error().message);
}

int main(int argc, char** argv) try {
  const std::string model = argc > 1 ? argv[1] : "connectx";
  lab::Lab lab({model, model});
  Server server(lab.device(0));
  Client client(lab.device(1));
  // The server's description also names its memory: address and rkey.
  const auto there = describe(server.qp, {.memory = &server.region});
  must(connect(server.qp, describe(client.qp)));
  must(connect(client.qp, there));

  constexpr int kKeys = 1000;
  for (int i = 0; i != kKeys; ++i) {
    if (!server.put("key " + std::to_string(i), "value " + std::to_string(i * i))) return 1;
  }
  server.put("key 7", "a newer value");
  int right = 0;
  for (int i = 0; i != kKeys; ++i) {
    const auto expected = i == 7 ? "a newer value" : "value " + std::to_string(i * i);
    right += client.get(there, "key " + std::to_string(i)) == expected;
  }
  const bool absent = !client.get(there, "no such key");
  std::printf("%s: %d of %d keys found, another %s\n", client.qp.device().model.c_str(), right,
              kKeys, absent ? "is not there" : "is there, too");
  return right == kKeys && absent ? 0 : 1;
} catch (const tl::bad_expected_access<util::Error>& failed) {
  std::fprintf(stderr, "%s\n", failed.error().message.c_str());
  return 1;
} catch (const std::exception& failed) {
  std::fprintf(stderr, "%s\n", failed.what());
  return 1;
}
