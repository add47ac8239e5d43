#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitized.sh <project> <build folder> [ctest's argument...]: row H1, by hand. Every test that runs programs of dspp, those under
# mpirun and train_gpt's too, under the address and undefined-behaviour sanitizers; those of scripts and compilers
# run none. Two hours on two cores. Leaks of Open MPI and oneDNN are listed in leaks_of_others.txt.
set -eu
project=$(cd "$1" && pwd) build=$2
shift 2
others='^(architecture|bare|bench|compile_fail|headers|nvcc|odr|package|script)$'
cmake -S "$project" --preset asan -B "$build" -DDSPP_TEST_LABELS= -DDSPP_EXAMPLES=ON >/dev/null
grep -vE "$others" "$build/labels.txt" | sed 's/^/label_/' | xargs cmake --build "$build" --target
# The quarantine is as small as possible: row F5 and the heap tests measure the memory of the process.
options=quarantine_size_mb=1:thread_local_quarantine_size_kb=16
export LSAN_OPTIONS="suppressions=$project/tests/faults/leaks_of_others.txt:print_suppressions=0"
status=0
ASAN_OPTIONS=$options ctest --test-dir "$build" --output-on-failure -LE "$others|^mpi\$" "$@" || status=$?
# Leaks of Open MPI's plugins are recognised by the frames below theirs, since they are unloaded before the check. Ranks
# that end by a signal must not be handled by the sanitizer.
mpi=fast_unwind_on_malloc=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0
ASAN_OPTIONS=$options:$mpi ctest --test-dir "$build" --output-on-failure -L '^mpi$' -LE "$others" "$@" || status=$?
exit $status
