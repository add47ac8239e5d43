# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# Configures and builds quietly: a progress line, a log, and the errors in it if a build fails. Sourced by ./dspp.

cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1; }

# As many compilers as cores, with at least 1.5 GB each.
jobs() {
  by_memory=$(awk '/^MemAvailable:/ { n = int($2 / 1572864); print (n < 1 ? 1 : n) }' /proc/meminfo 2>/dev/null)
  n=$(cores)
  [ -n "$by_memory" ] && [ "$by_memory" -lt "$n" ] && n=$by_memory
  echo "$n"
}

# configure <preset> <build folder> [cmake option...]
configure() {
  preset=$1 build=$2
  shift 2
  if ! mkdir -p "$build" 2>/dev/null || ! (: >"$build/configure.log") 2>/dev/null; then
    refuse "this command needs to write the folder $build, but it cannot. Make it writable, or copy the checkout to where you can write."
  fi
  if ! cmake -S "$root" -B "$build" --preset "$preset" "$@" >"$build/configure.log" 2>&1; then
    grep -A 8 'CMake Error' "$build/configure.log" | head -n 30 >&2
    complain "the build could not be configured. The whole log is $build/configure.log."
    exit 1
  fi
}

# build <build folder> <target>...: one line of progress on a terminal, the log in a file, its errors when it fails.
build() {
  build=$1
  shift
  log=$build/build.log status=$build/build.status
  say "building $* ($(jobs) at a time; log: $log)"
  : >"$log"
  echo 1 >"$status"
  { cmake --build "$build" --parallel "$(jobs)" --target "$@" -- -k 0 2>&1; echo $? >"$status"; } | {
    while IFS= read -r line; do
      printf '%s\n' "$line" >&3
      case $line in '['*/*']'*) [ -t 1 ] && printf '\r\033[Kdspp: %.100s' "$(shown "$line")" ;; esac
    done
    [ -t 1 ] && printf '\r\033[K'
    :
  } 3>>"$log"
  built=$(cat "$status")
  [ "$built" -eq 0 ] && return 0
  report_errors "$log"
  return "$built"
}

# prepare_mpirun: environment variables that allow Open MPI to run as root and on fewer cores than processes (version 5 reads
# PRRTE's variables); no process is bound to cores, and run() gives each its share. Open MPI 5.0.7 warns of interfaces with
# two addresses unless they are weighted.
prepare_mpirun() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
    PRTE_MCA_hwloc_default_binding_policy=none OMPI_MCA_reachable=weighted
}

# start_processes <number> <program> [argument...]: runs mpirun and exits with its status.
#
# mpirun must not get a Ctrl-C, since it would kill its processes within two seconds. So it runs in a session of its own; the
# first Ctrl-C goes to the processes as SIGUSR1, which mpirun forwards, and the second ends mpirun. A guard ends mpirun after
# a kill -9 of this shell: it reads a pipe that this shell alone holds open for writing. The shell also holds it open for
# reading, so that opening does not wait for the guard, and writing does not fail without it.
#
# mpirun ignores a failing standard output and exits with 0, so its output goes through a pipe to `print`, which reports it.
start_processes() {
  number=$1 asked=0 started=''
  shift
  prepare_mpirun
  trap ask_processes HUP INT QUIT TERM
  pipes=$(mktemp -d) && mkfifo "$pipes/alive" "$pipes/output" || exit 1
  exec 9<>"$pipes/alive" 7<>"$pipes/output"
  exec 8<"$pipes/alive" 6<"$pipes/output"
  exec 5>"$pipes/output" 7>&-
  rm -r "$pipes"
  (print "$1") <&6 5>&- 6<&- 8<&- 9>&- &
  printer=$!
  setsid mpirun -n "$number" "$@" >&5 5>&- 6<&- 8<&- 9>&- &
  started=$!
  setsid sh -c "$guard" sh "$started" >/dev/null 2>&1 </dev/null 5>&- 6<&- 9>&- &
  exec 5>&- 6<&- 8<&-
  [ $asked -eq 0 ] || kill -s USR1 "$started"
  await "$started"
  echo ended >&9
  status=$ended
  await "$printer"
  [ $status -ne 0 ] || status=$ended
  # 130 where the signals ended it: as threads, or mpirun with a process that was not ready for them.
  if [ "$asked" -gt 1 ] || { [ "$asked" -eq 1 ] && [ $status -gt 128 ]; }; then status=130; fi
  exit $status
}

# await <process>: puts its status in `ended`. A signal interrupts the wait, not the process; 127: already waited for.
await() {
  ended=1 before=none
  while [ "$before" != "$asked" ]; do
    before=$asked
    wait "$1"
    waited=$?
    [ $waited -eq 127 ] || ended=$waited
  done
}

# print <program>: copies the input to the standard output and ignores signals. If writing fails, it reports that, reads the
# rest of the input, so that the processes can continue and save, and fails.
print() {
  trap '' HUP INT PIPE QUIT TERM
  cat 2>/dev/null && return
  complain "${1##*/} $no_output"
  cat >/dev/null
  return 2
}

# sh -c "$guard" sh <process> 8<pipe: waits for a line in the pipe. If the pipe ends without one, its writer is gone, and the
# process is ended: mpirun with all that it started.
# shellcheck disable=SC2016 # for the other shell
guard='
  read -r said <&8 && exit
  kill -s TERM "$1"
  sleep 5
  kill -s KILL "$1"
'

ask_processes() {
  asked=$((asked + 1)) signal=USR1
  [ "$asked" -eq 1 ] || signal=TERM
  [ -z "$started" ] || kill -s $signal "$started" 2>/dev/null
}

# The dspp sentences in a compiler log, or else its first errors.
report_errors() {
  sentences=$(sed -n 's/.*error: static assertion failed: *\(dspp: .*\)/\1/p' "$1" | first_lines 3)
  [ -n "$sentences" ] || sentences=$(sed -n 's/.*"\(dspp: [^"]* needs [^"]*\)".*/\1/p' "$1" | first_lines 1)
  if [ -n "$sentences" ]; then
    printf '%s\n' "$sentences" >&2
  else
    grep -E 'error:|undefined reference|multiple definition|^ninja: error' "$1" | first_lines 20 >&2
  fi
  complain "the build failed. The whole log is $1."
}

# first_lines <n>: the first n distinct lines.
first_lines() { awk -v n="$1" '!seen[$0]++ && ++count <= n'; }
