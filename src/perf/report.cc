#include "perf/report.h"

#include <fmt/format.h>

namespace softhca::perf {

namespace {

constexpr double kMiB = 1 << 20;

std::string title(const Options& options, bool of_bandwidth) {
  const auto* const what = !of_bandwidth           ? "Latency Test"
                           : options.bidirectional ? "Bidirectional BW Test"
                                                   : "BW Test";
  return fmt::format("{} {}", to_string(options.verb), what);
}

double in_unit(const Options& options, double bytes_per_second) {
  return options.output.gbits ? bytes_per_second * 8 / 1e9 : bytes_per_second / kMiB;
}

}  // namespace

std::string_view to_string(Verb verb) {
  switch (verb) {
    case Verb::kSend:
      return "Send";
    case Verb::kWrite:
      return "RDMA_Write";
    case Verb::kRead:
      return "RDMA_Read";
    case Verb::kAtomic:
      return "Atomic";
  }
  return "";
}

std::vector<std::uint64_t> sizes_of(const Options& options, bool of_bandwidth) {
  constexpr std::uint64_t kAtomic = 8, kBandwidth = 65536, kLatency = 2, kLargest = 1u << 23;
  if (options.verb == Verb::kAtomic) return {kAtomic};
  if (!options.messages.all_sizes) {
    const bool datagrams = options.queues.service == driver::verbs::QpType::kUd;
    const auto usual = datagrams ? std::uint64_t{options.queues.mtu} : kBandwidth;
    return {options.messages.size.value_or(of_bandwidth ? usual : kLatency)};
  }
  std::vector<std::uint64_t> sizes;
  const auto largest = options.queues.service == driver::verbs::QpType::kUd
                           ? std::uint64_t{options.queues.mtu}
                           : kLargest;
  for (std::uint64_t size = 2; size <= largest; size *= 2) sizes.push_back(size);
  return sizes;
}

std::string rule() { return std::string(87, '-') + "\n"; }

std::string heading(const Options& options, bool of_bandwidth) {
  auto text = rule();
  text += fmt::format("                    {}\n", title(options, of_bandwidth));
  text += fmt::format(" {:<16}: {:<14} {:<15}: {}\n", "Number of qps", 1, "Device",
                      options.ends.devices[0]);
  text += fmt::format(" {:<16}: {:<14} {:<15}: {}\n", "Connection type",
                      to_string(options.queues.service), "Peer", options.ends.devices[1]);
  text +=
      fmt::format(" {:<16}: {:<14} {:<15}: {}\n", "Mtu", fmt::format("{}[B]", options.queues.mtu),
                  "Link type", options.ends.infiniband ? "IB" : "Ethernet");
  if (of_bandwidth) {
    text += fmt::format(" {:<16}: {:<14} {:<15}: {}\n", "TX depth", options.queues.tx_depth,
                        "CQ Moderation", std::min(options.queues.cq_mod, options.queues.tx_depth));
  }
  if (options.verb == Verb::kRead || options.verb == Verb::kAtomic) {
    text += fmt::format(" {:<16}: {}\n", "Outstand reads", options.queues.reads);
  }
  return text + rule();
}

std::string columns(const Options& options, bool of_bandwidth) {
  if (of_bandwidth) {
    const auto* const unit = options.output.gbits ? "Gb/sec" : "MB/sec";
    return fmt::format(" {:<10} {:<14} {:<18} {:<21} {}\n", "#bytes", "#iterations",
                       fmt::format("BW peak[{}]", unit), fmt::format("BW average[{}]", unit),
                       "MsgRate[Mpps]");
  }
  return fmt::format(" {:<8} {:<12} {:<12} {:<12} {:<15} {:<12} {:<13} {:<20} {}\n", "#bytes",
                     "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]",
                     "t_stdev[usec]", "99% percentile[usec]", "99.9% percentile[usec]");
}

std::string row(const Options& options, const Bandwidth& r) {
  return fmt::format(" {:<10} {:<14} {:<18.2f} {:<21.2f} {:.6f}\n", r.size, r.iterations,
                     in_unit(options, r.peak), in_unit(options, r.average), r.rate / 1e6);
}

std::string row(const Latency& r) {
  return fmt::format(
      " {:<8} {:<12} {:<12.2f} {:<12.2f} {:<15.2f} {:<12.2f} {:<13.2f} {:<20.2f} {:.2f}\n", r.size,
      r.iterations, r.minimum, r.maximum, r.typical, r.average, r.deviation, r.p99, r.p999);
}

std::string to_json(const Report& report) {
  const auto& options = report.options;
  auto text = fmt::format(
      "{{\n  \"test\": \"{}\",\n  \"device\": \"{}\",\n  \"peer\": \"{}\",\n"
      "  \"connection\": \"{}\",\n  \"mtu\": {},\n  \"tx_depth\": {},\n  \"bidirectional\": {},\n",
      to_string(options.verb), options.ends.devices[0], options.ends.devices[1],
      to_string(options.queues.service), options.queues.mtu, options.queues.tx_depth,
      options.bidirectional);
  const auto list = [&](std::string_view name, const auto& results, auto&& one) {
    text += fmt::format("  \"{}\": [", name);
    for (std::size_t i = 0; i != results.size(); ++i) {
      text += i == 0 ? "\n    " : ",\n    ";
      text += one(results[i]);
    }
    text += results.empty() ? "]" : "\n  ]";
  };
  list("bandwidth", report.bandwidths, [](const Bandwidth& r) {
    return fmt::format(
        "{{\"bytes\": {}, \"iterations\": {}, \"seconds\": {:.6f}, \"peak_bytes_per_second\": "
        "{:.0f}, \"average_bytes_per_second\": {:.0f}, \"messages_per_second\": {:.0f}}}",
        r.size, r.iterations, r.seconds, r.peak, r.average, r.rate);
  });
  text += ",\n";
  list("latency_us", report.latencies, [](const Latency& r) {
    return fmt::format(
        "{{\"bytes\": {}, \"iterations\": {}, \"min\": {:.3f}, \"max\": {:.3f}, \"median\": "
        "{:.3f}, \"average\": {:.3f}, \"deviation\": {:.3f}, \"p90\": {:.3f}, \"p99\": {:.3f}, "
        "\"p99_9\": {:.3f}}}",
        r.size, r.iterations, r.minimum, r.maximum, r.typical, r.average, r.deviation, r.p90, r.p99,
        r.p999);
  });
  return text + "\n}\n";
}

}  // namespace softhca::perf
