#!/bin/sh
# ctest: labels=full libs=worker beside=yes timeout=600
# The same logits under real MPI: 300 tokens go through the tales target on 1, 2, 4 and 8 processes,
# and through small models of 3, 5, 6 and 7 slices on as many as can share them, 1, 7, 64 and 300 at
# a time, with 1 and 2 threads. The logits of all positions must have the same bits in all of these
# ways: each vocabulary slice has one hash.
# Usage: test_forward_mpi.sh BUILD_FOLDER
set -u
program=$1/tests/prog_logits
model=$(dirname "$0")/../../deploy/models/tales/target
n_tokens=300
n_ways=8 # 4 chunks, 2 counts of threads
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/mpirun.sh
. "$(dirname "$0")/../support/mpirun.sh"

fail() {
    echo "FAILED  $1"
    exit 1
}

# run_ranks RANKS NAME [ARGUMENT]: the lines of all ranks end up in $work/NAME.
run_ranks() {
    ranks=$1
    name=$2
    shift 2
    # shellcheck disable=SC2086
    timeout -k 2 240 mpirun $flags -np "$ranks" "$program" "$model" $n_tokens "$@" \
        >"$work/$name" 2>"$work/err"
    status=$?
    [ $status -eq 0 ] || { sed 's/^/        /' "$work/err" | head -n 20; }
    [ $status -eq 0 ] || fail "$name: status $status"
}

# The hash of each slice, one line per slice; more lines mean that the ways differ.
hashes() {
    sed 's/^threads=.* slice=/slice=/' "$work/$1" | sort -u
}

# compare SLICES RANKS...: the model has so many slices, and the same bits on all these ranks.
compare() {
    n_slices=$1
    shift
    run_ranks 1 one
    hashes one >"$work/expected"
    seen=$(sed 's/ hash=.*//' "$work/expected" | sort -u | wc -l)
    [ "$seen" -eq "$n_slices" ] || fail "$model has $seen slices, not $n_slices"
    for ranks in "$@"; do
        run_ranks "$ranks" ranks
        lines=$(wc -l <"$work/ranks")
        [ "$lines" -eq $((n_ways * n_slices)) ] || fail "$ranks ranks printed $lines lines"
        hashes ranks >"$work/seen"
        if ! cmp -s "$work/expected" "$work/seen"; then
            sort -t= -k4 "$work/ranks" | sed 's/^/        /'
            fail "$model, $ranks ranks: logits have other bits"
        fi
        echo "ok      $ranks ranks: $n_ways ways, $n_slices slices, one set of bits"
    done
}

tales=$model
for n_slices in 3 5 6 7; do
    model=synthetic:tiny-$n_slices,seed=7
    case $n_slices in
    6) compare 6 3 6 ;;
    *) compare "$n_slices" "$n_slices" ;;
    esac
done
model=$tales
compare 8 1 2 4 8

run_ranks 2 other other
hashes other >"$work/seen"
comm -12 "$work/expected" "$work/seen" >"$work/same"
[ ! -s "$work/same" ] || fail "another last token left a hash as it was"
echo "ok      another last token changes the hash of every slice"
sed 's/^/        /' "$work/expected"
