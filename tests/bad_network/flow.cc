#include "flow.h"

#include <algorithm>
#include <cstring>

namespace softhca::bad_network {

using driver::Completion;
using driver::SendOpcode;
using driver::WorkStatus;

FlowCounts& FlowCounts::operator+=(const FlowCounts& other) {
  posted += other.posted;
  succeeded += other.succeeded;
  failed += other.failed;
  flushed += other.flushed;
  atomics += other.atomics;
  messages += other.messages;
  bytes += other.bytes;
  return *this;
}

bool Flow::is_message(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kSendWithImmediate ||
         kind == Kind::kWriteWithImmediate;
}
bool Flow::is_write(Kind kind) { return kind == Kind::kWrite || kind == Kind::kWriteWithImmediate; }
bool Flow::is_atomic(Kind kind) { return kind >= Kind::kAdd; }

Flow::State Flow::after(State state, const Request& request) {
  if (request.kind == Kind::kAdd) state.counter = request.after;
  if (request.kind == Kind::kSwap) state.word = request.after;
  return state;
}

std::optional<util::Time> Flow::oldest() const {
  if (under_way_.empty()) return std::nullopt;
  return under_way_.front().posted;
}

// Posting ----------------------------------------------------------------------------------------

Flow::Request Flow::draw(Random& random, util::Time now) {
  Request request{.kind = static_cast<Kind>(below(random, 8)),
                  .id = next_,
                  .slot = static_cast<unsigned>(next_ % kWindow),
                  .posted = now};
  const unsigned most = below(random, 4) == 0 ? kMessageMax : 256;
  request.length = is_atomic(request.kind) ? 8 : 1 + below(random, most);
  request.source = below(random, Places::kPatternSize - kMessageMax);
  if (request.kind == Kind::kAdd) {
    request.before = last_.counter;
    request.after = last_.counter + 1 + random() % 1'000'000'007;
  } else if (request.kind == Kind::kSharedAdd) {
    request.after = std::uint64_t{1} << (8 * from_.host);
  } else if (request.kind == Kind::kSwap) {
    const bool swaps = below(random, 4) != 0;
    request.before = last_.word;
    request.compare = swaps ? last_.word : ~last_.word;
    request.after = swaps ? random() : last_.word;
  }
  return request;
}

driver::SendRequest Flow::to_work(const Request& request, driver::Sge& piece) const {
  static constexpr SendOpcode kOpcodes[] = {
      SendOpcode::kSend,      SendOpcode::kSendWithImmediate,
      SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImmediate,
      SendOpcode::kRdmaRead,  SendOpcode::kFetchAdd,
      SendOpcode::kFetchAdd,  SendOpcode::kCompareSwap};
  const auto kind = request.kind;
  std::size_t local = Places::kPattern + request.source, remote = 0;
  if (is_write(kind)) remote = Places::written(from_.host, request.slot);
  if (kind == Kind::kRead) {
    remote = local;
    local = Places::read(to_.host, request.slot);
  }
  if (is_atomic(kind)) local = Places::result(to_.host, request.slot);
  if (kind == Kind::kAdd) remote = Places::counter(from_.host);
  if (kind == Kind::kSharedAdd) remote = Places::kShared;
  if (kind == Kind::kSwap) remote = Places::word(from_.host);
  piece = from_.piece(local, request.length);
  const auto operand = kind == Kind::kAdd ? request.after - request.before : request.after;
  return {.id = request.id,
          .opcode = kOpcodes[static_cast<std::size_t>(kind)],
          .pieces = {&piece, 1},
          .remote_address = to_.region.address(remote),
          .rkey = to_.region.rkey(),
          .immediate = static_cast<std::uint32_t>(request.id),
          .compare = request.compare,
          .swap_or_add = operand};
}

void Flow::post(driver::verbs::QueuePair& qp, Random& random, util::Time now) {
  const auto request = draw(random, now);
  if (is_write(request.kind)) {
    check_slot(request.slot);
    written_[request.slot].reset();
    std::memcpy(before_.data() + request.slot * std::size_t{kMessageMax},
                to_.at(Places::written(from_.host, request.slot)), kMessageMax);
  }
  if (request.kind == Kind::kRead) {
    std::memset(from_.at(Places::read(to_.host, request.slot)), 0xee, request.length);
  }
  driver::Sge piece{};
  auto work = to_work(request, piece);
  work.id |= std::uint64_t{to_.host} << 56;
  work.fence = below(random, 8) == 0;
  const auto status = qp.post_send(work);
  promise(status == driver::PostStatus::kOk, "host {} to {}: request {} is refused: {}", from_.host,
          to_.host, request.id, driver::to_string(status));
  ++next_;
  ++counts_.posted;
  last_ = after(last_, request);
  under_way_.push_back(request);
  if (is_message(request.kind)) unreceived_.push_back(request);
}

// Completions ------------------------------------------------------------------------------------

bool Flow::complete(const Completion& done) {
  constexpr auto kIdMask = (std::uint64_t{1} << 56) - 1;
  const auto id = done.id & kIdMask;
  promise(!under_way_.empty(), "host {} to {}: a completion of request {} that has one already",
          from_.host, to_.host, id);
  const auto request = under_way_.front();
  promise(id == request.id, "host {} to {}: the completion of request {} comes before that of {}",
          from_.host, to_.host, id, request.id);
  under_way_.pop_front();
  if (done.status != WorkStatus::kSuccess) {
    const bool is_first = done.status == WorkStatus::kTransportRetryExceeded && doubtful_.empty();
    promise(is_first || done.status == WorkStatus::kFlushed, "host {} to {}: request {}: {}",
            from_.host, to_.host, id, driver::to_string(done.status));
    ++(is_first ? counts_.failed : counts_.flushed);
    doubtful_.push_back(request);
    return false;
  }
  promise(doubtful_.empty(), "host {} to {}: request {} succeeds after one that failed", from_.host,
          to_.host, id);
  ++counts_.succeeded;
  check_effect(request);
  note_executed(request);
  return true;
}

void Flow::check_effect(const Request& request) {
  if (is_write(request.kind)) return check_written(request);
  if (request.kind == Kind::kRead) {
    promise(std::memcmp(from_.at(Places::read(to_.host, request.slot)),
                        to_.at(Places::kPattern + request.source), request.length) == 0,
            "host {} to {}: READ {} has wrong bytes", from_.host, to_.host, request.id);
    counts_.bytes += request.length;
  }
  if (request.kind == Kind::kAdd || request.kind == Kind::kSwap) {
    const auto found = from_.load(Places::result(to_.host, request.slot));
    promise(found == request.before, "host {} to {}: atomic {} found {:#x}, not {:#x}", from_.host,
            to_.host, request.id, found, request.before);
  }
}

void Flow::check_written(const Request& request) const {
  promise(has_written(request), "host {} to {}: WRITE {} left wrong bytes", from_.host, to_.host,
          request.id);
}

bool Flow::has_written(const Request& request) const {
  return std::memcmp(to_.at(Places::written(from_.host, request.slot)),
                     from_.at(Places::kPattern + request.source), request.length) == 0;
}

bool Flow::is_untouched(unsigned slot) const {
  return std::memcmp(to_.at(Places::written(from_.host, slot)),
                     before_.data() + slot * std::size_t{kMessageMax}, kMessageMax) == 0;
}

void Flow::note_executed(const Request& request) {
  known_ = after(known_, request);
  shared_adds_ += request.kind == Kind::kSharedAdd ? 1 : 0;
  counts_.atomics += is_atomic(request.kind) ? 1 : 0;
  if (!is_write(request.kind)) return;
  written_[request.slot] = Contents{.source = request.source, .length = request.length};
  counts_.bytes += request.length;
}

void Flow::receive(const Completion& done, unsigned slot) {
  promise(!unreceived_.empty(), "host {} receives a message that {} did not send", to_.host,
          from_.host);
  const auto message = unreceived_.front();
  unreceived_.pop_front();
  const bool is_send = !is_write(message.kind);
  const auto opcode = is_send ? driver::CompletionOpcode::kReceive
                              : driver::CompletionOpcode::kReceiveRdmaWithImmediate;
  promise(done.opcode == opcode && done.byte_count == message.length,
          "host {} receives {} bytes as {}, and {} sent {} as request {}", to_.host,
          done.byte_count, driver::to_string(done.opcode), from_.host, message.length, message.id);
  const bool has_immediate = message.kind != Kind::kSend;
  promise(done.immediate.has_value() == has_immediate &&
              (!has_immediate || *done.immediate == static_cast<std::uint32_t>(message.id)),
          "host {}: wrong immediate data of message {} of {}", to_.host, message.id, from_.host);
  ++counts_.messages;
  if (!is_send) return check_written(message);
  promise(std::memcmp(to_.at(Places::received(from_.host, slot)),
                      from_.at(Places::kPattern + message.source), message.length) == 0,
          "host {}: wrong bytes in message {} of {}", to_.host, message.id, from_.host);
  counts_.bytes += message.length;
}

// Broken connections -----------------------------------------------------------------------------

std::size_t Flow::doubtful_shared_adds() const {
  const auto is_one = [](const Request& request) { return request.kind == Kind::kSharedAdd; };
  return static_cast<std::size_t>(std::ranges::count_if(doubtful_, is_one) +
                                  std::ranges::count_if(under_way_, is_one));
}

/// Whether the other host's memory is as if the first `executed` doubtful requests were executed.
/// If the next one is a WRITE, a part of it may be there.
bool Flow::explains(std::size_t executed, std::uint64_t shared_adds) const {
  auto state = known_;
  std::uint64_t shared = 0;
  std::size_t unreceived = 0;
  bool has_data = true;
  for (std::size_t i = 0; i != doubtful_.size(); ++i) {
    const auto& request = doubtful_[i];
    const bool is_executed = i < executed;
    if (!is_executed) {
      unreceived += is_message(request.kind) ? 1 : 0;
      if (i != executed && is_write(request.kind)) {
        has_data = has_data && is_untouched(request.slot);
      }
      continue;
    }
    state = after(state, request);
    shared += request.kind == Kind::kSharedAdd ? 1 : 0;
    if (is_write(request.kind)) has_data = has_data && has_written(request);
  }
  return has_data && shared == shared_adds && unreceived == unreceived_.size() &&
         state.counter == to_.load(Places::counter(from_.host)) &&
         state.word == to_.load(Places::word(from_.host));
}

void Flow::settle(std::uint64_t shared_adds) {
  std::size_t executed = 0;
  while (executed != doubtful_.size() && !explains(executed, shared_adds)) ++executed;
  promise(explains(executed, shared_adds),
          "host {} to {}: no first part of the {} failed requests explains the memory: counter "
          "{:#x}, known {:#x}; word {:#x}, known {:#x}; {} shared; {} messages not received",
          from_.host, to_.host, doubtful_.size(), to_.load(Places::counter(from_.host)),
          known_.counter, to_.load(Places::word(from_.host)), known_.word, shared_adds,
          unreceived_.size());
  for (std::size_t i = 0; i != executed; ++i) note_executed(doubtful_[i]);
  doubtful_.clear();
  unreceived_.clear();
  last_ = known_;
}

// At rest ----------------------------------------------------------------------------------------

/// A WRITE that was completed long ago has not been executed again.
void Flow::check_slot(unsigned slot) const {
  const auto& contents = written_[slot];
  if (!contents) return;
  promise(std::memcmp(to_.at(Places::written(from_.host, slot)),
                      from_.at(Places::kPattern + contents->source), contents->length) == 0,
          "host {} to {}: the target of an old WRITE has changed", from_.host, to_.host);
}

void Flow::check_at_rest() const {
  for (unsigned slot = 0; slot != kWindow; ++slot) check_slot(slot);
  promise(unreceived_.empty() && doubtful_.empty(), "host {} to {}: {} messages not received",
          from_.host, to_.host, unreceived_.size());
  promise(to_.load(Places::counter(from_.host)) == known_.counter,
          "host {} to {}: the counter is {:#x}, and the sum of all FETCH_ADDs {:#x}", from_.host,
          to_.host, to_.load(Places::counter(from_.host)), known_.counter);
  promise(to_.load(Places::word(from_.host)) == known_.word,
          "host {} to {}: the word is {:#x}, and the last CMP_SWAP left {:#x}", from_.host,
          to_.host, to_.load(Places::word(from_.host)), known_.word);
}

}  // namespace softhca::bad_network
