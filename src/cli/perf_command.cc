#include "cli/perf_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/exit_status.h"
#include "lab/lab.h"
#include "perf/measure.h"
#include "perf/report.h"
#include "run/number_options.h"

namespace softhca::cli {

using perf::Verb;

namespace {

volatile std::sig_atomic_t interrupted = 0;

constexpr std::string_view kTests[] = {"send",     "send_bw",   "send_lat",  "write",
                                       "write_bw", "write_lat", "read",      "read_bw",
                                       "read_lat", "atomic",    "atomic_bw", "atomic_lat"};

/// A progress line on a terminal.
class Progress {
 public:
  explicit Progress(bool shown) : shown_(shown) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(std::string_view what, std::uint64_t size, double part) {
    const auto now = util::monotonic_now();
    if (!shown_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    drawn_ = true;
    fmt::print(stderr, "\r\033[K{}, {} bytes: {:.0f} %", what, size, part * 100);
    std::fflush(stderr);
  }
  /// Call before anything else is written to the terminal.
  void clear() {
    if (std::exchange(drawn_, false)) std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }

 private:
  bool shown_;
  bool drawn_ = false;
  util::Time next_{};
};

/// The name of standard output as a file of results.
constexpr std::string_view kStandardOutput = "-";

/// The stream for tables: standard error, if standard output gets other results.
std::FILE* table_file(const perf::Output& output) {
  return output.json == kStandardOutput || output.plot == kStandardOutput ? stderr : stdout;
}

/// Determines the location of both ends.
util::Result<void> settle_ends(perf::Options& options) {
  if (options.ends.listens && !options.ends.peer.empty()) {
    return util::fail("--listen: the one who measures names the host, the other listens");
  }
  const std::size_t ends = options.ends.has_remote_peer() ? 1 : 2;
  if (options.ends.functions.size() !=
      (options.ends.has_remote_peer() || !options.ends.functions.empty() ? ends : 0)) {
    return util::fail(ends == 1 ? "with HOST or --listen, give --at once: the HCA of this end"
                                : "--at twice, for both ends, or a host where the other one is");
  }
  if (options.ends.has_remote_peer() && options.bidirectional) {
    return util::fail("-b: both ends are to be in one process");
  }
  if (!options.ends.functions.empty()) {
    if (options.ends.devices.empty() && !options.ends.infiniband) return {};
    return util::fail("--at: a function says itself what it is: no --device, no --link");
  }
  if (options.ends.devices.size() > 2) return util::fail("--device: once, or twice for two ends");
  if (options.ends.devices.empty()) options.ends.devices.emplace_back("connectx");
  if (options.ends.devices.size() == 1) options.ends.devices.push_back(options.ends.devices[0]);
  return {};
}

/// Checks and combines the words of the command line.
util::Result<void> settle(PerfOptions& in) {
  auto& options = in.options;
  const auto verb = in.test.substr(0, in.test.find('_'));
  options.verb = verb == "send"    ? Verb::kSend
                 : verb == "write" ? Verb::kWrite
                 : verb == "read"  ? Verb::kRead
                                   : Verb::kAtomic;
  options.bandwidth = !in.test.ends_with("_lat");
  options.latency = !in.test.ends_with("_bw");
  using driver::verbs::QpType;
  options.queues.service = in.connection == "RC"   ? QpType::kRc
                           : in.connection == "UC" ? QpType::kUc
                                                   : QpType::kUd;
  options.compare_and_swap = in.atomic == "CMP_AND_SWAP";
  if (auto good = settle_ends(options); !good) return good;
  if (options.verb == Verb::kAtomic &&
      (options.messages.all_sizes || options.messages.size.value_or(8) != 8)) {
    return util::fail("an atomic has 8 bytes: no -a and no -s (IBTA 9.4.5)");
  }
  if (options.output.json == kStandardOutput && options.output.plot == kStandardOutput) {
    return util::fail("--json and --plot: only one of them can go to standard output");
  }
  if (options.bidirectional && !options.bandwidth) {
    return util::fail("-b: a latency goes one way at a time");
  }
  return {};
}

/// The parameters that both processes must agree on.
std::string subject_of(const perf::Options& options, bool of_bandwidth,
                       const std::vector<std::uint64_t>& sizes) {
  return fmt::format("{} {} {}, {} to {} bytes, MTU {}", perf::to_string(options.verb),
                     of_bandwidth ? "bandwidth" : "latency",
                     driver::verbs::to_string(options.queues.service), sizes.front(), sizes.back(),
                     options.queues.mtu);
}

/// The passive end of a table that another process prints.
util::Result<void> serve_table(perf::Testbed& testbed, bool of_bandwidth,
                               const std::vector<std::uint64_t>& sizes) {
  const auto go_on = [](double) { return interrupted == 0; };
  for (const auto size : sizes) {
    auto done = of_bandwidth ? perf::serve_bandwidth(testbed, size, go_on)
                             : perf::serve_latency(testbed, size, go_on);
    if (!done || interrupted != 0) return done;
  }
  return {};
}

/// One table: runs every size, and prints each row when it is measured.
util::Result<void> run_table(perf::Report& report, bool of_bandwidth, perf::Peer* peer) {
  auto options = report.options;
  options.bandwidth = of_bandwidth;
  options.latency = !of_bandwidth;
  const auto sizes = perf::sizes_of(options, of_bandwidth);
  if (peer != nullptr) {
    if (auto same = peer->agree(subject_of(options, of_bandwidth, sizes)); !same) return same;
  }
  auto testbed = perf::Testbed::create(options, sizes.back(), peer);
  if (!testbed) return tl::unexpected(testbed.error());
  options = report.options = (*testbed)->options();
  if (options.ends.listens) return serve_table(**testbed, of_bandwidth, sizes);
  auto* const table = table_file(options.output);
  fmt::print(table, "{}{}", perf::heading(options, of_bandwidth),
             perf::columns(options, of_bandwidth));
  std::fflush(table);
  for (const auto size : sizes) {
    Progress progress(::isatty(STDERR_FILENO) != 0);
    const auto go_on = [&](double part) {
      if (part >= 0) progress.update(of_bandwidth ? "bandwidth" : "latency", size, part);
      return interrupted == 0;
    };
    std::string line;
    if (of_bandwidth) {
      const auto result = perf::measure_bandwidth(**testbed, size, go_on);
      if (!result) return tl::unexpected(result.error());
      report.bandwidths.push_back(*result);
      line = perf::row(options, *result);
    } else {
      const auto result = perf::measure_latency(**testbed, size, go_on);
      if (!result) return tl::unexpected(result.error());
      report.latencies.push_back(*result);
      line = perf::row(*result);
    }
    progress.clear();
    if (interrupted != 0) break;
    fmt::print(table, "{}", line);
    std::fflush(table);
  }
  fmt::print(table, "{}", perf::rule());
  return {};
}

util::Result<void> write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  if (path == kStandardOutput) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
        std::fflush(stdout) == 0) {
      return {};
    }
    return util::fail("standard output: cannot be written");
  }
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return util::fail(path + ": cannot be written");
  return {};
}

