#!/bin/bash
# Programs that rest, and how soon they are served afterwards: idle.sh SOFTHCA PROGRAMS. Alone on the machine: it measures.
. "$(dirname "$0")/lib.sh" "$@"

# docs/run.md: the library's thread looks once a second where there is nothing to do, with queues (the server waits for its client)
# and without. It goes to sleep after two, or later where it does not get to run.
rests() {
  run -- bash -c '
    wakes() {
      local task
      for task in /proc/$program/task/*; do
        [ "$(cat $task/comm)" = softhca ] && awk "/^voluntary/ { print \$2; found = 1 } END { exit !found }" $task/status && return
      done
      return 1
    }
    once_a_second() {
      local before after begun=$SECONDS
      before=$(wakes) && sleep 3 && after=$(wakes) || return
      woken=$((after - before))
      [ $woken -ge 1 ] && [ $woken -le $((SECONDS - begun + 2)) ]
    }
    $0 >$folder/idle & program=$!
    eventually once_a_second && echo "rests"
    echo "$woken wakes in three seconds"
    kill $program' "$1"
}
for program in ibv_asyncwatch "ibv_rc_pingpong -g 3"; do test_that "$program wakes once a second" says 1 '^rests$' rests "$program"; done
for how in events polls "events blocked"; do
  test_that "after a rest, $how" prints "in time" run -- "$programs/idle_queues" $how
done
# A process that writes between its devices, with others beside them that do nothing.
test_that "two devices" prints "at once" run --devices 4 -- "$programs/two_devices"
# Polled in the extended way.
test_that "an extended CQ" prints "at once" run -- "$programs/extended_cq"
exit $failed
