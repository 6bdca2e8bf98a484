#!/bin/bash
# Idle programs, and how soon their devices work again: idle.sh SOFTHCA PROGRAMS.
. "$(dirname "$0")/lib.sh" "$@"

# docs/run.md: if there is nothing to do, the library's thread polls once a second, with queues (a server that waits for its
# client) and without. It goes to sleep after two seconds, or later on a busy machine. The test counts its wakeups during thirty
# naps of 0.1 s, which take longer on a busy machine: there may be ten in a second. A thread that stays awake naps for at most a
# millisecond.
rests() {
  run -- bash -c '
    wakes() {
      local task
      for task in /proc/$program/task/*; do
        [ "$(cat $task/comm)" = softhca ] && awk "/^voluntary/ { print \$2; found = 1 } END { exit !found }" $task/status && return
      done
      return 1
    }
    wakes_rarely() {
      local before after nap begin=$SECONDS
      before=$(wakes) || return
      for nap in {1..30}; do sleep 0.1; done
      after=$(wakes) && woken=$((after - before)) && seconds=$((SECONDS - begin))
      [ $woken -ge 1 ] && [ $woken -lt $((10 * seconds)) ]
    }
    $0 >$folder/idle & program=$!
    eventually wakes_rarely && echo "rests"
    echo "$woken wakes in $seconds seconds"
    kill $program' "$1"
}
for program in ibv_asyncwatch "ibv_rc_pingpong -g 3"; do test_that "$program rests" says 1 '^rests$' rests "$program"; done
for how in events polls "events blocked"; do
  test_that "after a rest, $how" prints "in time" run -- "$programs/idle_queues" $how
done
# A process that writes between two of its devices, while the others are idle.
test_that "two devices" prints "at once" run --devices 4 -- "$programs/two_devices"
test_that "a device that is not open yet" prints "at once" \
  run --private --devices 2 --address 198.19.1.1,198.19.2.1 -- "$programs/two_devices" 198.19.2.1
# Polls by ibv_start_poll().
test_that "an extended CQ" prints "at once" run -- "$programs/extended_cq"
exit $failed
