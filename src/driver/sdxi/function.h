// A driver for SDXI functions: brings one up, runs its administrative context, and makes contexts
// for programs (context.h).
//
//   auto function = Function::bring_up(host);                      // SDXI 4.1.8
//   auto context = (*function)->make_context();                    // a ring of its own
//   auto done = (*context)->copy({to}, {from}, size);              // returns immediately
//   (*context)->wait(*done);                                       // polls the completion block
//
// Single-threaded, except Context::enqueue.
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

inline constexpr unsigned kRegisterBar = 0;

class Context;

/// Capabilities of the function (MMIO_CAP0, MMIO_CAP1), decoded.
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
  /// In records of softhca's functions: the context at which an administrative descriptor failed,
  /// and the step that failed there.
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
    unsigned interrupt_vectors = 2;  ///< vector 0 is the function's own
    unsigned error_log_power = 0;    ///< 2^(n + 12) bytes
    unsigned rkeys_power = 0;        ///< 2^(n + 8) RKeys
    util::Duration patience = std::chrono::seconds(10);
  };

  /// Activates a function (SDXI 4.1.8) and jump-starts its administrative context (SDXI 4.3.4).
  static util::Result<std::unique_ptr<Function>> bring_up(Host& host, const Options& options);
  static util::Result<std::unique_ptr<Function>> bring_up(Host& host) {
    return bring_up(host, Options{});
  }
  /// Stops the function, first softly, then hard (SDXI 4.1.9). @pre its contexts are destroyed
  ~Function();
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  const Capabilities& capabilities() const { return capabilities_; }
  Host& host() { return host_; }
  util::Duration patience() const { return options_.patience; }

  /// Makes and starts a context with `ring_entries` descriptors.
  util::Result<std::unique_ptr<Context>> make_context(std::uint32_t ring_entries = 1024);

  /// Lets function `requester` of the same group access this function's memory (SDXI 3.3.2).
  /// Returns the RKey that it needs.
  util::Result<std::uint16_t> grant(std::uint16_t requester);
  /// Revokes the access; when this returns, the RKey reaches nothing any more.
  util::Result<void> revoke(std::uint16_t rkey);

  /// Returns all records not taken yet, oldest first. Sets `*lost` if some were lost since the last
  /// call: the log had overflowed, or more than kErrorsKept were not taken.
  std::vector<ErrorRecord> take_errors(bool* lost = nullptr);
  /// The same for the records of one context.
  std::vector<ErrorRecord> take_errors_of(std::uint16_t context);
  static constexpr std::size_t kErrorsKept = 1024;

  /// On a PF: stops contexts of its VF, softly or hard, and waits until they are in CXTV_STOP_FN.
  /// Fails if this function is not the PF of such a VF.
  util::Result<void> stop_contexts_of_vf(std::uint16_t vf_num, std::uint16_t first,
                                         std::uint16_t last, bool hard);
  /// On a PF: starts contexts that its VF has set up.
  util::Result<void> start_contexts_of_vf(std::uint16_t vf_num, std::uint16_t first,
                                          std::uint16_t last);

  /// Executes administrative descriptors in context 0, and waits for the last. Fails if one fails.
  util::Result<void> administer(std::span<Descriptor> descriptors);

  // For Context.
  util::Result<std::uint16_t> publish(std::uint64_t control_block, std::uint64_t akeys);
  /// Stops the context and removes it from the tables.
  util::Result<void> withdraw(const Context& context);
  /// Keeps memory that a context that did not stop may still use.
  void keep(DmaBuffer memory) { kept_.push_back(std::move(memory)); }
  void ring_doorbell(std::uint16_t number, std::uint64_t value);
  /// To be called with each submission and wait: drains the error log, so that records for which
  /// nothing waits do not fill it. If there is no record, it reads only one word of the log in
  /// memory, and no register, which would trap in a guest.
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
  std::vector<DmaBuffer> level1_;  ///< by level 2 index; empty until needed
  DmaBuffer error_log_;
  std::uint64_t errors_read_ = 0;    ///< last value written to MMIO_ERR_RD
  std::vector<ErrorRecord> errors_;  ///< read from the log, not taken
  bool errors_lost_ = false;
  DmaBuffer rkeys_;
  std::vector<bool> context_used_;
  std::vector<DmaBuffer> kept_;
  std::unique_ptr<Context> admin_;
};

}  // namespace softhca::driver::sdxi
