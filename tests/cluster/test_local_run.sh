#!/bin/bash
# ctest: labels=full libs=client beside=yes timeout=240
# deploy/local/run itself, on the build folder as it is: the text, and that no process and no file
# is left over, however a run ends. The programs that it calls have tests of their own
# (test_run.py, test_serve.py). At the end, starts of deploy/mpirun/group that cannot succeed.
# Usage: test_local_run.sh BUILD_FOLDER
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
OUTRIDER_BUILD=$(cd "$1" && pwd) || exit 1
work=$(mktemp -d /tmp/local-run.XXXXXX) || exit 1
export OUTRIDER_BUILD TMPDIR=$work # every process of a run has this path in its environment
trap 'kill_rest; rm -rf "$work"' EXIT
run=$root/deploy/local/run
prompt="Once upon a time there was a king who had three daughters,"

n_failed=0
report() { # report STATUS NAME
    if [ "$1" -eq 0 ]; then
        echo "ok      $2"
    else
        echo "FAILED  $2"
        n_failed=$((n_failed + 1))
        tail -n 20 "$work/out" "$work/err" 2>/dev/null | sed 's/^/        /'
    fi
}

pids_of_runs() {
    local file
    for file in /proc/[0-9]*/environ; do
        grep -qzx "TMPDIR=$work" "$file" 2>/dev/null || continue
        case $(cat "${file%environ}comm" 2>/dev/null) in
        outrider*) basename "$(dirname "$file")" ;;
        esac
    done
}

kill_rest() {
    # shellcheck disable=SC2046
    kill -KILL $(pids_of_runs) 2>/dev/null
}

# Within 15 s no process is left.
nobody_left() {
    local tries=0
    while [ -n "$(pids_of_runs)" ]; do
        tries=$((tries + 1))
        [ $tries -le 75 ] || return 1
        sleep 0.2
    done
}

# Nor a file.
nothing_left() {
    nobody_left && [ -z "$(find "$work" -maxdepth 1 -name 'outrider*')" ]
}

greedy_text() { # greedy_text RANKS
    timeout -k 5 60 "$run" "$prompt" -K 4 --temperature 0 -n 96 --stats -- -T "$1" \
        >"$work/out" 2>"$work/err" ||
        return 1
    python3 - "$root/tests/golden/tales/reference_target.json" "$work/out" <<'PY' || return 1
import json, sys
want = json.load(open(sys.argv[1]))["prompts"][0]["greedy_text"]
sys.exit(open(sys.argv[2], encoding="utf-8").read() != want)
PY
    grep -q '^alpha' "$work/err" && nothing_left
}

# The toy pair is asked for 120 tokens at a low temperature with a seed, unless told otherwise.
toy_defaults() {
    timeout -k 5 60 "$run" >"$work/out" 2>"$work/err" &&
        timeout -k 5 60 "$run" "Once upon a time" --temperature 0.4 --seed 7 -n 120 -q \
            >"$work/out2" 2>"$work/err2" &&
        cmp -s "$work/out" "$work/out2" && [ "$(wc -l <"$work/err")" -eq 3 ] &&
        grep -q '^120 tokens' "$work/err" &&
        timeout -k 5 60 "$run" "x" -n 5 --temperature 0 --stats >"$work/out" 2>"$work/err" &&
        grep -q '^tokens  *5 ' "$work/err" && grep -q '^rule  *greedy' "$work/err" && nothing_left
}

prompt_of_a_file() {
    echo "$prompt" >"$work/prompt" &&
        timeout -k 5 60 "$run" "$prompt" --temperature 0 -n 20 -q >"$work/out" 2>"$work/err" &&
        timeout -k 5 60 "$run" --temperature 0 -n 20 -q --file "$work/prompt" >"$work/out2" \
            2>"$work/err2" &&
        [ -s "$work/out" ] && cmp -s "$work/out" "$work/out2" && nothing_left
}

# Starts a run in a session of its own, as from a terminal (a shell lets its background jobs ignore
# SIGINT), and waits until it serves.
start_serving() { # start_serving OPTION...
    local tries=0
    : >"$work/out"
    setsid env --default-signal=INT "$run" --serve --port 0 --listen "unix:$work/socket" "$@" \
        >"$work/out" 2>"$work/err" &
    serving=$!
    until grep -q ' is served at ' "$work/out"; do
        tries=$((tries + 1))
        [ $tries -le 300 ] || return 1
        sleep 0.1
    done
}

serves_until() { # serves_until SIGNAL
    start_serving -T 2 --slots 3 --queue 7 || return 1
    "$OUTRIDER_BUILD/bin/outrider" describe --address "unix:$work/socket" >"$work/out2"
    kill -"$1" $serving
    wait $serving && grep -q '^ranks  *2$' "$work/out2" && grep -q '^queue  *7$' "$work/out2" &&
        rm -f "$work/socket" && nothing_left
}

refuses() { # refuses PART WORD...: one line, and nothing was started
    local part=$1
    shift
    timeout -k 5 60 "$run" "$@" >"$work/out" 2>"$work/err"
    [ $? -ne 0 ] && grep -q -- "$part" "$work/err" && [ "$(wc -l <"$work/err")" -eq 1 ] &&
        nothing_left
}

helps() {
    timeout -k 5 60 "$run" --help >"$work/out" 2>"$work/err" && grep -q -- '--serve' "$work/out" &&
        [ "$(wc -l <"$work/out")" -le 24 ] && nothing_left
}

# deploy/mpirun/group ends, instead of starting again, with one line.
hopeless_group() { # hopeless_group STATUS PART OPTION...
    local status=$1 part=$2
    shift 2
    timeout -k 5 60 "$root/deploy/mpirun/group" --build "$OUTRIDER_BUILD" "$@" >"$work/out" \
        2>"$work/err"
    [ $? -eq "$status" ] && grep -q -- "$part" "$work/err" && [ "$(wc -l <"$work/err")" -eq 1 ]
}

for ranks in 1 2 4; do
    greedy_text $ranks
    report $? "the greedy reference on $ranks ranks"
done
toy_defaults
report $? "a first text without options"
prompt_of_a_file
report $? "the prompt of a file is that of the command line"
serves_until TERM
report $? "--serve stays until SIGTERM, and its options reach the programs"
serves_until INT
report $? "--serve stays until Ctrl-C"
refuses 'must be one of 1 2 4 8' x -- -T 3
report $? "ranks that cannot share the model are refused"
refuses '--no-such-option' x --no-such-option
report $? "an option that outrider run does not know is refused"
refuses 'there is no folder /nowhere' --serve --draft /nowhere
report $? "a wrong draft is refused"
helps
report $? "--help"
hopeless_group 78 /nowhere --model /nowhere
report $? "a group without a model is not started again"
hopeless_group 78 'must be one of 1 2 4 8' -T 3 --model "$root/deploy/models/tales/target"
report $? "nor one of ranks that cannot share the model"
hopeless_group 2 '--model is missing'
report $? "nor one without options"

echo "$n_failed failed"
[ $n_failed -eq 0 ]
