// Two HCAs send each other a message a thousand times over a reliable connection.
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "driver/verbs/verbs.h"
#include "lab/lab.h"

using namespace softhca;
using namespace softhca::driver;
using namespace softhca::driver::verbs;

/// The objects of one end. If a step fails, value() throws the reason.
struct End {
  explicit End(Device& device)
      : pd(device.allocate_pd().value()),
        region(pd.register_memory(memory).value()),
        cq(device.create_cq().value()),
        qp(pd.create_qp({.send_cq = cq, .receive_cq = cq}).value()) {}

  char* text() { return reinterpret_cast<char*>(memory.data()); }
  bool expect() {  // a receive must be posted before its SEND
    const auto piece = region.piece(0, memory.size());
    return qp.post_receive({.pieces = {&piece, 1}}) == PostStatus::kOk;
  }
  bool send() {
    const auto piece = region.piece(0, memory.size());
    return qp.post_send({.pieces = {&piece, 1}}) == PostStatus::kOk;
  }
  bool finish() {  // one completion, of a SEND or of a receive
    const auto done = cq.wait();
    if (!done) return std::printf("%s\n", done.error().message.c_str()), false;
    return done->status == WorkStatus::kSuccess;
  }

  std::array<std::byte, 64> memory{};
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
  lab::Lab lab({model, model});  // two devices on a switch
  End a(lab.device(0)), b(lab.device(1));
  must(connect(a.qp, b.qp));  // RESET -> INIT -> RTR -> RTS, for both

  constexpr int kRounds = 1000;
  for (int i = 0; i != kRounds; ++i) {
    End& from = i % 2 == 0 ? a : b;
    End& to = i % 2 == 0 ? b : a;
    std::snprintf(from.text(), from.memory.size(), "message %d", i);
    if (!to.expect() || !from.send()) return 1;
    if (!to.finish() || !from.finish()) return 1;
  }
  std::printf("%s: %d messages, the last: %s\n", a.qp.device().model.c_str(), kRounds, a.text());
  return std::strcmp(a.text(), "message 999") == 0 ? 0 : 1;
} catch (const tl::bad_expected_access<util::Error>& failed) {
  std::fprintf(stderr, "%s\n", failed.error().message.c_str());
  return 1;
} catch (const std::exception& failed) {
  std::fprintf(stderr, "%s\n", failed.what());
  return 1;
}
