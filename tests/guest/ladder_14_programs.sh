#!/bin/bash
# ladder_14_programs.sh [short]: step 14: common programs, in every transport: perftest with SEND, WRITE, READ and atomics
# on RC, UC, UD and XRC; the pingpongs with their content checked; programs of the RDMA connection manager. short: one
# program for each way to make the kernel's objects, for a second kernel, because the devices do the same.
. "$(dirname "$0")/lib.sh"
two_hosts
run modprobe -a rdma_ucm
if [ "${1:-}" = short ]; then
  perftest ib_send_bw --use-srq -q 8 -s 4096 -n 100
  perftest ib_write_bw -c XRC -s 20000 -n 100
  pingpong ibv_uc_pingpong -c -n 100
  pingpong ibv_ud_pingpong -c -n 100
  pingpong ibv_xsrq_pingpong -e -n 50
  cm_server udaddy -b "$ADDRESS_b" -c 4 -C 20
  cm_client udaddy -s "$ADDRESS_b" -b "$ADDRESS_a" -c 4 -C 20
  cm_server rstream -b "$ADDRESS_b" -T v -S 16384 -C 50
  cm_client rstream -s "$ADDRESS_b" -b "$ADDRESS_a" -T v -S 16384 -C 50
  clean_dmesg
  exit 0
fi
for connection in RC UC; do
  perftest ib_write_bw -c $connection -s 20000 -n 200
  perftest ib_write_lat -c $connection -s 16 -n 100
  perftest ib_send_bw -c $connection -s 20000 -n 200
done
perftest ib_send_bw -c UD -s 4096 -n 500
perftest ib_send_lat -c UD -s 64 -n 100
perftest ib_read_bw -s 20000 -n 200
perftest ib_atomic_bw -A FETCH_AND_ADD -n 200
perftest ib_atomic_bw -A CMP_AND_SWAP -n 200
perftest ib_atomic_lat -A FETCH_AND_ADD -n 100
perftest ib_send_bw --use-srq -q 8 -s 4096 -n 200
perftest ib_write_bw -q 64 -s 4096 -n 50
perftest ib_send_bw -c XRC -q 4 -s 20000 -n 200
perftest ib_write_bw -c XRC -s 20000 -n 200
perftest ib_read_bw -c XRC -s 20000 -n 200

pingpong ibv_rc_pingpong -c -N -n 200
pingpong ibv_uc_pingpong -c -n 200
pingpong ibv_ud_pingpong -c -n 200
pingpong ibv_srq_pingpong -c -n 100
pingpong ibv_srq_pingpong -c -e -n 50
pingpong ibv_xsrq_pingpong -n 100
pingpong ibv_xsrq_pingpong -e -n 50

# libmlx5 signs the WQEs of send and receive queues, and the device verifies them (PRM 9.2.3).
export MLX5_QP_SIGNATURE=1
for service in rc uc ud; do
  pingpong ibv_${service}_pingpong -c -n 100
done
perftest ib_send_bw -s 20000 -n 100 -q 4
unset MLX5_QP_SIGNATURE

cm_server ib_send_bw -R -d "$IB_b" -F -s 4096 -n 100
cm_client ib_send_bw -R -d "$IB_a" -F -s 4096 -n 100 "$ADDRESS_b"
cm_server udaddy -b "$ADDRESS_b" -c 4 -C 20
cm_client udaddy -s "$ADDRESS_b" -b "$ADDRESS_a" -c 4 -C 20
cm_server rstream -b "$ADDRESS_b" -T v -S 16384 -C 50
cm_client rstream -s "$ADDRESS_b" -b "$ADDRESS_a" -T v -S 16384 -C 50
cm_server rping -s -a "$ADDRESS_b" -C 50 -S 60000 -V
cm_client rping -c -a "$ADDRESS_b" -C 50 -S 60000 -V
clean_dmesg
