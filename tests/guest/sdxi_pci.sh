#!/bin/bash
# Two SDXI functions enumerate with the class, BARs and interrupts of SDXI 8 and 9.
. "$(dirname "$0")/lib.sh"
lspci -nnvvv -d ::1201 | tee /tmp/lspci
[ "$(lspci -Dn -d ::1201 | wc -l)" -eq 2 ] || fail "not two functions of class 1201"
grep -q '\[1201\]' /tmp/lspci || fail "class"
grep -q 'Region 0: Memory.*64-bit.*size=512K' /tmp/lspci || fail "BAR0"
grep -q 'Region 2: Memory.*64-bit' /tmp/lspci || fail "BAR2"
grep -q 'MSI-X: Enable- Count=130' /tmp/lspci || fail "MSI-X"
# MMIO_VERSION (SDXI 9.1): major 1, minor 0, through the BAR.
function=$(lspci -Dn -d ::1201 | head -n 1 | cut -d' ' -f1)
echo 1 > "/sys/bus/pci/devices/$function/enable"
python3 - "/sys/bus/pci/devices/$function/resource0" <<'P' || fail "MMIO_VERSION"
import mmap, struct, sys
with open(sys.argv[1], "r+b") as bar:
    registers = mmap.mmap(bar.fileno(), 4096)
version, = struct.unpack_from("<Q", registers, 0x210)
print(f"MMIO_VERSION {version:#x}")
sys.exit(0 if version == 0x10000 else 1)
P
modinfo -F description sdxi 2>/dev/null || echo "this kernel has no sdxi driver"
