#include "cli/sdxi_copy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "cli/exit_status.h"
#include "cli/progress_bar.h"
#include "cli/sdxi_function.h"
#include "cli/stop_signals.h"
#include "driver/dma_memory.h"
#include "driver/sdxi/context.h"
#include "os/unique_fd.h"
#include "run/number_options.h"

namespace softhca::cli {
namespace {

using driver::sdxi::Context;
using driver::sdxi::Descriptor;
using os::UniqueFd;

constexpr unsigned kVector = 1;  ///< interrupt vector for completions; the function itself uses 0
constexpr auto kReaderInterval = std::chrono::milliseconds(10);

/// While the other end of a pipe is not open yet, or silent, Ctrl-C must still end the copy. So
/// files are opened with O_NONBLOCK, and poll(2) waits.
bool must_wait(int error) { return error == EAGAIN || error == EINTR; }

/// The file to read.
struct Source {
  UniqueFd fd;
  struct stat status{};

  static util::Result<Source> open(const std::string& path) {
    Source source;
    source.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!source.fd || ::fstat(source.fd.get(), &source.status) != 0) return util::fail_errno(path);
    if (S_ISDIR(source.status.st_mode)) return util::fail(path + ": is a directory");
    return source;
  }
  std::optional<std::uint64_t> size() const {
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    return static_cast<std::uint64_t>(status.st_size);
  }
  /// Reads until `out` is full, the file ends or a signal comes. Returns the bytes read.
  util::Result<std::size_t> read(std::span<std::byte> out) const {
    std::size_t done = 0;
    // Before a writer has opened a pipe, read(2) would return its end; poll(2) waits for it.
    while (done < out.size() && StopSignals::wait(fd.get(), POLLIN)) {
      const auto got = ::read(fd.get(), out.data() + done, out.size() - done);
      if (got == 0) break;
      if (got < 0 && must_wait(errno)) continue;
      if (got < 0) return util::fail_errno("reading");
      done += static_cast<std::size_t>(got);
    }
    return done;
  }
};

/// The file to write. A regular file has a temporary name until it is complete; others (a pipe, a
/// device) are written directly.
class Target {
 public:
  static util::Result<Target> create(const std::string& path, const Source& source) {
    Target target;
    struct stat status{};
    const bool there = ::stat(path.c_str(), &status) == 0;
    if (there && S_ISDIR(status.st_mode)) return util::fail(path + ": is a directory");
    if (there && status.st_dev == source.status.st_dev && status.st_ino == source.status.st_ino) {
      return util::fail(path + ": is the file to copy");
    }
    if (there && !S_ISREG(status.st_mode)) {
      target.fd_ = open_for_writing(path, S_ISFIFO(status.st_mode));
      if (!target.fd_) return util::fail_errno(path);
      return target;
    }
    const auto part = fmt::format("{}.{}.part", path, ::getpid());
    target.fd_ = UniqueFd(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                 source.status.st_mode & 0777));  // no format: permissions of POSIX
    if (!target.fd_) return util::fail_errno(path);
    target.part_ = part;
    target.path_ = path;
    return target;
  }
  Target(Target&&) noexcept = default;
  Target& operator=(Target&&) = delete;
  /// Removes an incomplete file.
  ~Target() {
    if (fd_ && !part_.empty()) ::unlink(part_.c_str());
  }

  /// Writes all, unless a signal comes.
  util::Result<void> write(std::span<const std::byte> in) const {
    while (!in.empty() && StopSignals::wait(fd_.get(), POLLOUT)) {
      const auto put = ::write(fd_.get(), in.data(), in.size());
      if (put < 0 && must_wait(errno)) continue;
      if (put < 0) return util::fail_errno("writing");
      in = in.subspan(static_cast<std::size_t>(put));
    }
    return {};
  }
  /// Gives the complete file its name.
  util::Result<void> finish() {
    if (!part_.empty() && ::rename(part_.c_str(), path_.c_str()) != 0) {
      return util::fail_errno(path_);
    }
    part_.clear();
    return {};
  }

 private:
  Target() = default;

