#include "honest.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "bounds.h"
#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "driver/vfio_user_host.h"
#include "loop_hca.h"
#include "os/unique_fd.h"

namespace softhca::neighbours {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSize = 64 << 10;  ///< work of one round
constexpr auto kPatience = 20s;
/// Before each look for a result: leaves the processors to the server and the hostile client.
constexpr auto kPause = 1ms;

/// Fills in bytes that differ by round.
void fill(std::span<std::byte> bytes, std::uint32_t round) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof round) {
    const auto word = round * 2654435761u + static_cast<std::uint32_t>(i);
    std::memcpy(&bytes[i], &word, sizeof word);
  }
}
void check_equal(std::span<const std::byte> from, std::span<const std::byte> to) {
  if (from.size() != to.size() || std::memcmp(from.data(), to.data(), from.size()) != 0) {
    throw std::runtime_error("the bytes are not those sent");
  }
}

class RdmaWriter final : public Worker {
 public:
  RdmaWriter(const std::string& socket, unsigned number)
      : hca_(socket, number, 2 * kSize), pair_(hca_.make_pair()) {}
  driver::Host& host() override { return hca_.host(); }
  void begin(std::uint32_t round) override {
    fill(from_, round);
    const auto piece = hca_.piece(0, kSize);
    if (pair_.from->post_send({.id = round,
                               .opcode = driver::SendOpcode::kRdmaWrite,
                               .pieces = {&piece, 1},
                               .remote_address = hca_.iova(kSize),
                               .rkey = hca_.key()}) != driver::PostStatus::kOk) {
      throw std::runtime_error("post_send");
    }
  }
  bool done(std::uint32_t round) override {
    driver::Completion done;
    if (hca_.cq().poll({&done, 1}) == 0) return false;
    if (done.status != driver::WorkStatus::kSuccess || done.id != round) {
      throw std::runtime_error("a message failed");
    }
    check_equal(from_, to_);
    return true;
  }

 private:
  LoopHca hca_;
  LoopPair pair_;
  std::span<std::byte> from_ = hca_.memory().first(kSize);
  std::span<std::byte> to_ = hca_.memory().subspan(kSize, kSize);
};

class SdxiCopier final : public Worker {
 public:
  explicit SdxiCopier(const std::string& socket)
      : host_(must(driver::VfioUserHost::connect(socket, {.timeout = 30s}))),
        function_(must(driver::sdxi::Function::bring_up(*host_, {.patience = kPatience}))),
        context_(must(function_->make_context())),
        from_(must(driver::DmaBuffer::allocate(*host_, kSize))),
        to_(must(driver::DmaBuffer::allocate(*host_, kSize))) {}
  driver::Host& host() override { return *host_; }
  void begin(std::uint32_t round) override {
    fill(from_.bytes(), round);
    copy_ = must(context_->copy({to_.iova()}, {from_.iova()}, kSize));
  }
  bool done(std::uint32_t) override {
    if (!context_->poll(copy_)) return false;
    must(context_->wait(copy_));
    check_equal(from_.bytes(), to_.bytes());
    return true;
  }

 private:
  std::unique_ptr<driver::VfioUserHost> host_;
  std::unique_ptr<driver::sdxi::Function> function_;
  std::unique_ptr<driver::sdxi::Context> context_;
  driver::DmaBuffer from_, to_;
  driver::sdxi::Completion copy_;
};

/// How long a thread has waited for a processor.
class ProcessorWaits {
 public:
  /// `schedstat`: the thread's file in /proc.
  explicit ProcessorWaits(const std::string& schedstat)
      : file_(::open(schedstat.c_str(), O_RDONLY | O_CLOEXEC)) {}
  /// The time until now. Zero if the kernel has no such file: then all time counts.
  util::Duration until_now() const {
    std::array<char, 128> text;
    const auto size = ::pread(file_.get(), text.data(), text.size(), 0);
    if (size <= 0) return {};
    // The time on processors, then the time of waiting, in ns.
    const std::string_view all(text.data(), static_cast<std::size_t>(size));
    const auto second = all.substr(std::min(all.find(' '), all.size() - 1) + 1);
    std::int64_t waits = 0;
    std::from_chars(second.data(), second.data() + second.size(), waits);
    return std::chrono::nanoseconds(waits);
  }

 private:
  os::UniqueFd file_;
};

std::uint32_t read_id(driver::Host& host) {
  std::uint32_t id = 0;
  host.read_config(0, std::as_writable_bytes(std::span(&id, 1)));
  return id;
}

}  // namespace

MakeWorker rdma_writes(std::string socket, unsigned number) {
  return
      [socket = std::move(socket), number] { return std::make_unique<RdmaWriter>(socket, number); };
}

MakeWorker sdxi_copies(std::string socket) {
  return [socket = std::move(socket)] { return std::make_unique<SdxiCopier>(socket); };
}

Honest::Honest(const char* what, MakeWorker make, pid_t server)
    : what_(what), make_(std::move(make)), server_(server), thread_([this] {
        try {
          work();
        } catch (const std::exception& error) {
          error_ = error.what();
        }
      }) {}

Honest::~Honest() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

void Honest::work() {
  const auto worker = make_();
  const auto id = read_id(worker->host());
  const ProcessorWaits own("/proc/thread-self/schedstat");
  const ProcessorWaits its("/proc/" + std::to_string(server_) + "/schedstat");
  const auto waits = [&] { return own.until_now() + its.until_now(); };
  for (std::uint32_t round = 1; !ending_; ++round) {
    worker->begin(round);
    // A register read between: a vCPU would wait for it.
    const auto before = waits();
    const auto start = util::monotonic_now();
    if (read_id(worker->host()) != id || id == ~0u) throw std::runtime_error("a read failed");
    const auto took = util::monotonic_now() - start;
    reads_.push_back(std::max(util::Duration::zero(), took - (waits() - before)));
    for (bool done = false; !done; done = worker->done(round)) {
      if (util::monotonic_now() - start > kPatience) throw std::runtime_error("it does not end");
      std::this_thread::sleep_for(kPause);
    }
    ++rounds_;
  }
}

bool Honest::advances(std::uint64_t rounds, util::Duration within) const {
  const auto wanted = rounds_ + rounds;
  const auto end = util::monotonic_now() + within;
  while (rounds_ < wanted && util::monotonic_now() < end) std::this_thread::sleep_for(1ms);
  return rounds_ >= wanted;
}

void Honest::end() {
  ending_ = true;
  thread_.join();
  EXPECT_EQ(error_, "") << what_;
  EXPECT_GT(rounds_, 0u) << what_;
  if (reads_.empty()) return;
  std::ranges::sort(reads_);
  const auto us = [](util::Duration time) {
    return static_cast<long long>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  };
  std::printf("  %s: %llu rounds; register reads: median %lld us, longest %lld us\n", what_,
              static_cast<unsigned long long>(rounds_), us(reads_[reads_.size() / 2]),
              us(reads_.back()));
  EXPECT_LT(reads_.back(), kWaitLimit) << what_;
}

}  // namespace softhca::neighbours
