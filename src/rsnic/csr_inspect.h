// The CSR file in the inspect tree, and what `softhca rsnic csr` makes of that.
#pragma once

#include <string>
#include <string_view>

#include "rsnic/csr.h"
#include "util/inspection.h"

namespace softhca::rsnic {

/// A part "csr" with a part for each table: rows as CsrRow::place() names them. A table whose
/// command has not been executed is empty.
void inspect_csr(const CsrFile& file, util::View<spec::connectx::hca_cap> general,
                 util::Inspection& out);

/// The tables as text, from the answer to `inspect` of one RSNIC: name and address, the document's
/// default value, and the live one. Empty if the answer has no such part.
std::string csr_report(std::string_view inspected);

}  // namespace softhca::rsnic
