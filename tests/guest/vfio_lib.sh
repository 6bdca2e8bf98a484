# Shell functions for guest tests of softhca's drivers, beside those of lib.sh: programs in /share, functions at vfio-pci.
. /share/lib.sh

PROGRAMS=/tmp/programs
# Copied to memory once, because each page of a program would be read over 9p each time it starts.
[ -d $PROGRAMS ] || { cp -r /share/programs $PROGRAMS.$$ && mv -T $PROGRAMS.$$ $PROGRAMS; } || fail "our programs"

# program NAME ARGUMENT...: runs one of softhca's programs, with the libraries that it was built with.
program() { (exec_program "$@"); }
# In the background, so that $! is the program itself: exec_program NAME ARGUMENT... &
exec_program() {
  local name=$1
  shift
  exec $PROGRAMS/lib/ld-linux-x86-64.so.2 --library-path $PROGRAMS/lib "$PROGRAMS/$name" "$@"
}

# take_from_vfio FUNCTION: unbinds the function from any driver, whatever an earlier script did with it.
take_from_vfio() {
  echo > "/sys/bus/pci/devices/$1/driver_override"
  [ ! -e "/sys/bus/pci/devices/$1/driver" ] || echo "$1" > "/sys/bus/pci/devices/$1/driver/unbind"
}

# give_back FUNCTION: binds it to the kernel's own driver.
give_back() {
  take_from_vfio "$1"
  echo "$1" > /sys/bus/pci/drivers_probe
}

# give_to_vfio FUNCTION: binds it to vfio-pci, as the error message of softhca sdxi copy says.
give_to_vfio() {
  modprobe vfio-pci && modprobe vfio_iommu_type1 || fail "modprobe"
  [ ! -e "/sys/bus/pci/devices/$1/driver" ] || echo "$1" > "/sys/bus/pci/devices/$1/driver/unbind"
  echo vfio-pci > "/sys/bus/pci/devices/$1/driver_override"
  echo "$1" > /sys/bus/pci/drivers_probe
  [ "$(basename "$(readlink "/sys/bus/pci/devices/$1/driver")")" = vfio-pci ] || fail "$1 is not at vfio-pci"
}
