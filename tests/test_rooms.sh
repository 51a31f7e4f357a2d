#!/bin/sh
# ctest: labels=quick libs=base timeout=120
# The rules that a script can keep; each violation is printed as file:line.
#   1 a room includes only itself and the rooms of its row in the table of docs/architecture.md;
#     every folder with C files has a row, but for tests/, bench/ and the folders in them; of
#     model/backend/cpu/ and model/backend/cuda/ only model/backend/open.c includes something
#   2 a header called internal.h is included by files of its own folder only; nobody includes by a
#     relative path
#   3 only rpc/ includes grpc/; only http/ includes libmicrohttpd and GnuTLS; only access/ and tests
#     include openssl/; only proto/ and rpc/health* include .pb-c.h; only comm/comm_mpi.c includes
#     mpi.h; only worker/group.c, coordinator/main.c, comm/ and tests include comm/comm_mpi.h; only
#     comm/comm_nccl.c, model/backend/cuda/, bench/cuda_ceilings.cu and the emulator in
#     tests/emulate include CUDA or NCCL; in coordinator/ only doors, target.c and discovery.c
#     include rpc/, and only doors include grpc_stream.h, so that the engine cannot learn of
#     gRPC
#   4 nobody below main ends the process, but for a group's abort, the process's own clock,
#     base/system/program.c, the part of main that the servers share, and a child of launch/apart.c
#   5 no source or script over 800 lines; over 500 is a warning; no more than 25 units in a folder
#     of a room, where a source and its header are one unit, but for model/jinja
#   6 clang-format 14 has nothing to change, where it is installed
#   7 no line of source, scripts or documentation over 100 columns, but for Markdown tables, lines
#     with an address (http...) and lines that are one unbreakable word after a comment's or a
#     list's mark
#   8 a script whose first line says what runs it may be run
#   9 in coordinator/ only grpc/ and store/ turn messages of proto/generation_wire.h into protobuf
#     or back: the engine and the HTTP door have structs
# Usage: test_rooms.sh BUILD_FOLDER         tries the rules on small bad trees, then on this tree
#        test_rooms.sh BUILD_FOLDER TREE    only looks at TREE
# With OUTRIDER_TEST_FAST set, as `tests/run fast` does, it only looks at this tree, and checks the
# format only of files that differ from HEAD.
set -u

