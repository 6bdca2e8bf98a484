#!/bin/bash
# Loss of memory, peers, frames and the hub: faults.sh SOFTHCA PROGRAMS
. "$(dirname "$0")/lib.sh" "$@"

# The program unmaps memory while it is registered.
test_that "write nothing" prints "success" run -- "$programs/lost_memory" write nothing
for verb in read write; do
  for place in source target; do
    test_that "$verb $place" prints "an error completion" run -- "$programs/lost_memory" $verb $place
  done
done
test_that "crash source" prints "an error completion
the program's own handler" run -- "$programs/lost_memory" crash source
# The same between two devices, whose frames cross rings, and with a rule that holds copies of them: memory that has gone cannot be
# copied, and what arrives late finds none.
apart=(run --devices 2)
held=(run --devices 2 --fault port=*,direction=both,do=delay,time=200us)
test_that "write nothing, apart" prints "success" "${apart[@]}" -- "$programs/lost_memory" write nothing
test_that "write nothing, with frames that wait" prints "success" "${held[@]}" -- "$programs/lost_memory" write nothing
for verb in read write; do
  for place in source target; do
    test_that "$verb $place, apart" prints "an error completion" "${apart[@]}" -- "$programs/lost_memory" $verb $place
    test_that "$verb $place, with frames that wait" prints "an error completion" "${held[@]}" -- "$programs/lost_memory" $verb $place
  done
done
# Without /proc a run does not find its library. A wrong level in SOFTHCA_LOG is reported.
without_proc() {
  unshare --mount bash -c 'mount -t tmpfs tmpfs /proc && exec "$softhca" run -- true'
  [ $? = 1 ]
}
test_that "no /proc" says 1 "/proc is not there, so softhca does not know where its libsofthca.so is" without_proc
test_that "a log level that is none" says 1 "SOFTHCA_LOG=verbose: want debug, info, warning or error" \
  run -- env SOFTHCA_LOG=verbose ibv_devinfo
test_that "variables with wrong values" says 4 "SOFTHCA_(LOG|DOORBELLS|MEMLOCK|LOSS)=wrong: want " \
  run -- env SOFTHCA_LOG=wrong SOFTHCA_DOORBELLS=wrong SOFTHCA_MEMLOCK=wrong SOFTHCA_LOSS=wrong ibv_devinfo
test_that "a number of devices that is none" says 1 "SOFTHCA_DEVICES=many: want what softhca run has set" \
  run -- bash -c 'SOFTHCA_DEVICES=many ibv_devices; true'
# Contexts that share an XRC domain (docs/run.md).
test_that "XRC targets" prints "without O_CREAT: Resource temporarily unavailable
another's number: Invalid argument
opened
domain: Device or resource busy
its maker has closed it
transport retry counter exceeded" run -- "$programs/xrc_targets"
# A wire that loses frames: all messages arrive, and a counter of the run shows the loss. Only packet_seq_err is sure to grow:
# NAKs may cause all the retransmissions before any timeout does.
lossy() {
  run --loss 0.02 --loss-seed 3 -- bash -c '
    meet "listens 18515" "ib_send_bw -F -d mlx5_0 -x 3 -s 4096 -n 2000" "ib_send_bw -F -d mlx5_0 -x 3 -s 4096 -n 2000 localhost" || exit
    cd /sys/class/infiniband/mlx5_0/ports/1/hw_counters && grep -H . packet_seq_err'
}
test_that "a wire that loses frames" says 3 '^ 4096 +2000 |^packet_seq_err:[1-9]' lossy
# The programs compare every byte. If the last acknowledgement is lost and its sender has ended, the other end runs out of
# retries.
compared() {
  run --loss 0.02 --loss-seed 3 -- bash -c '
    meet "listens 18515" "ibv_rc_pingpong -g 3 -c -n 200 >$folder/server 2>&1" "ibv_rc_pingpong -g 3 -c -n 200 localhost >$folder/client 2>&1"'
  cat "$folder"/{server,client}
  for end in server client; do has "$folder/$end" "200 iters in|transport retry counter exceeded" || return; done
  grep -q "200 iters in" "$folder"/{server,client} && ! grep -q "invalid data" "$folder"/{server,client}
}
test_that "what arrives is right" compared
test_that "a wire that loses all" says 1 "transport retry counter exceeded" run --loss 1 -- bash -c '
  ibv_rc_pingpong -g 3 >/dev/null 2>&1 & server=$!
  eventually holds_or_ended $server "listens 18515"
  timeout 60 ibv_rc_pingpong -g 3 localhost && echo "it has succeeded" || kill $server'
