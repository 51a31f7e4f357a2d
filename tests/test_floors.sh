#!/bin/sh
# ctest: labels=quick libs=base timeout=120
# The rules of docs/design.md section 2 that a script can keep; each violation is printed as file:line.
#   1 a folder includes only itself and the floors below; coordinator, worker, client never each other
#   2 only proto/ includes grpc/ and .pb-c.h; only comm/comm_mpi.c includes mpi.h; only
#     comm/comm_nccl.c, model/backend_cuda* and the emulator in tests/emulate include CUDA or NCCL
#   3 nobody below main ends the process, but for a group's abort and the process's own clock
#   4 no file over 800 lines; over 500 is a warning
#   5 clang-format 14 has nothing to change, where it is installed
# Usage: test_floors.sh BUILD_FOLDER         tries the rules on small bad trees, then on this tree
#        test_floors.sh BUILD_FOLDER TREE    only looks at TREE
set -u

# Reads sources given by paths relative to the tree, prints violations, exits with 1 if there are any.
rules=$(
    cat <<'AWK'
BEGIN {
    n_folders = split("base 1 comm 2 model 3 proto 4 coordinator 5 worker 5 client 5", words, " ")
    for (i = 1; i < n_folders; i += 2) floor[words[i]] = words[i + 1]
    may_end["comm/comm.c _Exit"] = may_end["comm/comm_mpi.c _Exit"] = 1
    may_end["comm/comm_nccl.c _Exit"] = may_end["base/process.c _exit"] = 1
}

function fail(text) {
    printf "%s:%d: %s\n", name, FNR, text
    is_bad = 1
}

function check_length() {
    if (n_lines > 800) {
        printf "%s:801: %d lines; 800 is a stop\n", name, n_lines
        is_bad = 1
    } else if (n_lines > 500) {
        printf "%s:501: warning: %d lines; 500 wants a reason\n", name, n_lines
    }
}

# The text between the first < or " and its partner.
function include_path(line) {
    sub(/^[^<"]*[<"]/, "", line)
    sub(/[>"].*$/, "", line)
    return line
}

function check_folder(path,   other) {
    if (path ~ /(^|\/)\.\.\//) fail("includes by a relative path")
    other = path
    if (!sub(/\/.*/, "", other) || !(other in floor) || !(folder in floor)) return
    if (other != folder && floor[other] >= floor[folder]) {
        fail(folder "/ includes " path ", which is not on a floor below")
    }
}

function check_library(path) {
    if (path ~ /^grpc\// || path ~ /\.pb-c\.h$/) {
        if (folder != "proto") fail("only proto/ includes " path)
    }
    if (path ~ /^mpi(-ext)?\.h$/ && name != "comm/comm_mpi.c") {
        fail("only comm/comm_mpi.c includes " path)
    }
    if (path ~ /^(cuda|cublas|nccl|cub\/|cutlass\/|cooperative_groups|nvml|nvtx|nvToolsExt|mma\.h)/) {
        if (name != "comm/comm_nccl.c" && name !~ /^(model\/backend_cuda|tests\/emulate\/)/) {
            fail("only comm_nccl.c and backend_cuda include " path)
        }
    }
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
    if (!(folder in floor) || name ~ /\/main\.c$/) return
    while (match(code, /(^|[^A-Za-z0-9_])(exit|_exit|_Exit|quick_exit|abort)[ \t]*\(/)) {
        call = substr(code, RSTART, RLENGTH)
        gsub(/[^A-Za-z_]/, "", call)
        if (!((name " " call) in may_end)) fail("calls " call " below main")
        code = substr(code, RSTART + RLENGTH)
    }
}

FNR == 1 {
    check_length()
    name = FILENAME
    sub(/^\.\//, "", name)
    folder = name
    sub(/\/.*/, "", folder)
    in_comment = 0
    is_c = name ~ /\.(c|h|cpp|cu|cuh)$/
}
{
    n_lines = FNR
    if (!is_c) next
    if (!in_comment && $0 ~ /^[ \t]*#[ \t]*include[ \t]*[<"]/) {
        path = include_path($0)
        check_folder(path)
        check_library(path)
    }
    check_ending(code_of($0))
}
END {
    check_length()
    exit is_bad
}
AWK
)

# Prints the sources of the current folder, NUL after each: find_sources PATTERN...
find_sources() {
    set -- -name "$1" $(shift && for pattern; do printf ' -o -name %s' "$pattern"; done)
    find . \( -path ./build -o -path './.?*' \) -prune -o -type f \( "$@" \) -print0
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

check_tree() { # check_tree ROOT
    (
        set -f
        cd "$1" || exit 1
        status=0
        find_sources '*.c' '*.h' '*.cpp' '*.cu' '*.cuh' '*.proto' '*.py' '*.sh' | sort -z |
            xargs -0 -r awk "$rules" || status=1
        formatter=$(find_formatter)
        if [ -z "$formatter" ]; then
            echo "clang-format 14 is not installed: the format is not checked"
        elif [ -f .clang-format ]; then
            find_sources '*.c' '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 -r "$formatter" --dry-run -Werror 2>&1 || status=1
        fi
        exit $status
    )
}

# The checker is tried on trees of one file each, read from stdin.
make_tree() { # make_tree PATH
    rm -rf "$work/tree"
    mkdir -p "$work/tree/$(dirname "$1")"
    cp "$root/.clang-format" "$work/tree/"
    cat >"$work/tree/$1"
}

refuses() { # refuses PATH LINE: the file must be refused at that line
    make_tree "$1"
    if check_tree "$work/tree" >"$work/out" || ! grep -q "^\(\./\)\?$1:$2:" "$work/out"; then
        echo "the checker did not refuse line $2 of $1:"
        cat "$work/tree/$1" "$work/out" | head -n 20
        n_failed=$((n_failed + 1))
    fi
}

accepts() { # accepts PATH [TEXT]: the file must pass, with TEXT in the output
    make_tree "$1"
    status=0
    check_tree "$work/tree" >"$work/out" || status=1
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
    echo '#include <proto/a.h>' | refuses comm/a.c 1
    echo '#  include "worker/a.h"' | refuses coordinator/a.c 1
    echo '#include "client/a.h"' | refuses worker/main.c 1
    echo '#include "coordinator/a.h"' | refuses client/deep/a.c 1
    echo '#include "../model/a.h"' | refuses base/a.c 1
    printf '#include "base/a.h"\n#include "proto/a.h"\n#include "worker/a.h"\n' | accepts worker/a.c
    printf '#include "coordinator/a.h"\n#include "worker/a.h"\n' | accepts tests/test_a.c
}

try_rule_2() {
    echo '#include <grpc/grpc.h>' | refuses coordinator/a.c 1
    echo '#include "proto/target.pb-c.h"' | refuses worker/a.c 1
    echo '#include <grpc/grpc.h>' | accepts proto/a.c
    echo '#include <mpi.h>' | refuses comm/comm.c 1
    echo '#include <mpi.h>' | refuses worker/main.c 1
    echo '#include <mpi.h>' | accepts comm/comm_mpi.c
    for header in cuda_runtime.h cublasLt.h nccl.h; do
        echo "#include <$header>" | refuses model/backend_cpu.c 1
        echo "#include <$header>" | accepts comm/comm_nccl.c
        echo "#include <$header>" | accepts model/backend_cuda.cu
        echo "#include <$header>" | refuses tests/test_a.cpp 1
        echo "#include <$header>" | accepts tests/emulate/test_a.cpp
    done
}

try_rule_3() {
    printf 'void f(void)\n{\n    exit(1);\n}\n' | refuses model/a.c 3
    printf 'void f(void)\n{\n    abort();\n}\n' | refuses worker/a.c 3
    printf 'void f(void)\n{\n    if (1) _Exit(1);\n}\n' | refuses comm/comm_threads.c 3
    printf 'void f(void)\n{\n    /* why */ _exit(1);\n}\n' | refuses base/a.c 3
    printf 'void f(void)\n{\n    _exit(1);\n}\n' | accepts base/process.c
    printf 'void f(void)\n{\n    _Exit(1);\n}\n' | accepts comm/comm_mpi.c
    printf 'void f(void)\n{\n    exit(1);\n}\n' | accepts worker/main.c
    printf '/* abort()\n * exit(1) */\nvoid f(void)\n{\n    g("exit(1)"); // exit(1)\n}\n' | accepts base/a.c
    printf 'void f(void)\n{\n    comm_abort(1);\n    at_exit (2);\n}\n' | sed 's/ (/(/' | accepts base/a.c
}

try_rules_4_and_5() {
    yes '/* a line */' | head -n 800 | accepts base/a.c 'base/a.c:501: warning'
    yes '/* a line */' | head -n 500 | accepts base/a.c
    yes '/* a line */' | head -n 801 | refuses base/a.c 801
    yes '# a line' | head -n 801 | refuses tests/test_a.sh 801
    if [ -n "$(find_formatter)" ]; then
        printf 'int a;\nint  b;\n' | refuses base/a.h 2
        printf 'int a;\nint  b;\n' | refuses model/backend_cuda.cu 2
    fi
}

root=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -ge 2 ]; then
    check_tree "$2"
    exit
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
n_failed=0
try_rule_1
try_rule_2
try_rule_3
try_rules_4_and_5
[ $n_failed -eq 0 ] && echo "the checker finds what it should"
check_tree "$root" || n_failed=$((n_failed + 1))
[ $n_failed -eq 0 ]
