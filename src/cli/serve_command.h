// `softhca serve` on the command line: its options and its error messages.
#pragma once

#include "server/serve.h"

namespace CLI {
class App;
}

namespace softhca::cli {

CLI::App* add_serve(CLI::App& app, server::ServeOptions& options);
/// Returns the exit status.
int run_serve(const server::ServeOptions& options);

}  // namespace softhca::cli
