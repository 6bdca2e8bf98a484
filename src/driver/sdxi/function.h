// A driver for SDXI functions: brings one up, runs its administrative context, and makes contexts
// for programs (context.h).
//
//   auto function = Function::bring_up(host);                      // SDXI 4.1.8
//   auto context = (*function)->make_context();                    // a ring of its own
//   auto done = (*context)->copy({to}, {from}, size);              // returns at once
//   (*context)->wait(*done);                                       // polls the completion block
//
// Single-threaded, but for Context::enqueue.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/dma_memory.h"
#include "driver/host.h"
#include "driver/sdxi/descriptor.h"
#include "spec/sdxi/context.h"
#include "spec/sdxi/error_log.h"
#include "spec/sdxi/keys.h"
#include "spec/sdxi/mmio.h"

namespace softhca::driver::sdxi {

class Context;

/// What the function can do (MMIO_CAP0, MMIO_CAP1), decoded.
struct Capabilities {
  std::uint16_t sfunc;
  bool virtual_function;
  std::uint16_t max_context;
  std::uint64_t max_ring_entries;
  std::uint64_t max_buffer;  ///< bytes
  std::uint64_t doorbell_stride;
  bool cross_function;
  bool atomics;
  bool minimal_atomics;
  bool interrupts;
  bool atomic_completion;
};

/// A record of the error log, decoded (SDXI 3.4.1).
struct ErrorRecord {
  spec::err_step step;
  spec::err_sub_step sub_step;
  spec::err_class error_class;
  spec::err_reaction reaction;
  std::optional<std::uint16_t> context;
  std::optional<std::uint64_t> descriptor;
  std::optional<unsigned> buffer;
  /// Of our functions: the context at which an administrative descriptor failed, and the step
  /// there.
  struct Target {
    std::uint16_t context;
    spec::err_step step;
  };
  std::optional<Target> target;

  std::string to_text() const;
};

class Function {
 public:
  struct Options {
    unsigned interrupt_vectors = 2;  ///< number 0 is the function's own
    unsigned error_log_power = 0;    ///< 2^(n + 12) bytes
    unsigned rkeys_power = 0;        ///< 2^(n + 8) RKeys
    util::Duration patience = std::chrono::seconds(10);
  };

  /// Activates a function (SDXI 4.1.8) and jump-starts its administrative context (SDXI 4.3.4).
  static util::Result<std::unique_ptr<Function>> bring_up(Host& host, const Options& options);
  static util::Result<std::unique_ptr<Function>> bring_up(Host& host) {
    return bring_up(host, Options{});
  }
  /// Stops the function, softly, then hard (SDXI 4.1.9). Contexts are gone by then.
  ~Function();
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  const Capabilities& capabilities() const { return capabilities_; }
  Host& host() { return host_; }
  util::Duration patience() const { return options_.patience; }

  /// A started context with `ring_entries` descriptors.
  util::Result<std::unique_ptr<Context>> make_context(std::uint32_t ring_entries = 1024);

  /// Lets function `requester` of the same group use our memory (SDXI 3.3.2); the RKey that it
  /// needs.
  util::Result<std::uint16_t> grant(std::uint16_t requester);
  /// Takes it back; when this returns the RKey reaches nothing any more.
  util::Result<void> revoke(std::uint16_t rkey);

  /// All records that nobody has taken yet, oldest first. `*lost` becomes true if some were lost
  /// since the last call: the log had overflowed, or more than kErrorsKept were not taken.
  std::vector<ErrorRecord> take_errors(bool* lost = nullptr);
  /// Those of one context.
  std::vector<ErrorRecord> take_errors_of(std::uint16_t context);
  static constexpr std::size_t kErrorsKept = 1024;

  /// A PF stops contexts of its VF, softly or hard, and waits until they have: they end in
  /// CXTV_STOP_FN. Fails where this function is no PF of such a VF.
  util::Result<void> stop_contexts_of_vf(std::uint16_t vf_num, std::uint16_t first,
                                         std::uint16_t last, bool hard);
  /// A PF starts contexts of its VF, which that has set up.
  util::Result<void> start_contexts_of_vf(std::uint16_t vf_num, std::uint16_t first,
                                          std::uint16_t last);

  /// Executes administrative descriptors in context 0 and waits for the last. Fails if one does.
  util::Result<void> administer(std::span<Descriptor> descriptors);

  // For Context.
  util::Result<std::uint16_t> publish(std::uint64_t control_block, std::uint64_t akeys);
  /// Stops the context and takes it out of the tables.
  util::Result<void> withdraw(const Context& context);
  /// Holds memory that a context which did not stop may still use.
  void keep(DmaBuffer memory) { kept_.push_back(std::move(memory)); }
  void ring_doorbell(std::uint16_t number, std::uint64_t value);
  /// To be called with each submission and wait: empties the error log, so that records without a
  /// waiter do not fill it. While there is no record it reads one word of the log in memory, and no
  /// register, which a guest would trap.
  void look_at_errors() {
    if (has_record()) read_error_log();
  }

 private:
  Function(Host& host, const Options& options) : host_(host), options_(options) {}

  std::uint64_t read(spec::mmio_register name);
  void write(spec::mmio_register name, std::uint64_t value);
  spec::fn_gsv state();
  void request(spec::fn_gsr value);
  util::Result<void> wait_for(spec::fn_gsv wanted);
  util::Result<void> stop();

  util::Result<void> read_capabilities();
  util::Result<void> make_tables();
  util::Result<void> make_error_log();
  std::span<std::byte> error_slot(std::uint64_t index) const;
  bool has_record() const;
  void clear_error_status();
  void read_error_log();
  util::Result<void> activate();
  util::Result<void> stop_context(const Context& context);
  util::Result<util::MutableView<spec::cxt_l1_ent>> level1_entry(std::uint16_t number);

  Host& host_;
  Options options_;
  Capabilities capabilities_{};
  DmaBuffer level2_;
  std::vector<DmaBuffer> level1_;  ///< by level 2 index, empty until needed
  DmaBuffer error_log_;
  std::uint64_t errors_read_ = 0;    ///< MMIO_ERR_RD as last written
  std::vector<ErrorRecord> errors_;  ///< read from the log, not taken
  bool errors_lost_ = false;
  DmaBuffer rkeys_;
  std::vector<bool> context_used_;
  std::vector<DmaBuffer> kept_;
  std::unique_ptr<Context> admin_;
};

}  // namespace softhca::driver::sdxi