/// Connects to the process with the other end.
util::Result<perf::Peer> find_peer(const perf::Options& options) {
  const auto go_on = [] { return interrupted == 0; };
  if (!options.ends.listens)
    return perf::Peer::dial(options.ends.peer, options.ends.tcp_port, go_on);
  auto* const table = table_file(options.output);
  fmt::print(table, "waiting at TCP port {} for the process that measures\n",
             options.ends.tcp_port);
  std::fflush(table);
  return perf::Peer::listen(options.ends.tcp_port);
}

/// Checks that the file can be written: after the measurement it would be too late.
util::Result<void> try_file(const std::string& path) {
  if (path.empty() || path == kStandardOutput) return {};
  const bool was_there = ::access(path.c_str(), F_OK) == 0;
  if (!std::ofstream(path, std::ios::app)) return util::fail(path + ": cannot be written");
  if (!was_there) ::unlink(path.c_str());
  return {};
}

util::Result<void> run(perf::Report& report) {
  for (const auto& path : {report.options.output.json, report.options.output.plot}) {
    if (auto good = try_file(path); !good) return good;
  }
  std::optional<perf::Peer> peer;
  if (report.options.ends.has_remote_peer()) {
    auto found = find_peer(report.options);
    if (!found) return tl::unexpected(found.error());
    peer = std::move(*found);
  }
  // For both tables in one command, latency comes first: it takes less time.
  const bool latency = report.options.latency, bandwidth = report.options.bandwidth;
  for (const bool of_bandwidth : {false, true}) {
    if (!(of_bandwidth ? bandwidth : latency) || interrupted != 0) continue;
    if (auto done = run_table(report, of_bandwidth, peer ? &*peer : nullptr); !done) return done;
  }
  report.options.latency = latency;
  report.options.bandwidth = bandwidth;
  if (interrupted != 0) return {};
  if (auto done = write_file(report.options.output.json, perf::to_json(report)); !done) return done;
  return write_file(report.options.output.plot,
                    report.options.output.plot.empty() ? "" : perf::to_svg(report));
}

