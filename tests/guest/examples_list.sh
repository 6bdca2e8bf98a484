# The runs of the examples of libibverbs and librdmacm: sourced by examples.sh, and by tests/door/four_machines.sh. Each line is
# `one FUNCTION [PROGRAM] OPTION...`. The sourcing script defines `one` and the functions. It may
# set `datagram`, the longest message of UD: 4096 by default.
datagram=${datagram:-4096}
one devices
one pingpong ibv_rc_pingpong -c -n 100
one pingpong ibv_rc_pingpong -c -e -n 100
one pingpong ibv_rc_pingpong -c -N -n 100
one pingpong ibv_rc_pingpong -c -t -n 100
one pingpong ibv_rc_pingpong -c -t -N -n 100
# Not -t with -e: it treats an event whose completion it has already polled as a failure.
one pingpong ibv_rc_pingpong -c -o -n 100
one pingpong ibv_rc_pingpong -c -o -P -n 100
one pingpong ibv_rc_pingpong -c -O -n 100
one pingpong ibv_uc_pingpong -c -n 100
one pingpong ibv_uc_pingpong -c -e -n 100
one pingpong ibv_ud_pingpong -c -n 100
one pingpong ibv_ud_pingpong -c -e -n 100
one pingpong ibv_srq_pingpong -c -n 100
one pingpong ibv_srq_pingpong -c -e -q 4 -n 100
one pingpong ibv_srq_pingpong -c -o -n 100
one pingpong ibv_xsrq_pingpong -n 100
one pingpong ibv_xsrq_pingpong -e -n 100
one pingpong ibv_xsrq_pingpong -o -n 100
one asyncwatch
one cm ucmatose -c 4 -C 20
one cm udaddy -c 4 -C 20
one cm cmtime -c 20
one rping_ -C 20 -S 60000 -V
one rping_ -C 20 -S 60000 -V -q
one multicast
one multicast -S $((datagram < 2000 ? datagram : 2000)) -c 2
one multicast -l
one endpoint
one x_endpoint -c r
one x_endpoint -c x
# Not -T a: it treats the end of the connection as an error even while bytes are left to read, and the server leaves first.
for test in b n v r; do
  one cm rstream -T $test -S 16384 -C 20
done
one cm riostream -S 16384 -C 20
one cm riostream -T v -S 16384 -C 20
one copy
