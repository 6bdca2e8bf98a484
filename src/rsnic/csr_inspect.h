// The CSR file in the inspect tree, and the report of `softhca rsnic csr`.
#pragma once

#include <string>
#include <string_view>

#include "rsnic/csr.h"
#include "util/inspection.h"

namespace softhca::rsnic {

/// Adds a part "csr" with a part for each table; rows are named by CsrRow::place(). A table is
/// empty until its command has been executed.
void inspect_csr(const CsrFile& file, util::View<spec::connectx::hca_cap> general,
                 util::Inspection& out);

/// The tables as text, from the response of one RSNIC to `inspect`: name and address, the
/// document's default, and the live value. Empty if the response has no such part.
std::string csr_report(std::string_view inspected);

}  // namespace softhca::rsnic