  /// Waits for the reader of a pipe, which raises no event.
  static UniqueFd open_for_writing(const std::string& path, bool is_pipe) {
    for (;;) {
      UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
      if (fd || !is_pipe || errno != ENXIO) return fd;
      if (!StopSignals::wait(-1, 0, util::monotonic_now() + kReaderInterval)) return fd;
    }
  }

  UniqueFd fd_;
  std::string part_;
  std::string path_;
};

/// Blocks in flight: read into one buffer, copied by the function to another, written from there.
class Pump {
 public:
  Pump(Context& context, const SdxiCopyOptions& options) : context_(context), options_(options) {}

  util::Result<void> prepare(driver::Host& host) {
    for (unsigned i = 0; i < options_.blocks; ++i) {
      auto from = driver::DmaBuffer::allocate(host, options_.block_size);
      if (!from) return tl::unexpected(from.error());
      auto to = driver::DmaBuffer::allocate(host, options_.block_size);
      if (!to) return tl::unexpected(to.error());
      blocks_.push_back({*std::move(from), *std::move(to), 0, {}});
    }
    if (!options_.interrupts) return {};
    auto akey = context_.akeys().use_interrupt(kVector);
    if (!akey) return tl::unexpected(akey.error());
    interrupt_akey_ = *akey;
    return {};
  }

  util::Result<void> run(const Source& source, const Target& target, ProgressBar& bar) {
    for (bool more = true; (more || under_way_ > 0) && !StopSignals::seen();) {
      if (more && under_way_ < blocks_.size()) {
        auto size = start(source);
        if (!size) return tl::unexpected(size.error());
        more = *size == options_.block_size;
      } else {
        if (auto ok = end(target); !ok) return ok;
        bar.update(done_);
      }
    }
    return {};
  }
  std::uint64_t done() const { return done_; }

 private:
  struct Block {
    driver::DmaBuffer from;
    driver::DmaBuffer to;
    std::size_t size;
    driver::sdxi::Completion completion;
  };

  /// Reads the next block and submits its copy. Returns its size.
  util::Result<std::size_t> start(const Source& source) {
    auto& block = blocks_[next_];
    const auto size = source.read(block.from.bytes().first(options_.block_size));
    if (!size || *size == 0) return size;
    block.size = *size;
    // Makes sure that a copy without effect is detected.
    if (options_.verify) {
      const auto to = block.to.bytes().first(*size);
      std::fill(to.begin(), to.end(), ~block.from.bytes().front());
    }
    auto completion = submit(block);
    if (!completion) return tl::unexpected(completion.error());
    block.completion = *completion;
    next_ = (next_ + 1) % blocks_.size();
    ++under_way_;
    return size;
  }

  util::Result<driver::sdxi::Completion> submit(const Block& block) {
    if (!options_.interrupts)
      return context_.copy({block.to.iova()}, {block.from.iova()}, block.size);
    const std::array one{Descriptor::copy({block.to.iova()}, {block.from.iova()}, block.size)};
    return context_.submit(one, interrupt_akey_);
  }

  /// Waits for the oldest block, and writes it.
  util::Result<void> end(const Target& target) {
    auto& block = blocks_[(next_ + blocks_.size() - under_way_) % blocks_.size()];
    if (auto ok = options_.interrupts ? context_.wait_interrupt(block.completion, kVector)
                                      : context_.wait(block.completion);
        !ok) {
      return ok;
    }
    --under_way_;
    const auto from = block.from.bytes().first(block.size);
    const auto to = block.to.bytes().first(block.size);
    if (options_.verify) {
      const auto wrong = std::mismatch(from.begin(), from.end(), to.begin()).first;
      if (wrong != from.end()) {
        return util::fail(fmt::format("byte {} came out different of the function",
                                      done_ + static_cast<std::uint64_t>(wrong - from.begin())));
      }
    }
    done_ += block.size;
    return target.write(to);
  }

  Context& context_;
  const SdxiCopyOptions& options_;
  std::vector<Block> blocks_;
  std::size_t next_ = 0;  ///< block to start next
  std::size_t under_way_ = 0;
  std::uint16_t interrupt_akey_ = 0;
  std::uint64_t done_ = 0;  ///< bytes
};

