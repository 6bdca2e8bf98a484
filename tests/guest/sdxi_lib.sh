# Shell functions for the SDXI guest tests, beside those of vfio_lib.sh.
. /share/vfio_lib.sh

sdxi_functions() { lspci -Dn -d ::1201 | cut -d' ' -f1; }
