#!/bin/bash
# Step 1: two functions with the planned BAR, MSI-X and capabilities, seen by lspci.
. "$(dirname "$0")/lib.sh"
functions=$(lspci -Dn -d 15b3:1013 | wc -l)
[ "$functions" -eq 2 ] || fail "$functions functions with 15b3:1013"
lspci -nnvv -d 15b3:1013 | tee /tmp/lspci
grep -q 'size=32M' /tmp/lspci || fail "BAR0 is not 32 MiB"
grep -q 'MSI-X: Enable+ Count=32' /tmp/lspci || fail "no MSI-X with 32 vectors"
grep -q 'Express (v2) Endpoint' /tmp/lspci || fail "no PCI Express capability"
grep -q 'Product Name: softhca ConnectX-4' /tmp/lspci || fail "no Vital Product Data"
grep -q 'checksum good' /tmp/lspci || fail "Vital Product Data with a wrong checksum"