/// Options for queue depths and transfer modes.
void add_queue_options(CLI::App& command, PerfOptions& in) {
  auto& options = in.options;
  command.add_option("-m,--mtu", options.queues.mtu, "Bytes of a packet: 256 to 4096 [4096]")
      ->check(CLI::IsMember(std::vector<std::string>{"256", "512", "1024", "2048", "4096"}));
  command
      .add_option("-u,--qp-timeout", options.queues.timeout,
                  "Retransmit a packet after 4.096 us * 2^n [14]")
      ->transform(run::whole_number(0, 31));
  command
      .add_option("-t,--tx-depth", options.queues.tx_depth, "Bandwidth: outstanding requests [128]")
      ->transform(run::whole_number(1, 8192));
  command.add_option("-r,--rx-depth", options.queues.rx_depth, "Bandwidth: posted receives [512]")
      ->transform(run::whole_number(1, 8192));
  command.add_option("-Q,--cq-mod", options.queues.cq_mod, "Requests for each completion [100]")
      ->transform(run::whole_number(1, 1024));
  command.add_option("-o,--outs", options.queues.reads, "Outstanding READs and atomics [16]")
      ->transform(run::whole_number(1, 16));
  command
      .add_option("-I,--inline_size", options.queues.inline_size,
                  "Largest message that is sent inline, in bytes [0; latency 220]")
      ->transform(run::whole_number(0, 400));
  command.add_option("-A,--atomic_type", in.atomic, "FETCH_AND_ADD or CMP_AND_SWAP")
      ->check(CLI::IsMember({"FETCH_AND_ADD", "CMP_AND_SWAP"}));
}

void add_message_options(CLI::App& command, perf::Messages& messages) {
  auto* size = command.add_option("-s,--size", messages.size,
                                  "Bytes of a message, e.g. 64K [65536; latency 2; atomics 8]");
  size->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 28));
  command.add_flag("-a,--all", messages.all_sizes, "Sizes from 2 to 2^23 (UD: to the MTU)")
      ->excludes(size);
  command
      .add_option("-n,--iters", messages.iterations, "Messages of each size [5000; latency 1000]")
      ->transform(run::whole_number(5, 100'000'000));
  command.add_option("-D,--duration", messages.duration, "Seconds for each size, instead of -n")
      ->transform(run::real_number(0.001, 86400));
}

