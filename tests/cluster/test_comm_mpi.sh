#!/bin/sh
# ctest: labels=full libs=comm_mpi beside=yes timeout=120
# Ranks as MPI processes: the promised bits on 1 to 8 ranks, exchange, an mpirun with two
# programs, and that a group whose rank dies or aborts is gone.
# Usage: test_comm_mpi.sh BUILD_FOLDER
set -u
program=$1/tests/prog_comm_mpi
work=$(mktemp -d) || exit 1
job=
trap 'test -n "$job" && kill -9 "$job" 2>/dev/null; rm -rf "$work"' EXIT
# shellcheck source=tests/support/mpirun.sh
. "$(dirname "$0")/../support/mpirun.sh"

n_failed=0
report() { # report STATUS NAME
    if [ "$1" -eq 0 ]; then
        echo "ok      $2"
    else
        echo "FAILED  $2"
        n_failed=$((n_failed + 1))
        sed 's/^/        /' "$work/out" | head -n 20
    fi
}

succeeds() { # succeeds NAME MPIRUN_ARGUMENT...
    name=$1
    shift
    # shellcheck disable=SC2086
    timeout -k 2 60 mpirun $flags "$@" >"$work/out" 2>&1
    report $? "$name"
}

# Starts a job in the background and waits until rank 0 says that the sums are running.
start_loop() {
    # shellcheck disable=SC2086
    mpirun $flags -np "$1" "$program" loop >"$work/out" 2>&1 &
    job=$!
    tries=0
    until [ "$(grep -c '^pid' "$work/out")" -ge "$1" ]; do
        tries=$((tries + 1))
        [ $tries -gt 200 ] && return 1
        sleep 0.1
    done
}

# Waits for the end of the job, which must not have succeeded; a minute finds one that does not end.
ends_by_itself() {
    start=$(date +%s)
    while is_alive "$job"; do
        [ $(($(date +%s) - start)) -gt 60 ] && return 1
        sleep 0.1
    done
    wait "$job"
    status=$?
    job=
    [ $status -ne 0 ]
}

# A rank that is dead counts as gone, also while its parent has not waited for it yet.
is_alive() {
    state=$(ps -o stat= -p "$1") || return 1
    case $state in Z*) return 1 ;; esac
    return 0
}

nobody_left() {
    for pid in $(sed -n 's/^pid \([0-9]*\).*/\1/p' "$work/out"); do
        if is_alive "$pid"; then
            echo "pid $pid still lives" >>"$work/out"
            return 1
        fi
    done
    return 0
}

kill_rank() {
    start_loop 4 || return 1
    kill -9 "$(sed -n 's/^pid \([0-9]*\) of rank 2$/\1/p' "$work/out")" || return 1
    ends_by_itself && nobody_left
}

abort_rank() {
    # shellcheck disable=SC2086
    timeout -k 2 30 mpirun $flags -np 4 "$program" abort >"$work/out" 2>&1
    [ $? -eq 42 ] && nobody_left
}

for ranks in 1 2 3 4 5 6 7 8; do
    succeeds "sum has the promised bits on $ranks ranks" -np $ranks "$program" sum
done
succeeds "two programs in one world, 1 + 2" -np 1 "$program" split 0 : -np 2 "$program" split 1
kill_rank
report $? "a killed rank ends the job"
abort_rank
report $? "an aborting rank ends the job with its status"

echo "$n_failed failed"
[ $n_failed -eq 0 ]
