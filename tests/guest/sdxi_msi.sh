#!/bin/bash
# A driver that enables MSI gets its interrupts by MSI: an SDXI function at vfio-pci.
. "$(dirname "$0")/lib.sh"
function=$(lspci -Dn -d ::1201 | head -n 1 | cut -d' ' -f1)
lspci -vvv -s "$function" | tee /tmp/lspci
grep -q 'MSI: Enable- Count=1/32 Maskable+ 64bit+' /tmp/lspci || fail "MSI capability"
modprobe vfio-pci && modprobe vfio_iommu_type1 || fail "modprobe"
echo vfio-pci > "/sys/bus/pci/devices/$function/driver_override"
echo "$function" > /sys/bus/pci/drivers_probe
run python3 "$(dirname "$0")/sdxi_msi.py" "$function"
