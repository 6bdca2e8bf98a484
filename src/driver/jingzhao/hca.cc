#include "driver/jingzhao/hca.h"

#include <fmt/format.h>

#include <algorithm>

#include "driver/jingzhao/completion_queue.h"
#include "driver/pci.h"
#include "util/bits.h"
#include "util/log.h"

namespace softhca::driver::jingzhao {

using spec::command_opcode;
using spec::icm_chunk;
using spec::icm_chunk_group;
using spec::icm_group;
using spec::init_hca_in;
using spec::query_adapter_out;
using spec::query_dev_lim_out;

namespace {

/// Bytes per chunk of the ICM.
constexpr std::uint64_t kChunk = 64 * kPage;
constexpr std::uint32_t kFirstQpn = 2;  // 0 and 1 belong to the port
constexpr unsigned kLogEqs = 1;
constexpr unsigned kVectors = 2;

std::uint64_t round_to_page(std::uint64_t size) { return (size + kPage - 1) / kPage * kPage; }

/// Entry `number` of a MAP_ICM mailbox: of each pair, the even one is in the higher half.
util::MutableView<icm_chunk> entry(std::span<std::byte> mailbox, std::size_t number) {
  const util::MutableView<icm_chunk_group> group(
      mailbox.subspan(number / 2 * icm_chunk_group::kSize));
  return number % 2 == 0 ? group.sub(icm_chunk_group::even) : group.sub(icm_chunk_group::odd);
}

}  // namespace

Hca::Hca(Host& host, const Options& options)
    : host_(host),
      options_(options),
      limits_(query_dev_lim_out::kSize),
      qpns_(kFirstQpn, (1u << options.log_qps) - kFirstQpn),
      cqns_(0, 1u << options.log_cqs),
      mpts_(1, (1u << options.log_mpts) - 1),
      pds_(1, 4095),
      mtts_(std::uint64_t{1} << options.log_mtts),
      queue_pairs_(std::size_t{1} << options.log_qps),
      completion_queues_(std::size_t{1} << options.log_cqs) {}

util::Result<std::unique_ptr<Hca>> Hca::open(Host& host, const Options& options) {
  std::unique_ptr<Hca> hca(new Hca(host, options));
  if (auto done = hca->bring_up(); !done) return tl::unexpected(done.error());
  return hca;
}

util::Result<void> Hca::bring_up() {
  enable_bus_master(host_);
  auto commands = CommandInterface::create(host_, options_.patience);
  if (!commands) return tl::unexpected(commands.error());
  commands_ = std::move(*commands);
  if (auto done = commands_->reset(); !done) return done;
  if (auto done = run({.op = command_opcode::NOP, .in_modifier = 0x1F}); !done) return done;
  if (auto done = query(); !done) return done;
  if (auto done = map_tables(); !done) return done;
  if (auto done = host_.enable_interrupts(kVectors); !done) return done;
  return create_event_queues();
}

util::Result<void> Hca::query() {
  if (auto done = run({.op = command_opcode::QUERY_DEV_LIM, .out = limits_}); !done) return done;
  const auto has = limits();
  if (options_.log_qps > has.get(query_dev_lim_out::max_qps) ||
      options_.log_cqs > has.get(query_dev_lim_out::max_cqs) ||
      options_.log_mpts > has.get(query_dev_lim_out::max_mpts)) {
    return util::fail("the device has smaller tables than were asked for (QUERY_DEV_LIM)");
  }
  util::Struct<query_adapter_out> adapter;
  auto done = run({.op = command_opcode::QUERY_ADAPTER, .out = adapter.bytes()});
  board_id_ = adapter.get(query_adapter_out::board_id);
  return done;
}

util::Result<PortStatus> Hca::query_port() {
  using Out = spec::mad_ifc_out;
  constexpr std::uint8_t kStatus = 1;
  util::Struct<Out> out;
  auto done = run({.op = command_opcode::MAD_IFC, .op_modifier = kStatus, .out = out.bytes()});
  if (!done) return tl::unexpected(done.error());
  PortStatus port{.infiniband = out.get(Out::link_layer) != 0,
                  .state = static_cast<std::uint8_t>(out.get(Out::port_state))};
  if (port.infiniband) port.lid = static_cast<std::uint16_t>(out.get(Out::lid));
  return port;
}

util::Result<void> Hca::process_mad(std::span<std::byte> mad) {
  constexpr std::uint8_t kIgnoreMkey = 1;
  return run({.op = command_opcode::MAD_IFC,
              .in_modifier = 1,
              .op_modifier = kIgnoreMkey,
              .in = mad,
              .out = mad});
}

/// Allocates contiguous memory for a table, and maps it in chunks.
util::Result<void> Hca::map_table(icm_group group, std::uint64_t virt, std::uint64_t size) {
  auto memory = DmaBuffer::allocate(host_, size);
  if (!memory) return tl::unexpected(memory.error());
  const auto chunks = (size + kChunk - 1) / kChunk;
  constexpr std::uint64_t kAtOnce = CommandInterface::kMailbox / icm_chunk::kSize;
  for (std::uint64_t first = 0; first < chunks; first += kAtOnce) {
    const auto count = std::min(chunks - first, kAtOnce);
    std::vector<std::byte> mailbox((count + 1) / 2 * icm_chunk_group::kSize);
    for (std::uint64_t i = 0; i != count; ++i) {
      const auto offset = (first + i) * kChunk;
      const auto chunk = entry(mailbox, i);
      chunk.set(icm_chunk::virt, virt + offset);
      chunk.set(icm_chunk::page, util::part_of(memory->iova(offset), icm_chunk::page));
      chunk.set(icm_chunk::page_num,
                static_cast<std::uint32_t>(std::min(kChunk, size - offset) / kPage));
    }
    if (auto done = run({.op = command_opcode::MAP_ICM,
                         .in_modifier = static_cast<std::uint32_t>(count),
                         .op_modifier = static_cast<std::uint8_t>(group),
                         .in = mailbox});
        !done) {
      return done;
    }
  }
  icm_.push_back({group, virt, std::move(*memory)});
  return {};
}

util::Result<void> Hca::map_tables() {
  using Lim = query_dev_lim_out;
  util::Struct<init_hca_in> init;
  std::uint64_t virt = 0;
  // Tables follow each other, each at a page boundary.
  const auto place = [&](icm_group group, unsigned log_count, std::uint32_t entry_size,
                         std::uint64_t& base) {
    base = virt;
    const auto size = round_to_page(std::uint64_t{entry_size} << log_count);
    virt += size;
    return map_table(group, base, size);
  };
  std::uint64_t qpc, cqc, eqc, mpt, mtt;
  const auto contexts = icm_group::QUEUE_CONTEXTS, memory = icm_group::MEMORY_TABLES;
  const auto has = limits();
  if (auto done = place(contexts, options_.log_qps, has.get(Lim::qpc_entry_sz), qpc); !done)
    return done;
  if (auto done = place(contexts, options_.log_cqs, has.get(Lim::cqc_entry_sz), cqc); !done)
    return done;
  if (auto done = place(contexts, kLogEqs, has.get(Lim::eqc_entry_sz), eqc); !done) return done;
  if (auto done = place(memory, options_.log_mpts, has.get(Lim::mpt_entry_sz), mpt); !done)
    return done;
  if (auto done = place(memory, options_.log_mtts, has.get(Lim::max_mtt_seg), mtt); !done)
    return done;
  init.set(init_hca_in::qpc_base, util::part_of(qpc, init_hca_in::qpc_base));
  init.set(init_hca_in::log_num_qps, options_.log_qps);
  init.set(init_hca_in::cqc_base, util::part_of(cqc, init_hca_in::cqc_base));
  init.set(init_hca_in::log_num_cqs, options_.log_cqs);
  init.set(init_hca_in::eqc_base, util::part_of(eqc, init_hca_in::eqc_base));
  init.set(init_hca_in::log_num_eqs, kLogEqs);
  init.set(init_hca_in::mpt_base, util::part_of(mpt, init_hca_in::mpt_base));
  init.set(init_hca_in::log_mpt_sz, options_.log_mpts);
  init.set(init_hca_in::mtt_base, mtt);
  auto done = run({.op = command_opcode::INIT_HCA, .in = init.bytes()});
  initialized_ = done.has_value();
  return done;
}

util::Result<void> Hca::create_event_queues() {
  // All types but COMP: each CQ sends those to the EQ in its context.
  constexpr std::uint64_t kEverythingElse = ~std::uint64_t{1};
  auto events = EventQueue::create(*this, 0, 0);
  if (!events) return tl::unexpected(events.error());
  events_ = std::move(*events);
  auto completions = EventQueue::create(*this, 1, 1);
  if (!completions) return tl::unexpected(completions.error());
  completion_events_ = std::move(*completions);
  return run({.op = command_opcode::MAP_EQ, .in_modifier = 0, .in_param = kEverythingElse});
}

CompletionQueue* Hca::poll_completion_event() {
  while (const auto event = completion_events_->poll()) {
    if (event->type != spec::event_type::COMP) continue;
    if (event->number < completion_queues_.size() && completion_queues_[event->number] != nullptr) {
      return completion_queues_[event->number];
    }
  }
  return nullptr;
}

util::Result<void> Hca::close() {
  util::Result<void> first;
  const auto keep = [&](util::Result<void> done) {
    if (first && !done) first = std::move(done);
  };
  for (auto* queue : {&completion_events_, &events_}) {
    if (*queue != nullptr) keep((*queue)->destroy());
    queue->reset();
  }
  if (std::exchange(initialized_, false)) keep(run({.op = command_opcode::CLOSE_HCA}));
  for (const auto& table : icm_) {
    const auto pages = static_cast<std::uint32_t>(table.memory.bytes().size() / kPage);
    keep(run({.op = command_opcode::UNMAP_ICM,
              .in_modifier = pages,
              .op_modifier = static_cast<std::uint8_t>(table.group),
              .in_param = table.virt}));
  }
  if (!icm_.empty()) {
    icm_.clear();
    host_.disable_interrupts();
    disable_bus_master(host_);
  }
  return first;
}

Hca::~Hca() {
  if (const auto done = close(); !done) {
    util::log(util::LogLevel::kWarning, "JingZhao HCA: {}", done.error().message);
  }
}

}  // namespace softhca::driver::jingzhao
