#!/bin/bash
# ctest: labels=full libs=client beside=yes timeout=240
# deploy/local/run itself, on the build folder as it is: the text, several runs at a time, and that
# no process and no file is left over, however a run ends.
# Usage: test_local_run.sh BUILD_FOLDER
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
OUTRIDER_BUILD=$(cd "$1" && pwd) || exit 1
work=$(mktemp -d /tmp/local-run.XXXXXX) || exit 1
export OUTRIDER_BUILD TMPDIR=$work # every process of a run has this path among its arguments
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
    local file words
    for file in /proc/[0-9]*/cmdline; do
        words=$({ tr '\0' ' ' <"$file"; } 2>/dev/null) || continue
        case $words in *"$work/outrider."*) basename "$(dirname "$file")" ;; esac
    done
}

kill_rest() {
    # shellcheck disable=SC2046
    kill -KILL $(pids_of_runs) 2>/dev/null
}

kill_worker() {
    kill -KILL "$(pids_of_runs | xargs ps -o pid=,comm= -p |
        awk '/outrider-worker/{print $1; exit}')"
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
    nobody_left && [ -z "$(find "$work" -maxdepth 1 -name 'outrider.*')" ]
}

greedy_text() { # greedy_text RANKS
    timeout -k 5 60 "$run" -T "$1" -K 4 "$prompt" --temperature 0 -n 96 --stats \
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
    timeout -k 5 60 "$run" -T 1 >"$work/out" 2>"$work/err" &&
        timeout -k 5 60 "$run" -T 1 "Once upon a time" --temperature 0.4 --seed 7 -n 120 -q \
            >"$work/out2" 2>"$work/err2" &&
        cmp -s "$work/out" "$work/out2" && [ "$(wc -l <"$work/err")" -eq 3 ] &&
        grep -q '^120 tokens' "$work/err" &&
        timeout -k 5 60 "$run" -T 1 "x" -n 5 --temperature 0 --stats >"$work/out" 2>"$work/err" &&
        grep -q '^tokens  *5 ' "$work/err" && grep -q '^rule  *greedy' "$work/err" && nothing_left
}

two_at_a_time() {
    local first second
    timeout -k 5 60 "$run" -T 1 "$prompt" --temperature 0 -n 40 -q >"$work/out" 2>"$work/err" &
    first=$!
    timeout -k 5 60 "$run" -T 2 "$prompt" --temperature 0 -n 40 -q >"$work/out2" 2>"$work/err2" &
    second=$!
    wait $first && wait $second && cmp -s "$work/out" "$work/out2" && [ -s "$work/out" ] &&
        nothing_left
}

# The three commands of README.md, "The same text", as they are written there but for the script's
# path: two texts with and without guesses, and a diff that prints nothing.
readme_texts() {
    sed -n "/^## Equal text/,/^## /s|^    ||p" "$root/README.md" |
        sed "s|^\./deploy/local/run|$run|" >"$work/commands"
    [ "$(wc -l <"$work/commands")" -eq 3 ] &&
        (cd "$work" && timeout -k 5 120 sh -eu ./commands >out 2>err) &&
        [ ! -s "$work/out" ] && [ -s "$work/plain.txt" ] && nothing_left
}

# Starts a run in a session of its own, as from a terminal (a shell lets its background jobs ignore
# SIGINT), and waits until it has printed something. The shipped pair would fill its context in a
# quarter of a second; this model takes half a minute.
slow_model=synthetic:qwen2.5-0.5b,seed=1,layers=8,vocab=512
start_long_run() {
    local tries=0
    : >"$work/out"
    setsid env --default-signal=INT "$run" -T 2 --target $slow_model "$prompt" --ignore-eos \
        >"$work/out" 2>"$work/err" &
    long=$!
    until [ -s "$work/out" ]; do
        tries=$((tries + 1))
        [ $tries -le 300 ] || return 1
        sleep 0.1
    done
}

interrupted_by() { # interrupted_by SIGNAL GROUP_OR_PID STATUS
    start_long_run || return 1
    kill -"$1" -- "$2$long"
    wait $long
    [ $? -eq "$3" ] && nothing_left
}

killed() {
    start_long_run || return 1
    kill -KILL $long
    wait $long 2>/dev/null
    nobody_left
    local status=$?
    rm -rf "$work"/outrider.*
    return $status
}

lost_worker() {
    start_long_run || return 1
    kill_worker
    wait $long
    [ $? -eq 1 ] && grep -q 'the end of workers.log' "$work/err" && nothing_left
}

wrong_model() { # the one line, and nothing was started
    timeout -k 5 60 "$run" --target /nowhere x >"$work/out" 2>"$work/err"
    [ $? -eq 1 ] && grep -q '/nowhere' "$work/err" && [ "$(wc -l <"$work/err")" -eq 1 ] &&
        nothing_left
}

wrong_draft() { # wrong_draft --draft|--head: the one line says why, and nothing was started
    timeout -k 5 60 "$run" -T 1 --target "$root/deploy/models/tales/target" "$1" /nowhere x \
        >"$work/out" 2>"$work/err"
    [ $? -eq 1 ] && grep -q 'there is no folder /nowhere' "$work/err" &&
        [ "$(wc -l <"$work/err")" -eq 1 ] && nothing_left
}