# Reads files given by paths relative to the tree, prints violations, exits with 1 if there are any.
rules=$(
    cat <<'AWK'
BEGIN {
    read_rooms()
    may_end["comm/comm.c _Exit"] = may_end["comm/comm_mpi.c _Exit"] = 1
    may_end["comm/comm_nccl.c _Exit"] = may_end["base/system/process.c _exit"] = 1
    may_end["base/system/program.c _Exit"] = 1
    may_end["launch/apart.c _exit"] = 1 # of a child that could not become its program
}

# The table of rooms: | room | what it holds | room, folder/*, file, ... |. A room of the first
# column may include what the third one lists. A file with a row has it in place of its room's.
function read_rooms(   line, n_read, n_cells, cells, room, is_table, allowed) {
    while ((getline line < table) > 0) {
        n_read++
        if (line ~ /^\| room \| holds \| may include \|$/) { is_table = 1; continue }
        if (line !~ /^\|/) is_table = 0
        if (!is_table || line ~ /^[|-]+$/) continue
        n_cells = split(line, cells, / *\| */)
        room = cells[2]
        allowed = cells[4]
        gsub(/,/, " ", allowed)
        if (n_cells != 5 || room !~ /^[a-z][a-z0-9_\/]*(\.c)?$/ ||
            allowed !~ /^[a-z][a-z0-9_\/.* ]*$/) {
            print table ":" n_read ": not a row of the table of rooms"
            exit is_bad = 1
        }
        may_include[room] = allowed == "nothing" ? "" : allowed
        if (room !~ /\.c$/) rooms[++n_rooms] = room
    }
    if (n_rooms < 20) {
        print table ": the table of rooms has " n_rooms + 0 " rows; 20 or more are expected"
        exit is_bad = 1
    }
}

function fail(text) {
    printf "%s:%d: %s\n", name, FNR, text
    is_bad = 1
}

function check_length() {
    if (!has_length_limit) return
    if (n_lines > 800) {
        printf "%s:801: %d lines; 800 is a stop\n", name, n_lines
        is_bad = 1
    } else if (n_lines > 500) {
        printf "%s:501: warning: %d lines; 500 wants a reason\n", name, n_lines
    }
}

# A unit more in the file's folder, if it is that of a room.
function count_unit(   unit) {
    unit = name
    if (room == "" || !sub(/\.(c|h|cpp|cu|cuh)$/, "", unit) || unit in is_counted) return
    is_counted[unit] = 1
    sub(/\/[^\/]*$/, "", unit)
    n_units[unit]++
}

function check_folders(   path) {
    for (path in n_units) {
        if (n_units[path] <= 25 || path == "model/jinja") continue
        printf "%s/:1: %d units; more than 25 in a folder are a stop\n", path, n_units[path]
        is_bad = 1
    }
}

# The text between the first < or " and its partner.
function include_path(line) {
    sub(/^[^<"]*[<"]/, "", line)
    sub(/[>"].*$/, "", line)
    return line
}

# The room that a path of ours lies in; "" for other folders.
function room_of(path,   i, longest) {
    longest = ""
    for (i = 1; i <= n_rooms; i++) {
        if (index(path, rooms[i] "/") == 1 && length(rooms[i]) > length(longest)) longest = rooms[i]
    }
    return longest
}

# A file of C or C++ is in a room, and not in a folder within one that has no row of its own.
function check_folder(   own) {
    own = name
    if (!sub(/\/[^\/]*$/, "", own)) own = "."
    if (folder == "tests" || folder == "bench" || own == room) return
    fail(own "/ has no row in the table of rooms")
}

# True when one of the words of `allowed` covers a header of room `other`.
function is_covered(allowed, path, other,   i, n, words, folder) {
    n = split(allowed, words, " ")
    for (i = 1; i <= n; i++) {
        if (words[i] == path || words[i] == other) return 1
        folder = words[i]
        if (sub(/\/\*$/, "", folder) && index(other "/", folder "/") == 1) return 1
    }
    return 0
}

function check_rooms(path,   other, allowed, own) {
    if (path ~ /(^|\/)\.\.\//) fail("includes by a relative path")
    other = room_of(path)
    if (path ~ /\/internal\.(h|cuh)$/) {
        own = path
        sub(/\/[^\/]*$/, "", own)
        if (room != "" && index(name, own "/") != 1) fail(path " is for " own "/ alone")
    }
    if (room != "" && path ~ /^(tests|bench)\//) fail("only tests and bench include " path)
    if (room == "" || other == "" || other == room) return
    if (path ~ /^model\/backend\/(cpu|cuda)\// && name !~ /^model\/backend\/(cpu|cuda)\// &&
        name != "model/backend/open.c") {
        fail("only model/backend/open.c includes " path)
    }
    allowed = (name in may_include) ? may_include[name] : may_include[room]
    if (is_covered(allowed, path, other)) return
    fail(room "/ includes " path ", which its row of the table does not have")
}

function check_library(path) {
    if (path ~ /^grpc\// && folder != "rpc") fail("only rpc/ includes " path)
    if (path ~ /^(microhttpd\.h$|gnutls\/)/ && folder != "http") fail("only http/ includes " path)
    if (path ~ /^openssl\// && folder != "access" && folder != "tests") {
        fail("only access/ includes " path)
    }
    if (path ~ /\.pb-c\.h$/ && folder != "proto" && name !~ /^rpc\/health/) {
        fail("only proto/ and the health service of rpc/ include " path)
    }
    if (path ~ /^rpc\// && folder == "coordinator" &&
        name !~ /^coordinator\/(grpc\/[a-z_]+\.[ch]|target\/target\.c)$/ &&
        name != "coordinator/discovery/discovery.c") {
        fail("in coordinator/ only doors, target.c and discovery.c include " path)
    }
    if (path == "coordinator/grpc/grpc_stream.h" && folder != "tests" &&
        name !~ /^coordinator\/grpc\/[a-z_]+\.[ch]$/) {
        fail("only the gateway and grpc_stream.c include " path)
    }
    if (path ~ /^mpi(-ext)?\.h$/ && name != "comm/comm_mpi.c") {
        fail("only comm/comm_mpi.c includes " path)
    }
    if (path == "comm/comm_mpi.h" && folder != "comm" && folder != "tests" &&
        name != "worker/group.c" && name != "coordinator/main.c") {
        fail("only worker/group.c and coordinator/main.c include " path)
    }
    if (path ~ /^(cuda|cublas|nccl|cub\/|cutlass\/|cooperative_groups|nv(ml|tx|ToolsExt)|mma\.h)/ &&
        name !~ /^(comm\/comm_nccl\.c$|model\/backend\/cuda\/|bench\/cuda_ceilings\.cu$)/ &&
        name !~ /^tests\/emulate\//) {
        fail("only comm_nccl.c and model/backend/cuda/ include " path)
    }
}

# Columns are counted in characters: awk works in the C locale here, so the bytes of a UTF-8
# character after its first are taken out. A script without a suffix begins with a comment; other
# files without a suffix are not looked at.
function check_columns(line) {
    if (length(line) <= 100) return
    gsub(/[\200-\277]/, "", line)
    if (length(line) <= 100 || line ~ /https?:\/\//) return
    if (name ~ /\.md$/ && line ~ /^[ \t]*\|/) return
    sub(/^[ \t]*(\/\*|\/\/|\*|#+|-|\+|[0-9]+\.)?[ \t]+/, "", line)
    if (line !~ /[ \t]/) return
    fail("is longer than 100 columns")
}

# The line without comments and without what is in quotes; in_comment goes on to the next line.
function code_of(line,   out, i, c, quote) {
    if (!in_comment && line !~ /["'\/]/) return line
    out = quote = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (in_comment) {
            if (substr(line, i, 2) == "*/") { in_comment = 0; i++ }
        } else if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) quote = ""
        } else if (substr(line, i, 2) == "//") {
            break
        } else if (substr(line, i, 2) == "/*") {
            in_comment = 1
            i++
        } else if (c == "\"" || c == "'") {
            quote = c
        } else {
            out = out c
        }
    }
    return out
}

function check_ending(code,   call) {
    if (room == "" || name ~ /\/main\.c$/) return
    while (match(code, /(^|[^A-Za-z0-9_])(exit|_exit|_Exit|quick_exit|abort)[ \t]*\(/)) {
        call = substr(code, RSTART, RLENGTH)
        gsub(/[^A-Za-z_]/, "", call)
        if (!((name " " call) in may_end)) fail("calls " call " below main")
        code = substr(code, RSTART + RLENGTH)
    }
}

function check_codecs(code) {
    if (folder != "coordinator" || room ~ /^coordinator\/(grpc|store)$/) return
    if (code !~ /(generate_(request|reply)|score_(request|reply)|service_description)_(en|de)code/)
        return
    fail("in coordinator/ only grpc/ and store/ encode or decode messages")
}

FNR == 1 {
    check_length()
    name = FILENAME
    sub(/^\.\//, "", name)
    folder = name
    sub(/\/.*/, "", folder)
    room = room_of(name)
    in_comment = 0
    has_length_limit = name !~ /\.md$/
    is_text = FILENAME ~ /\.[^\/.]+$/ || $0 ~ /^#/
    is_c = name ~ /\.(c|h|cpp|cu|cuh)$/
    if (is_c) check_folder()
    if (is_c) count_unit()
    if (/^#!/ && system("test -x '" FILENAME "'") != 0) fail("is a script without the right to run")
}
{
    n_lines = FNR
    if (is_text) check_columns($0)
    if (!is_c) next
    if (!in_comment && $0 ~ /^[ \t]*#[ \t]*include[ \t]*[<"]/) {
        path = include_path($0)
        check_rooms(path)
        check_library(path)
    }
    code = code_of($0)
    check_ending(code)
    check_codecs(code)
}
END {
    check_length()
    check_folders()
    exit is_bad
}
AWK
)

# Prints the files of the current folder that people write and that find's tests select, NUL after
# each: find_files TEST...
find_files() {
    find . \( -path ./build -o -path './.?*' -o -path ./tests/golden -o -path ./tests/fuzz/seeds \
        -o -path ./deploy/models \) -prune -o -type f \( "$@" \) -print0
}

find_c_sources() {
    find_files -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh'
}

# The C sources whose format is checked; all of them where there is no HEAD to compare with.
find_formatted() {
    if [ -n "${OUTRIDER_TEST_FAST-}" ] && git rev-parse -q --verify HEAD >/dev/null 2>&1; then
        {
            git diff -z --relative --name-only --diff-filter=d HEAD
            git ls-files -z --others --exclude-standard
        } | grep -zE '\.(c|h|cpp|cu|cuh)$' | grep -zvE '^(tests/golden|tests/fuzz/seeds)/'
    else
        find_c_sources
    fi
}

# The scripts without a suffix are among the files without a dot.
find_other_texts() {
    find_files -name '*.proto' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' \
        -o -name CMakeLists.txt -o -name '*.md' -o ! -name '*.*' ! -name LICENSE
}

# The formatter of the version that .clang-format is written for, or nothing.
find_formatter() {
    for candidate in clang-format-14 clang-format; do
        if $candidate --version 2>/dev/null | grep -q 'version 14\.'; then
            echo "$candidate"
            return
        fi
    done
}

check_tree() { # check_tree ROOT [TABLE]: TABLE takes the place of docs/architecture.md
    (
        set -f
        cd "$1" || exit 1
        table=${2:-$root/docs/architecture.md}
        status=0
        { find_c_sources && find_other_texts; } | sort -z |
            LC_ALL=C xargs -0 -r awk -v table="$table" "$rules" || status=1
        formatter=$(find_formatter)
        if [ -z "$formatter" ]; then
            echo "clang-format 14 is not installed: the format is not checked"
        elif [ -f .clang-format ]; then
            find_formatted | xargs -0 -r "$formatter" --dry-run -Werror 2>&1 || status=1
        fi
        exit $status
    )
}

# The checker is tried on trees of one file each, read from stdin. $rows, where it is set, is the
# file with the table of rooms.
make_tree() { # make_tree PATH
    rm -rf "$work/tree"
    mkdir -p "$work/tree/$(dirname "$1")"
    cp "$root/.clang-format" "$work/tree/"
    cat >"$work/tree/$1"
    if head -c 2 "$work/tree/$1" | grep -q '#!'; then chmod u+x "$work/tree/$1"; fi
}

refuses() { # refuses PATH LINE: the file must be refused at that line
    make_tree "$1"
    if check_tree "$work/tree" "${rows-}" >"$work/out" ||
        ! grep -q "^\(\./\)\?$1:$2:" "$work/out"; then
        echo "the checker did not refuse line $2 of $1:"
        cat "$work/tree/$1" "$work/out" | head -n 20
        n_failed=$((n_failed + 1))
    fi
}

accepts() { # accepts PATH [TEXT]: the file must pass, with TEXT in the output
    make_tree "$1"
    status=0
    check_tree "$work/tree" "${rows-}" >"$work/out" || status=1
    if [ $# -ge 2 ]; then grep -q "$2" "$work/out" || status=1; fi
    if [ $status -ne 0 ]; then
        echo "the checker did not accept $1 ${2-}:"
        cat "$work/tree/$1" "$work/out" | head -n 20
        n_failed=$((n_failed + 1))
    fi
}

try_rule_1() {
    printf '#include "base/a.h"\n#include "model/a.h"\n' | refuses base/a.c 2
    echo '#include "proto/a.h"' | refuses model/a.h 1
    echo '#include <rpc/a.h>' | refuses comm/a.c 1
    echo '#  include "worker/a.h"' | refuses coordinator/a.c 1
    echo '#include "client/a.h"' | refuses worker/main.c 1
    echo '#include "coordinator/a.h"' | refuses client/bench/a.c 1
    echo '#include "speculation/accept/rules.h"' | refuses worker/verifier.c 1
    echo '#include "speculation/accept/rules.h"' | refuses speculation/rows/wish.c 1
    echo '#include "speculation/rows/target_row.h"' | refuses speculation/planner/share.c 1
    echo '#include "speculation/theory/strategy.h"' | accepts proto/a.h
    echo '#include "speculation/planner/planner.h"' | refuses proto/a.h 1
    echo '#include "rpc/server.h"' | refuses proto/a.c 1
    echo '#include "proto/codec.h"' | refuses rpc/health.c 1
    echo '#include "model/model.h"' | refuses model/backend/open.c 1
    echo '#include "model/backend/cpu/cpu.h"' | refuses model/backend/pack.c 1
    echo '#include "model/backend/cpu/cpu.h"' | accepts model/backend/open.c
    echo '#include "model/backend/cpu/kernels/kernels.h"' | refuses model/backend/backend.h 1
    echo '#include "model/backend/cpu/kernels/kernels.h"' | accepts model/backend/cpu/matrix.c
    echo '#include "model/backend/backend.h"' | accepts model/backend/cuda/rows.cu
    echo '#include "model/backend/cpu/kv.h"' | refuses model/backend/cuda/rows.cu 1
    echo '#include "model/tokenizer/tokenizer.h"' | refuses model/checkpoint/folder.c 1
    echo '#include "model/backend/backend.h"' | refuses client/a.c 1
    printf '#include "base/a.h"\n#include "proto/a.h"\n#include "worker/a.h"\n' | accepts worker/a.c
    printf '#include "coordinator/a.h"\n#include "worker/a.h"\n' | accepts tests/test_a.c
    echo '#include "tests/support/a.h"' | refuses base/a.c 1
    for room in cpu cuda; do
        for name in worker/a.c coordinator/a.c model/a.c model/backend/options.c; do
            echo "#include \"model/backend/$room/$room.h\"" | refuses $name 1
        done
        for name in model/backend/open.c model/backend/$room/a.c tests/test_a.c bench/bench_a.c; do
            echo "#include \"model/backend/$room/$room.h\"" | accepts "$name"
        done
    done
}

# Folders without a row, and rows that cannot be read.
try_table() {
    for name in attic/a.c attic/a.h a.c proto3/a.c coordinator/attic/a.c model/backend/rocm/a.cu; do
        echo '#include "base/a.h"' | refuses $name 1
    done
    echo '#include "base/a.h"' | accepts bench/a/a.c
    echo '#include "base/a.h"' | accepts tests/a/a.c
    rows=$work/rows.md
    with_row '| http2_door | a door | base, rpc |'
    printf '#include "base/a.h"\n#include "rpc/a.h"\n' | accepts http2_door/a.c
    echo '#include "coordinator/engine/engine.h"' | refuses http2_door/a.c 1
    for row in '| Http | a door | base |' '| http-door | a door | base |' '| http | base |' \
        '| http | a door |  |' '| http | a | door | base |' \
        '| http | a door | base; rpc |'; do
        with_row "$row"
        echo '#include "base/a.h"' | refuses_rows base/a.c
    done
    unset rows
}

with_row() { # with_row ROW: $rows is the table of rooms with one more row
    sed "s/^| rpc | /$1\n&/" "$root/docs/architecture.md" >"$rows"
}

refuses_rows() { # refuses_rows PATH: no file passes, because a row of $rows is wrong
    make_tree "$1"
    if check_tree "$work/tree" "$rows" >"$work/out" || ! grep -q ': not a row of' "$work/out"; then
        echo "the checker did not refuse a row of the table:"
        grep -B 1 '^| rpc | ' "$rows"
        n_failed=$((n_failed + 1))
    fi
}

try_rule_2() {
    echo '#include "../model/a.h"' | refuses base/a.c 1
    echo '#include "model/tokenizer/internal.h"' | refuses coordinator/a.c 1
    echo '#include "model/checkpoint/internal.h"' | refuses model/export/a.c 1
    echo '#include "model/checkpoint/internal.h"' | accepts model/checkpoint/a.c
}

try_rule_3() {
    echo '#include <grpc/grpc.h>' | refuses coordinator/a.c 1
    echo '#include <grpc/grpc.h>' | refuses proto/a.c 1
    echo '#include "proto/target.pb-c.h"' | refuses worker/a.c 1
    echo '#include <grpc/grpc.h>' | accepts rpc/a.c
    echo '#include <microhttpd.h>' | refuses coordinator/a.c 1
    echo '#include <microhttpd.h>' | accepts http/a.c
    echo '#include <openssl/ssl.h>' | refuses rpc/tls.c 1
    echo '#include <openssl/ssl.h>' | accepts access/pem.c
    echo '#include "rpc/health.pb-c.h"' | accepts rpc/health_wire.c
    echo '#include "rpc/health.pb-c.h"' | refuses rpc/server.c 1
    echo '#include <mpi.h>' | refuses comm/comm.c 1
    echo '#include <mpi.h>' | refuses worker/main.c 1
    echo '#include <mpi.h>' | accepts comm/comm_mpi.c
    echo '#include "comm/comm_mpi.h"' | refuses coordinator/coordinator.c 1
    echo '#include "comm/comm_mpi.h"' | refuses worker/group.h 1
    for name in engine/engine.c engine/engine.h round/round.c target/target.h coordinator.c \
        draft/a.c; do
        echo '#include "rpc/client.h"' | refuses coordinator/$name 1
        echo '#include "coordinator/grpc/grpc_stream.h"' | refuses coordinator/$name 1
    done
    echo '#include "coordinator/grpc/grpc_stream.h"' | refuses coordinator/target/target.c 1
    for name in coordinator/target/target.c coordinator/grpc/gateway.c \
        coordinator/grpc/grpc_stream.h client/a.h worker/a.c; do
        echo '#include "rpc/client.h"' | accepts $name
    done
    echo '#include "coordinator/grpc/grpc_stream.h"' | accepts coordinator/grpc/gateway.c
    for name in worker/group.c coordinator/main.c comm/comm_mpi.c tests/programs/prog_a.c; do
        echo '#include "comm/comm_mpi.h"' | accepts $name
    done
    for header in cuda_runtime.h cublasLt.h nccl.h; do
        echo "#include <$header>" | refuses model/backend/cpu/open.c 1
        echo "#include <$header>" | accepts comm/comm_nccl.c
        echo "#include <$header>" | accepts model/backend/cuda/open.cu
        echo "#include <$header>" | refuses tests/test_a.cpp 1
        echo "#include <$header>" | accepts tests/emulate/test_a.cpp
    done
}

try_rule_4() {
    printf 'void f(void)\n{\n    exit(1);\n}\n' | refuses model/a.c 3
    printf 'void f(void)\n{\n    abort();\n}\n' | refuses worker/a.c 3
    printf 'void f(void)\n{\n    if (1) _Exit(1);\n}\n' | refuses comm/comm_threads.c 3
    printf 'void f(void)\n{\n    /* why */ _exit(1);\n}\n' | refuses base/a.c 3
    printf 'void f(void)\n{\n    _exit(1);\n}\n' | accepts base/system/process.c
    printf 'void f(void)\n{\n    _Exit(1);\n}\n' | accepts comm/comm_mpi.c
    printf 'void f(void)\n{\n    _Exit(1);\n}\n' | accepts base/system/program.c
    printf 'void f(void)\n{\n    exit(1);\n}\n' | accepts worker/main.c
    printf '/* abort()\n * exit(1) */\nvoid f(void)\n{\n    g("exit(1)"); // exit(1)\n}\n' |
        accepts base/a.c
    printf 'void f(void)\n{\n    comm_abort(1);\n    at_exit (2);\n}\n' | sed 's/ (/(/' |
        accepts base/a.c
}

try_rule_9() {
    for name in openai/events.c job/sender.c round/score.c; do
        printf 'void f(void)\n{\n    generate_reply_decode(a, b);\n}\n' |
            refuses coordinator/$name 3
        printf 'void f(void)\n{\n    score_reply_encode(a, b);\n}\n' | refuses coordinator/$name 3
        printf '/* generate_reply_encode */\nint generate_request_keep(void);\n' |
            accepts coordinator/$name
    done
    for name in coordinator/grpc/grpc_stream.c coordinator/store/stored_reply.c client/a.c; do
        printf 'void f(void)\n{\n    generate_reply_encode(a, b);\n}\n' | accepts $name
    done
}

try_rules_5_and_6() {
    yes '/* a line */' | head -n 800 | accepts base/a.c 'base/a.c:501: warning'
    yes '/* a line */' | head -n 500 | accepts base/a.c
    yes '/* a line */' | head -n 801 | refuses base/a.c 801
    yes '# a line' | head -n 801 | refuses tests/test_a.sh 801
    if [ -n "$(find_formatter)" ]; then
        printf 'int a;\nint  b;\n' | refuses base/a.h 2
        printf 'int a;\nint  b;\n' | refuses model/backend/cuda/open.cu 2
    fi
}

# Trees of FOLDER with N sources, each with its header, and one header alone.
make_folder() { # make_folder FOLDER N
    echo '/* a line */' | make_tree "$1/alone.h"
    for i in $(seq "$2"); do
        cp "$work/tree/$1/alone.h" "$work/tree/$1/a$i.c"
        cp "$work/tree/$1/alone.h" "$work/tree/$1/a$i.h"
    done
}

try_folders() {
    for case in 'base 24 0' 'base 25 1' 'model/checkpoint 25 1' 'model/jinja 25 0' 'bench 25 0' \
        'tests/unit/base 25 0'; do
        set -- $case
        make_folder "$1" "$2"
        found=0
        check_tree "$work/tree" >"$work/out" || found=1
        [ "$found" -eq 0 ] || grep -q "^$1/:1: 26 units" "$work/out" || found=wrong
        if [ "$found" != "$3" ]; then
            echo "the checker was to find $3 folders in $1 with $2 sources and a header:"
            head -n 20 "$work/out"
            n_failed=$((n_failed + 1))
        fi
    done
}

repeat() { # repeat N CHARACTER: the character N times, without a line end
    printf "%${1}s" '' | sed "s/ /$2/g"
}

try_rule_7() {
    words="$(repeat 60 a) $(repeat 39 b)" # 100 columns
    printf '/* one\n * two */\n// %s\n' "$words" | refuses base/a.c 3
    for path in README.md deploy/a.sh cmake/a.cmake CMakeLists.txt proto/a.proto bench/a.py; do
        printf '%s\n' "$words" | accepts $path
        printf '\n%sc\n' "$words" | refuses $path 2
    done
    printf '#!/bin/sh\n%sc\n' "$words" | refuses deploy/a 2
    printf '%sc\n' "$words" | accepts bench/prompts
    printf '%sc\n' "$words" | accepts LICENSE
    printf '#!/bin/sh\n%sc\n' "$words" | accepts tests/golden/a.py
    printf 'aé%s\n' "${words#aa}" | accepts README.md
    printf 'aé%sc\n' "${words#aa}" | refuses README.md 1
    printf '| %sc |\n' "$words" | accepts docs/a.md
    printf '| %sc |\n' "$words" | refuses bench/a.py 1
    printf 'see https://example.org/ %s\n' "$words" | accepts docs/a.md
    printf '# %s\n' "$(repeat 101 a)" | accepts deploy/a.sh
    printf '    - %s\n' "$(repeat 101 a)" | accepts docs/a.md
    printf '%s a\n' "$(repeat 99 a)" | refuses docs/a.md 1
}

try_rule_8() {
    for path in deploy/a bench/a.py tests/a.sh; do
        printf '#!/bin/sh\necho a\n' | accepts $path
        chmod u-x "$work/tree/$path"
        if check_tree "$work/tree" >"$work/out" || ! grep -q "$path:1:" "$work/out"; then
            echo "the checker did not refuse $path without the right to run:"
            cat "$work/out"
            n_failed=$((n_failed + 1))
        fi
        printf '# read by others\necho a\n' | accepts $path
    done
}

root=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -ge 2 ]; then
    check_tree "$2"
    exit
elif [ -n "${OUTRIDER_TEST_FAST-}" ]; then
    check_tree "$root"
    exit
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
n_failed=0
try_rule_1
try_table
try_rule_2
try_rule_3
try_rule_4
try_rules_5_and_6
try_folders
try_rule_7
try_rule_8
try_rule_9
[ $n_failed -eq 0 ] && echo "the checker finds what it should"
check_tree "$root" || n_failed=$((n_failed + 1))
[ $n_failed -eq 0 ]