/// Options for HCAs outside this process.
void add_end_options(CLI::App& command, perf::Ends& ends) {
  command.add_option("HOST", ends.peer,
                     "The host of the other process, which runs the same test with --listen");
  command
      .add_option("--at", ends.functions,
                  "Use this HCA: a PCI function bound to vfio-pci (0000:01:00.0), or the socket "
                  "of a server. Give it twice, for both ends, unless the other end is at HOST")
      ->allow_extra_args(false);
  command.add_flag("--listen", ends.listens,
                   "Wait for the process that measures, and be its other end");
  command.add_option("-p,--port", ends.tcp_port, "TCP port of --listen and HOST [18515]")
      ->transform(run::whole_number(1, 65535));
}

}  // namespace

CLI::App* add_perf(CLI::App& parent, PerfOptions& in) {
  auto& options = in.options;
  auto* command =
      parent.add_subcommand("perf", "Bandwidth, latency and message rate between two HCAs");
  command
      ->add_option("TEST", in.test,
                   "send, write, read or atomic: both tables. With _bw or _lat: one table")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kTests), std::end(kTests))));
  add_end_options(*command, options.ends);
  std::vector<std::string> models(lab::models().begin(), lab::models().end());
  command
      ->add_option("--device", options.ends.devices,
                   "Model of the HCA that measures. Given twice: the second is its peer [connectx]")
      ->check(CLI::IsMember(models))
      ->allow_extra_args(false);
  command
      ->add_option_function<std::string>(
          "--link",
          [&options](const std::string& link) { options.ends.infiniband = link == "infiniband"; },
          "infiniband or ethernet; only jingzhao has infiniband [ethernet]")
      ->check(CLI::IsMember({"infiniband", "ethernet"}));
  command->add_option("-c,--connection", in.connection, "RC, UC or UD [RC]")
      ->check(CLI::IsMember({"RC", "UC", "UD"}));
  add_message_options(*command, options.messages);
  add_queue_options(*command, in);
  command->add_flag("-b,--bidirectional", options.bidirectional,
                    "Measure the bandwidth of both directions together");
  command->add_flag("-N,--noPeak", options.output.no_peak, "Bandwidth: print only the average");
  command->add_flag_callback(
      "-F,--CPU-freq", [] {}, "No effect; accepted because scripts for perftest pass it");
  command->add_flag("--report_gbits", options.output.gbits, "Bandwidth in Gb/s instead of MiB/s");
  command->add_option("--json", options.output.json,
                      "Write the results to this file as well. -: to standard output; the tables "
                      "then go to standard error");
  command->add_option(
      "--plot", options.output.plot,
      "Draw latency and bandwidth by size to this file (SVG), or to standard output "
      "(-). Use it with -a");
  command->footer(R"(
Options and tables are perftest's. Both devices, their drivers and the switch between them run
in this process, on one processor, unless --at names other devices. A latency is half a round
trip (send, write), or the time from posting to the completion (read, atomic).

  softhca perf write_bw -a
  softhca perf send_lat -c UD --device rsnic
  softhca perf write -a --plot write.svg --device connectx --device rsnic
  softhca perf write_lat --at /tmp/jz0 --at /tmp/jz1             (sockets of softhca serve)
  softhca perf send_bw --at 0000:01:00.0 --listen                (in one guest)
  softhca perf send_bw --at 0000:01:00.0 guest1                  (in another)

Exit status: 0 done, 1 an error or a test that a device does not support, 130 after Ctrl-C.)");
  return command;
}

int run_perf(PerfOptions in) {
  const auto refuse = [](const util::Error& error) {
    std::fflush(stdout);
    fmt::print(stderr, "softhca: {}\n", error.message);
    return 1;
  };
  if (auto good = settle(in); !good) return refuse(good.error());
  interrupted = 0;
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = 1; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  perf::Report report{.options = in.options, .bandwidths = {}, .latencies = {}};
  const auto done = run(report);
  if (interrupted != 0) {
    fmt::print(stderr, "softhca: interrupted\n");
    return kInterruptedStatus;
  }
  return done ? 0 : refuse(done.error());
}

}  // namespace softhca::cli
