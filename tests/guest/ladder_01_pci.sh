#!/bin/bash
# Step 1: two functions with the planned BAR, MSI-X, capabilities and Vital Product Data, seen by lspci.
. "$(dirname "$0")/lib.sh"
functions=$(lspci -Dn -d 15b3:1013 | wc -l)
[ "$functions" -eq 2 ] || fail "$functions functions with 15b3:1013"
lspci -nnvv -d 15b3:1013 | tee /tmp/lspci
grep -q 'size=32M' /tmp/lspci || fail "BAR0 is not 32 MiB"
grep -q 'MSI-X: Enable+ Count=32' /tmp/lspci || fail "no MSI-X with 32 vectors"
grep -q 'Express (v2) Endpoint' /tmp/lspci || fail "no PCI Express capability"
# Each card names itself in its Vital Product Data, and lspci has verified the checksum.
[ "$(grep -c 'Product Name: softhca ConnectX-4' /tmp/lspci)" -eq 2 ] || fail "no Vital Product Data"
[ "$(grep -c 'checksum good' /tmp/lspci)" -eq 2 ] || fail "Vital Product Data with a wrong checksum"
[ "$(grep 'Serial number:' /tmp/lspci | sort -u | wc -l)" -eq 2 ] || fail "two cards with one serial number"
