#!/bin/bash
# The guest's ConnectX, with its link up, as one host of two: prints its RDMA device and the index of its GID. Can be run
# again after the driver was unloaded. The driver may have other functions.
. "$(dirname "$0")/lib.sh"
expect_functions "$(lspci -n -d 15b3: | wc -l)"
function=$(lspci -Dn -d 15b3:1013 | cut -d' ' -f1)
IF_here=$(netdev_of "$function") IB_here=$(ibdev_of "$function") ADDRESS_here=192.168.11.$GUEST
run ip link set "$IF_here" up
run ip addr replace "$ADDRESS_here/24" dev "$IF_here"
wait_for 60 "carrier" carrier here
wait_for 60 "RoCE v2 GID" gid_index here
# Until the first answer: the other guest may still be loading its driver.
run ping -q -c 1 -i 0.2 -w 60 "192.168.11.$((3 - GUEST))" >/dev/null
echo "$IB_here $(gid_index here)"
