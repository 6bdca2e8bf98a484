// A lock in a server's memory, taken with compare and swap. Two clients add to a number next to it
// with a READ and a WRITE. Without the lock, additions would be lost.
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "driver/verbs/verbs.h"
#include "lab/lab.h"

using namespace softhca;
using namespace softhca::driver;
using namespace softhca::driver::verbs;

/// Layout of the server's memory, and of the client's copy.
struct Shared {
  std::uint64_t lock = 0;  ///< 0: free, otherwise the owner
  std::uint64_t number = 0;
};

struct End {
  explicit End(Device& device)
      : pd(device.allocate_pd().value()),
        region(
            pd.register_memory(std::as_writable_bytes(std::span(&shared, 1)), MemoryAccess::all())
                .value()),
        cq(device.create_cq().value()) {}
  QueuePair make_qp() { return pd.create_qp({.send_cq = cq, .receive_cq = cq}).value(); }

  Shared shared;
  ProtectionDomain pd;
  MemoryRegion region;
  CompletionQueue cq;
};

class Client {
 public:
  Client(Device& device, std::uint64_t name) : end_(device), name_(name), qp_(end_.make_qp()) {}
  QueuePair& qp() { return qp_; }

  /// Takes the lock if it is free.
  bool try_lock(const Endpoint& server) {
    run(SendOpcode::kCompareSwap, server, offsetof(Shared, lock), 0, name_);
    return end_.shared.lock == 0;  // the value before the swap
  }
  void unlock(const Endpoint& server) {
    run(SendOpcode::kCompareSwap, server, offsetof(Shared, lock), name_, 0);
  }
  void read(const Endpoint& server) {
    run(SendOpcode::kRdmaRead, server, offsetof(Shared, number));
  }
  void write_one_more(const Endpoint& server) {
    ++end_.shared.number;
    run(SendOpcode::kRdmaWrite, server, offsetof(Shared, number));
  }

 private:
  void run(SendOpcode opcode, const Endpoint& server, std::size_t offset, std::uint64_t compare = 0,
           std::uint64_t swap = 0) {
    const auto piece = end_.region.piece(offset, sizeof(std::uint64_t));
    const auto status = qp_.post_send({.opcode = opcode,
                                       .pieces = {&piece, 1},
                                       .remote_address = server.address + offset,
                                       .rkey = server.rkey,
                                       .compare = compare,
                                       .swap_or_add = swap});
    if (status != PostStatus::kOk || end_.cq.wait().value().status != WorkStatus::kSuccess) {
      throw std::runtime_error("a request has failed");
    }
  }

  End end_;
  std::uint64_t name_;
  QueuePair qp_;
};

/// Throws the reason if a step has failed.
void must(const util::Result<void>& done) {
  if (!done) throw std::runtime_error(done.error().message);
}

int main(int argc, char** argv) try {
  const std::string model = argc > 1 ? argv[1] : "connectx";
  lab::Lab lab({model, model, model});
  if (const auto has = lab.device(0).require(Feature::kAtomics); !has) {
    std::printf("%s\n", has.error().message.c_str());
    return 2;
  }
  End server(lab.device(0));
  Client first(lab.device(1), 1), second(lab.device(2), 2);
  auto to_first = server.make_qp(), to_second = server.make_qp();
  const auto there = describe(to_first, {.memory = &server.region});
  must(connect(first.qp(), to_first));
  must(connect(second.qp(), to_second));

  constexpr std::uint64_t kRounds = 500;
  unsigned waits = 0;
  for (std::uint64_t i = 0; i != kRounds; ++i) {
    // The second client tries while the first holds the lock, and has to wait.
    if (!first.try_lock(there)) return 1;
    first.read(there);
    waits += !second.try_lock(there);
    first.write_one_more(there);
    first.unlock(there);
    if (!second.try_lock(there)) return 1;
    second.read(there);
    second.write_one_more(there);
    second.unlock(there);
  }
  std::printf("%s: %llu additions, %u times the lock was taken\n",
              first.qp().device().model.c_str(),
              static_cast<unsigned long long>(server.shared.number), waits);
  return server.shared.number == 2 * kRounds && waits == kRounds && server.shared.lock == 0 ? 0 : 1;
} catch (const tl::bad_expected_access<util::Error>& failed) {
  std::fprintf(stderr, "%s\n", failed.error().message.c_str());
  return 1;
} catch (const std::exception& failed) {
  std::fprintf(stderr, "%s\n", failed.what());
  return 1;
}