# Rules (docs/faults.md): in all processes, with counters, and while the program runs.
test_that "a rule that loses every packet of a SEND" says 1 "transport retry counter exceeded" \
  run --fault port=*,opcode=send,do=lose --fault port=*,opcode=ack,do=delay,time=1ms -- bash -c '
  ibv_rc_pingpong -g 3 >/dev/null 2>&1 & server=$!
  eventually holds_or_ended $server "listens 18515"
  timeout 60 ibv_rc_pingpong -g 3 localhost && echo "it has succeeded" || kill $server'
one_loss() {
  run --control "$folder/rules" --fault port=*,opcode=send,nth=300,do=lose -- bash -c '
    meet "listens 18515" "ib_send_bw -F -d mlx5_0 -x 3 -s 4096 -n 2000" "ib_send_bw -F -d mlx5_0 -x 3 -s 4096 -n 2000 localhost" || exit
    "$softhca" fault "$folder/rules" list'
}
test_that "a rule that loses one packet" says 3 '^ 4096 +2000 |^n1: port=\*,opcode=send,nth=300,do=lose: matched [0-9]+, fired 1$' one_loss
link_events() {
  local events=$folder/link_events program
  "${nobody[@]}" timeout 60 "$softhca" run --control "$folder/link" stdbuf -oL ibv_asyncwatch >"$events" 2>&1 &
  program=$!
  eventually has "$events" 'async event FD'
  "${nobody[@]}" "$softhca" fault "$folder/link" add port=mlx5_0,do=link-down || return
  eventually has "$events" 'IBV_EVENT_PORT_ERR' || return
  "${nobody[@]}" "$softhca" fault "$folder/link" clear || return
  eventually has "$events" 'IBV_EVENT_PORT_ACTIVE' || return
  kill $program; wait $program
  return 0
}
test_that "a link that goes down and up" link_events
# Two networks: a program is warned that it cannot find its peer. The server is the first to look for the peer.
strangers() {
  local server
  "${nobody[@]}" timeout 60 "$softhca" run --private ibv_rc_pingpong -g 3 >"$folder/stranger" 2>&1 &
  server=$!
  eventually holds_or_ended $server "listens 18515"
  run --private timeout 30 ibv_rc_pingpong -g 3 localhost && echo "it has succeeded"
  kill $server; wait $server
  cat "$folder/stranger"
}
test_that "two networks" says 1 'no process of this private network has the address 198\.18\.[0-9.]+: nothing|it has succeeded' strangers
# The hub is killed: the port of a program that waits goes down.
without_hub() {
  local events=$folder/events program process
  "${nobody[@]}" timeout 60 "$softhca" run stdbuf -oL ibv_asyncwatch >"$events" 2>&1 &
  program=$!
  eventually has "$events" 'async event FD'
  for process in $(pgrep -x softhca-hub); do
    tr '\0' '\n' <"/proc/$process/environ" | grep -qx "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR" && kill -KILL "$process"
  done
  eventually has "$events" 'event_type' && eventually has "$events" 'the hub has gone'
  kill $program; wait $program
  cat "$events"
}
test_that "a hub that is killed" says 2 'event_type IBV_EVENT_PORT_ERR \(10\), port 1|mlx5_0: the hub has gone' without_hub
exit $failed
