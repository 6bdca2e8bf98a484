#include "driver/jingzhao/queue_pair.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "util/log.h"

namespace softhca::driver::jingzhao {

using spec::command_opcode;
using spec::data_unit;
using spec::next_unit;
using spec::qp_context;
using spec::qp_state;
using spec::qp_type;
using spec::ud_unit;

namespace {

constexpr std::uint32_t kEveryAttribute = 0x1FFFFF;
constexpr std::uint8_t kNoMailbox = 3;

unsigned log2_up(std::size_t value) {
  return static_cast<unsigned>(std::bit_width(std::max<std::size_t>(value, 2) - 1));
}

/// Sets both parts of a MAC.
template <class View, class High, class Low>
void set_mac(View view, High high, Low low, const Mac& mac) {
  const auto number = mac.to_u64();
  view.set(high, static_cast<std::uint32_t>(number >> 16));  // no format: splits a number
  view.set(low, static_cast<std::uint32_t>(number & low.kMax));
}

template <class Layout, class View>
void set_path(View view, const Endpoint& from, const Endpoint& to) {
  if (from.lid != 0) {
    view.set(Layout::slid_smac, from.lid);
    view.set(Layout::dlid_dmac, to.lid);
    return;
  }
  set_mac(view, Layout::smac_h, Layout::slid_smac, from.mac);
  set_mac(view, Layout::dmac_h, Layout::dlid_dmac, to.mac);
  view.set(Layout::sip, from.ipv4);
  view.set(Layout::dip, to.ipv4);
}

/// Bytes of a send WQE. Slots are as short as possible, so that a queue occupies few cache lines.
std::size_t longest_send(const QueuePair::Options& options) {
  const auto payload = std::max(std::size_t{options.pieces} * data_unit::kSize,
                                std::size_t{options.inline_size} + spec::inline_unit::kSize);
  if (options.type == qp_type::UD) return kUnit + ud_unit::kSize + payload;
  return kUnit + spec::raddr_unit::kSize +
         std::max(payload, spec::atomic_unit::kSize + data_unit::kSize);
}

std::uint32_t mtu_code(unsigned path_mtu) {
  return static_cast<std::uint32_t>(std::bit_width(path_mtu / 256));
}

}  // namespace

// Objects ----------------------------------------------------------------------------------------

util::Result<std::unique_ptr<QueuePair>> QueuePair::create(Hca& hca, const Options& options) {
  std::unique_ptr<QueuePair> made(new QueuePair(hca, options));
  if (auto done = made->set_up(); !done) return tl::unexpected(done.error());
  return made;
}

util::Result<void> QueuePair::set_up() {
  constexpr std::uint32_t kGsi = 1;
  const auto qpn = options_.gsi ? std::optional(kGsi) : hca_.qpns().allocate();
  if (!qpn) return util::fail("all QPs are in use");
  qpn_ = *qpn;
  has_number_ = true;
  sends_.log_stride = log2_up(longest_send(options_));
  // A next unit in front, a terminator behind the pieces.
  receives_.log_stride = log2_up(kUnit * (options_.pieces + std::size_t{2}));
  const auto most = hca_.limits().get(spec::query_dev_lim_out::max_desc_sz);
  if (sends_.stride() > most || receives_.stride() > most) {
    return util::fail("requests are larger than max_desc_sz (QUERY_DEV_LIM)");
  }
  const std::size_t requests = options_.requests;
  // One slot stays free: the one behind the last receive marks the end of the list.
  for (auto [slots, memory, key, entries] :
       {std::tuple(&sends_, &send_memory_, &send_key_, std::size_t{1} << log2_up(requests)),
        std::tuple(&receives_, &receive_memory_, &receive_key_,
                   std::size_t{1} << log2_up(requests + 1))}) {
    slots->requests.resize(entries);
    auto made = DmaBuffer::allocate(hca_.host(), entries << slots->log_stride);
    if (!made) return tl::unexpected(made.error());
    *memory = std::move(*made);
    auto registered = MemoryKey::of_queue(hca_, options_.pd, *memory);
    if (!registered) return tl::unexpected(registered.error());
    *key = std::move(*registered);
  }
  hca_.add(qpn_, *this);
  return {};
}

QueuePair::~QueuePair() {
  if (!has_number_) return;
  if (const auto done = to_reset(); !done) {
    util::log(util::LogLevel::kWarning, "QP {:#x}: {}", qpn_, done.error().message);
  }
  hca_.remove_queue_pair(qpn_);
  if (!options_.gsi) hca_.qpns().free(qpn_);
}

// States -----------------------------------------------------------------------------------------

void QueuePair::describe(util::MutableView<qp_context> context, qp_state state) const {
  context.set(qp_context::opt_param_mask, kEveryAttribute);
  context.set(qp_context::state, static_cast<std::uint32_t>(state));
  context.set(qp_context::type, static_cast<std::uint32_t>(options_.type));
  context.set(qp_context::msgmax, options_.log_message_max);
  context.set(qp_context::rq_entry_sz_log, receives_.log_stride);
  context.set(qp_context::sq_entry_sz_log, sends_.log_stride);
  context.set(qp_context::local_qpn, qpn_);
  context.set(qp_context::port, 1);
  context.set(qp_context::pd, options_.pd);
  context.set(qp_context::cqn_snd, options_.send_cq.cqn());
  context.set(qp_context::snd_wqe_base_l, send_key_->key());
  context.set(qp_context::snd_wqe_len, static_cast<std::uint32_t>(send_memory_.bytes().size()));
  context.set(qp_context::cqn_rcv, options_.receive_cq.cqn());
  context.set(qp_context::rcv_wqe_base_l, receive_key_->key());
  context.set(qp_context::rcv_wqe_len,
              static_cast<std::uint32_t>(receives_.requests.size() << receives_.log_stride));
}

util::Result<void> QueuePair::modify(command_opcode op, util::View<qp_context> context) {
  return hca_.run({.op = op, .in_modifier = qpn_, .in = context.bytes()});
}

util::Result<void> QueuePair::simple(command_opcode op, qp_state state) {
  describe(context_, state);
  return modify(op, context_);
}

QueuePair::Asked QueuePair::change(const Changes& changes) {
  Asked before;
  std::ranges::copy(context_.bytes(), before.begin());
  const auto put = [&](const auto& value, auto field) {
    if (value) context_.set(field, *value);
  };
  if (changes.access) {
    context_.set(qp_context::remote_read, changes.access->read);
    context_.set(qp_context::remote_write, changes.access->write);
    context_.set(qp_context::remote_atomic, changes.access->atomic);
  }
  if (changes.remote) {
    set_path<qp_context>(util::MutableView<qp_context>(context_), here_, *changes.remote);
  }
  put(changes.qkey, qp_context::qkey);
  put(changes.pkey_index, qp_context::pkey_index);
  put(changes.retry_count, qp_context::retry_cnt);
  put(changes.min_rnr_timer, qp_context::rnr_timer);
  // In the top bits, as in the Arbel interface.
  if (const auto& value = changes.ack_timeout) {
    context_.set(qp_context::ackto, std::uint32_t{*value} << 3);  // no format: see above
  }
  if (const auto& value = changes.rnr_retry) {
    context_.set(qp_context::rnr_retry, std::uint32_t{*value} << 5);  // no format: see above
  }
  return before;
}

util::Result<void> QueuePair::to_init(const Endpoint& here, RemoteAccess access, std::uint32_t qkey,
                                      std::uint8_t pkey_index) {
  here_ = here;
  std::ranges::fill(context_.bytes(), std::byte{0});
  describe(context_, qp_state::INIT);
  set_path<qp_context>(util::MutableView<qp_context>(context_), here, {});
  context_.set(qp_context::limits_valid, 1);
  change({.access = access, .qkey = qkey, .pkey_index = pkey_index});
  auto done = modify(command_opcode::RST2INIT_QPEE, context_);
  if (done) in_reset_ = false;
  return done;
}

util::Result<void> QueuePair::to_rtr(const RemoteQueuePair& remote, const Connection& connection) {
  describe(context_, qp_state::RTR);
  context_.set(qp_context::mtu, mtu_code(connection.path_mtu));
  context_.set(qp_context::remote_qpn, remote.qpn);
  context_.set(qp_context::epsn, remote.psn);
  change({.remote = remote.at, .min_rnr_timer = connection.min_rnr_timer});
  return modify(command_opcode::INIT2RTR_QPEE, context_);
}

util::Result<void> QueuePair::to_rts(const Connection& connection) {
  describe(context_, qp_state::RTS);
  context_.set(qp_context::next_send_psn, connection.psn);
  context_.set(qp_context::last_acked_psn, connection.psn);
  change({.ack_timeout = connection.ack_timeout,
          .retry_count = connection.retry_count,
          .rnr_retry = connection.rnr_retry});
  auto done = modify(command_opcode::RTR2RTS_QPEE, context_);
  if (done) takes_sends_ = true;
  return done;
}

util::Result<void> QueuePair::connect(const Endpoint& here, const RemoteQueuePair& remote,
                                      const Connection& connection, RemoteAccess access) {
  if (auto done = to_init(here, access); !done) return done;
  if (auto done = to_rtr(remote, connection); !done) return done;
  return to_rts(connection);
}

util::Result<void> QueuePair::listen(const Endpoint& here, std::uint32_t qkey) {
  const Connection connection{.path_mtu = 4096};
  if (auto done = to_init(here, {}, qkey); !done) return done;
  if (auto done = to_rtr({}, connection); !done) return done;
  return to_rts(connection);
}

util::Result<void> QueuePair::to_error() {
  auto done = simple(command_opcode::TO_ERR_QPEE, qp_state::ERR);
  if (done) takes_sends_ = true;
  return done;
}
util::Result<void> QueuePair::to_drained() {
  return simple(command_opcode::RTS2SQD_QPEE, qp_state::SQD);
}
util::Result<void> QueuePair::from_drained() {
  return simple(command_opcode::SQD2RTS_QPEE, qp_state::RTS);
}
util::Result<void> QueuePair::from_send_error() {
  return simple(command_opcode::SQERR2RTS_QPEE, qp_state::RTS);
}

util::Result<void> QueuePair::stay(qp_state state) {
  const auto op = state == qp_state::INIT  ? command_opcode::INIT2INIT_QPEE
                  : state == qp_state::RTS ? command_opcode::RTS2RTS_QPEE
                                           : command_opcode::SQD2SQD_QPEE;
  return simple(op, state);
}

util::Result<void> QueuePair::to_reset() {
  takes_sends_ = false;
  if (std::exchange(in_reset_, true)) return {};
  auto done = hca_.run(
      {.op = command_opcode::ERR2RST_QPEE, .in_modifier = qpn_, .op_modifier = kNoMailbox});
  forget_posted();
  return done;
}

void QueuePair::forget_posted() {
  options_.send_cq.sweep(qpn_);
  options_.receive_cq.sweep(qpn_);
  sends_.producer = sends_.consumer = receives_.producer = receives_.consumer = 0;
  std::ranges::fill(receive_memory_.bytes(), std::byte{0});
}

util::Result<void> QueuePair::query(util::MutableView<qp_context> out) {
  return hca_.run({.op = command_opcode::QUERY_QP, .in_modifier = qpn_, .out = out.bytes()});
}

util::Result<qp_state> QueuePair::query_state() {
  Context context;
  if (auto done = query(context); !done) return tl::unexpected(done.error());
  return qp_state(context.get(qp_context::state));
}

// Work -------------------------------------------------------------------------------------------

PostStatus QueuePair::post_receive(const ReceiveRequest& request) {
  if (in_reset_) return PostStatus::kWrongState;
  if (request.pieces.size() > options_.pieces) return PostStatus::kTooManyPieces;
  // One slot stays free.
  if (receives_.outstanding() + 1 >= receives_.requests.size()) return PostStatus::kQueueFull;
  const auto index = receives_.producer++;
  receives_.requests[index & receives_.mask()] = {request.id, true};
  // First empties the slot behind this one; writes the first unit of this one last.
  const auto behind = receive_slot(index + 1).first(kUnit);
  std::ranges::fill(behind, std::byte{0});
  std::atomic_thread_fence(std::memory_order_release);
  const auto slot = receive_slot(index);
  auto units = slot.subspan(kUnit);
  for (const auto& piece : request.pieces) {
    if (piece.length == 0) continue;
    const util::MutableView<data_unit> unit(units);
    unit.set(data_unit::byte_cnt, piece.length);
    unit.set(data_unit::lkey, piece.lkey);
    unit.set(data_unit::addr, piece.address);
    units = units.subspan(data_unit::kSize);
  }
  std::ranges::fill(units.first(kUnit), std::byte{0});
  std::atomic_thread_fence(std::memory_order_release);
  const util::MutableView<next_unit> next(slot);
  next.set(next_unit::nda, static_cast<std::uint32_t>(receives_.place(index + 1) / kUnit));
  next.set(next_unit::nds, static_cast<std::uint32_t>(receives_.stride() / kUnit));
  next.set(next_unit::posted, 1);
  return PostStatus::kOk;
}

}  // namespace softhca::driver::jingzhao
