#!/bin/bash
# Programs that rest, and how soon they are served afterwards: idle.sh SOFTHCA PROGRAMS. Alone on the machine, where a thread that
# does not rest gets a processor.
. "$(dirname "$0")/lib.sh" "$@"

# docs/run.md: the library's thread looks once a second where there is nothing to do, with queues (the server waits for its client)
# and without. It goes to sleep after two, or later where it does not get to run. Counted are its wakes beside thirty naps of 0.1 s:
# a busy machine makes both rarer. One that does not rest naps a millisecond at most.
rests() {
  run -- bash -c '
    wakes() {
      local task
      for task in /proc/$program/task/*; do
        [ "$(cat $task/comm)" = softhca ] && awk "/^voluntary/ { print \$2; found = 1 } END { exit !found }" $task/status && return
      done
      return 1
    }
    wakes_less_than_naps() {
      local before after nap
      before=$(wakes) || return
      for nap in {1..30}; do sleep 0.1; done
      after=$(wakes) && woken=$((after - before))
      [ $woken -ge 1 ] && [ $woken -lt 30 ]
    }
    $0 >$folder/idle & program=$!
    eventually wakes_less_than_naps && echo "rests"
    echo "$woken wakes beside 30 naps"
    kill $program' "$1"
}
for program in ibv_asyncwatch "ibv_rc_pingpong -g 3"; do test_that "$program rests" says 1 '^rests$' rests "$program"; done
for how in events polls "events blocked"; do
  test_that "after a rest, $how" prints "in time" run -- "$programs/idle_queues" $how
done
# A process that writes between its devices, with others beside them that do nothing.
test_that "two devices" prints "at once" run --devices 4 -- "$programs/two_devices"
test_that "a device that is not open yet" prints "at once" \
  run --private --devices 2 --address 198.19.1.1,198.19.2.1 -- "$programs/two_devices" 198.19.2.1
# Polled in the extended way.
test_that "an extended CQ" prints "at once" run -- "$programs/extended_cq"
exit $failed