util::Result<SdxiCopyResult> copy_file(const SdxiCopyOptions& options) {
  auto source = Source::open(options.from);
  if (!source) return tl::unexpected(source.error());
  auto target = Target::create(options.to, *source);
  if (!target) return tl::unexpected(target.error());
  auto function = SdxiFunction::open(options.socket, options.pci);
  if (!function) return tl::unexpected(function.error());
  auto context = function->driver().make_context();
  if (!context) return tl::unexpected(context.error());
  // A block is copied by one descriptor.
  const auto largest = function->driver().capabilities().max_buffer;
  if (options.block_size > largest) {
    return util::fail(fmt::format("--block-size: the function copies at most {} at a time",
                                  to_size(static_cast<double>(largest))));
  }

  SdxiCopyResult result;
  Pump pump(**context, options);
  if (auto ok = pump.prepare(function->host()); !ok) return tl::unexpected(ok.error());
  const auto begin = util::monotonic_now();
  {
    ProgressBar bar(source->size(), !options.quiet && ::isatty(STDERR_FILENO) != 0);
    if (auto ok = pump.run(*source, *target, bar); !ok && !StopSignals::seen()) {
      return tl::unexpected(ok.error());
    }
  }
  result.seconds = std::chrono::duration<double>(util::monotonic_now() - begin).count();
  result.bytes = pump.done();
  result.interrupted = StopSignals::seen();
  if (result.interrupted) return result;
  if (auto ok = target->finish(); !ok) return tl::unexpected(ok.error());
  return result;
}

}  // namespace

util::Result<SdxiCopyResult> sdxi_copy(const SdxiCopyOptions& options) {
  const StopSignals signals;
  if (auto ok = StopSignals::check(); !ok) return tl::unexpected(ok.error());
  auto result = copy_file(options);
  if (!result && StopSignals::seen()) return SdxiCopyResult{.interrupted = true};
  return result;
}

CLI::App* add_sdxi_copy(CLI::App& parent, SdxiCopyOptions& options) {
  auto* command = parent.add_subcommand("copy", "Move a file through an SDXI function");
  command->add_option("FROM", options.from, "The file to copy")->required();
  command->add_option("TO", options.to, "Its copy; it appears when it is whole")->required();
  auto* socket = command->add_option(
      "--socket", options.socket,
      "The function is served there by vfio-user (default: one inside this process)");
  command
      ->add_option("--pci", options.pci,
                   "The function is on this machine's bus, e.g. 01:00.0, bound to vfio-pci")
      ->excludes(socket);
  command
      ->add_option("--block-size", options.block_size,
                   "Bytes of one copy descriptor, e.g. 64K or 4M [1M]")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30));
  command->add_option("--blocks", options.blocks, "Blocks under way at a time [4]")
      ->transform(run::whole_number(1, 128));
  command->add_flag("--interrupts", options.interrupts,
                    "Wait for interrupts instead of polling completion blocks");
  command->add_flag("--verify", options.verify, "Compare each block with what was read");
  command->add_flag("-q,--quiet", options.quiet, "No progress, no summary");
  command->footer(R"(
With a server in another terminal:

  softhca serve --device sdxi --socket /tmp/sdxi0
  softhca sdxi copy --socket /tmp/sdxi0 --verify /usr/bin/gdb /tmp/gdb

Exit status: 0 done, 1 failed (and why), 130 after Ctrl-C; then TO is as it was before.)");
  return command;
}

int run_sdxi_copy(const SdxiCopyOptions& options) {
  const auto result = sdxi_copy(options);
  if (!result) {
    fmt::print(stderr, "softhca: {}\n", result.error().message);
    return 1;
  }
  if (result->interrupted) {
    fmt::print(stderr, "softhca: interrupted after {}; {} is as it was\n",
               to_size(static_cast<double>(result->bytes)), options.to);
    return kInterruptedStatus;
  }
  if (!options.quiet) {
    const auto bytes = static_cast<double>(result->bytes);
    fmt::print("{} in {:.3f} s, {}/s{}\n", to_size(bytes), result->seconds,
               to_size(result->seconds > 0 ? bytes / result->seconds : 0),
               options.verify ? ", verified" : "");
  }
  return 0;
}

}  // namespace softhca::cli