# A head that the test makes drafts for the default target: the same text, with guesses that stay.
head_text() {
    python3 "$root/tests/support/bigram_head.py" "$work/head" &&
        timeout -k 5 60 "$run" -T 1 --head "$work/head" -K 4 "$prompt" --temperature 0 -n 60 \
            --stats >"$work/out" 2>"$work/err" &&
        timeout -k 5 60 "$run" -T 1 -K 0 "$prompt" --temperature 0 -n 60 -q >"$work/out2" \
            2>"$work/err2" &&
        cmp -s "$work/out" "$work/out2" && grep -q '^alpha  *0\.[0-9]*[1-9]' "$work/err" &&
        rm -r "$work/head" && nothing_left
}

# deploy/mpirun/group ends, instead of starting again, with one line.
hopeless_group() { # hopeless_group STATUS PART OPTION...
    local status=$1 part=$2
    shift 2
    timeout -k 5 60 "$root/deploy/mpirun/group" --build "$OUTRIDER_BUILD" "$@" >"$work/out" \
        2>"$work/err"
    [ $? -eq "$status" ] && grep -q -- "$part" "$work/err" && [ "$(wc -l <"$work/err")" -eq 1 ]
}

refuses() {
    timeout -k 5 60 "$run" "$@" >"$work/out" 2>"$work/err"
    [ $? -eq 2 ] && [ -s "$work/err" ] && nothing_left
}

# A cluster that stays (--serve): it answers, its flags reach the programs, and it ends when told.
start_serving() { # start_serving OPTION...
    local tries=0
    : >"$work/out"
    setsid "$run" --serve "unix:$work/outrider.socket" "$@" >"$work/out" 2>"$work/err" &
    serving=$!
    until grep -q '^serving at ' "$work/out" &&
        timeout -k 1 5 "$OUTRIDER_BUILD/bin/outrider" health \
            --address "unix:$work/outrider.socket" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -le 100 ] || return 1
        sleep 0.1
    done
}

serves() {
    start_serving -T 2 --worker "--threads 1 --slots 3" \
        --coordinator "--queue 7 --http 127.0.0.1:0" || return 1
    "$OUTRIDER_BUILD/bin/outrider" describe --address "unix:$work/outrider.socket" >"$work/out2"
    kill -TERM $serving
    wait $serving
    [ $? -eq 143 ] && grep -q '^serving at ' "$work/out" && grep -q '^ranks  *2$' "$work/out2" &&
        grep -q '^queue  *7$' "$work/out2" && nobody_left && rm -f "$work/outrider.socket" &&
        nothing_left
}

lost_while_serving() {
    start_serving -T 1 --coordinator "--http 127.0.0.1:0" || return 1
    kill_worker
    wait $serving
    [ $? -eq 1 ] && grep -q 'the workers ended' "$work/err" && rm -f "$work/outrider.socket" &&
        nothing_left
}

helps() {
    timeout -k 5 60 "$run" --help >"$work/out" 2>"$work/err" && grep -q -- '--ranks' "$work/out" &&
        grep -q -- '--temperature' "$work/out" && nothing_left
}

# A signal to all processes of a run that starts, at several moments: the shell prints nothing.
starts_end_in_silence() {
    local after pid
    for after in 0.30 0.33 0.36 0.39 0.42 0.45; do
        setsid "$run" --serve "unix:$work/outrider.socket" --coordinator "--http 127.0.0.1:0" \
            >"$work/out" 2>"$work/err" &
        pid=$!
        sleep $after
        kill -TERM -- -$pid
        wait $pid
        [ $? -eq 143 ] && ! grep -q Terminated "$work/err" || return 1
    done
    rm -f "$work/outrider.socket" && nothing_left
}

for ranks in 1 2 4; do
    greedy_text $ranks
    report $? "the greedy reference on $ranks ranks"
done
toy_defaults
report $? "a first text without options"
two_at_a_time
report $? "two runs at a time"
readme_texts
report $? "the same text with and without guesses, by the commands of README.md"
interrupted_by INT - 130
report $? "Ctrl-C ends everything"
interrupted_by TERM '' 143
report $? "SIGTERM ends everything"
killed
report $? "killed, it leaves nobody"
lost_worker
report $? "a lost worker is a failure with its log"
wrong_model
report $? "a wrong model is a failure with one line"
head_text
report $? "a head drafts, and the text is that of plain decoding"
wrong_draft --draft
report $? "a wrong draft is a failure with one line"
wrong_draft --head
report $? "so is a wrong head"
hopeless_group 78 /nowhere --model /nowhere
report $? "a group without a model is not started again"
hopeless_group 78 'must be one of 1 2 4 8' -T 3 --model "$root/deploy/models/tales/target"
report $? "nor one of ranks that cannot share the model"
hopeless_group 2 '--model is missing'
report $? "nor one without options"
serves
report $? "--serve stays until SIGTERM"
starts_end_in_silence
report $? "a start that SIGTERM ends is silent"
lost_while_serving
report $? "--serve ends when a worker is lost"
refuses --serve "a prompt"
report $? "--serve with a prompt is refused"
refuses -T 3
report $? "-T 3 is refused"
refuses -T 9
report $? "-T 9 is refused"
refuses --no-such-option x && [ "$(wc -l <"$work/err")" -eq 1 ]
report $? "an option that generate does not know is refused before anything starts"
helps
report $? "--help"

echo "$n_failed failed"
[ $n_failed -eq 0 ]
