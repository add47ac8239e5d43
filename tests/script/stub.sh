#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replaces the tool by whose name it is called, and records the call in $MACHINE/calls. The machine's contents:
#   bin/<tool>        links to this file, and to the few real tools that the scripts need
#   headers/<path>    headers that the compiler finds
#   libfuzzer         clang++ links it
#   kernel_refuses_rings   what the kernel says to a program that asks for an io_uring
#   python3-venv, python3-dev   python3 has venv and pip, and Python.h
#   version/<tool>    the tool's version output
#   uid               the user id of the script
#   home              the HOME of the last call of cmake
#   apt/<package>     packages of apt-get; the file's content is run in $MACHINE on installation
# and, for deviations: apt_lists, apt_lists_are_old, apt_fails, pip_fails (holds the package that pip cannot install), peers_fail, sudo_is_free, configure_says, build_says, ctest_fails,
# signals (sent to ./dspp while mpirun runs: as many SIGTERM as the file says, each after the previous is received),
# mpirun_is_young (mpirun has no handlers yet).
set -u
tool=${0##*/}
{ printf '%s' "$tool"; [ $# -eq 0 ] || printf ' [%s]' "$@"; echo; } >>"$MACHINE/calls"
version() { cat "$MACHINE/version/$tool"; }

compile() {
  program=$(cat)
  case $* in *-fsanitize=fuzzer*) [ -e "$MACHINE/libfuzzer" ] || exit 1 ;; esac
  for header in $(printf '%s\n' "$program" | sed -n 's/^#include <\(.*\)>.*/\1/p'); do
    [ -e "$MACHINE/headers/$header" ] || exit 1
  done
  case " $* " in *' -luring '*) ring_program "$5" ;; esac
  case " $* " in *' -P '*) printf '%s\n' "$program" | sed -n 's/^dspp_doctor .*/dspp_doctor 1/p' ;; esac
}

# ring_program <file>: writes a program in the place of one that asks the kernel for an io_uring.
ring_program() {
  answer=$(cat "$MACHINE/kernel_refuses_rings" 2>/dev/null)
  printf '#!/bin/sh\necho "%s"\nexit %s\n' "$answer" "${answer:+1}" >"$1" && chmod +x "$1"
}

apt_get() {
  [ "${DEBIAN_FRONTEND-}" = noninteractive ] || echo 'apt-get would ask' >>"$MACHINE/calls"
  case " $* " in *' -y '*) ;; *) echo 'apt-get would ask' >>"$MACHINE/calls" ;; esac
  if read -r answer; then echo "apt-get was answered $answer" >>"$MACHINE/calls"; fi
  [ ! -e "$MACHINE/apt_fails" ] || { echo 'E: no network'; exit 100; }
  for package in "$@"; do :; done
  case " $* " in
    *' download '*) [ ! -e "$MACHINE/apt/$package" ] || : >"${package}_1.0_all.deb"; exit 0 ;;
  esac
  if [ "$package" = update ]; then : >"$MACHINE/apt_lists"; rm -f "$MACHINE/apt_lists_are_old"; exit 0; fi
  if [ ! -e "$MACHINE/apt/$package" ] || [ -e "$MACHINE/apt_lists_are_old" ]; then
    echo "E: Unable to locate package $package"
    exit 100
  fi
  cd "$MACHINE" && sh -e "apt/$package"
}

cmake() {
  printf '%s\n' "${HOME-}" >"$MACHINE/home"
  case $1 in
    --version) echo "cmake version $(version)" ;;
    --build)
      if [ -e "$MACHINE/build_says" ]; then cat "$MACHINE/build_says"; exit 1; fi
      mkdir -p "$2/examples"
      for example in train_gpt tokenize; do ln -sf "$MACHINE/stub" "$2/examples/$example"; done
      ln -sf "$MACHINE/stub" "$2/bench/bench_ops_matmul"
      ;;
    -S)
      if [ -e "$MACHINE/configure_says" ]; then cat "$MACHINE/configure_says"; exit 1; fi
      mkdir -p "$4/bench"
      printf '%s\n' comm script zero >"$4/labels.txt"
      printf '%s\n' 'ops/matmul ./bench_ops_matmul' 'zero/step ./bench_zero_step' >"$4/bench/benchmarks.txt"
      ;;
  esac
}

mpirun() {
  [ "${1-}" != --version ] || version
  echo "OMPI_ALLOW_RUN_AS_ROOT=${OMPI_ALLOW_RUN_AS_ROOT-}" >>"$MACHINE/calls"
  [ -e "$MACHINE/signals" ] || return 0
  heard=0
  [ -e "$MACHINE/mpirun_is_young" ] || trap 'heard=$((heard + 1)); echo "mpirun got USR1" >>"$MACHINE/calls"' USR1
  trap 'echo "mpirun got TERM" >>"$MACHINE/calls"; exit 1' TERM
  for round in 1 2; do
    [ $round -gt "$(cat "$MACHINE/signals")" ] || kill -s TERM "$PPID"
    tenths=0
    while [ $heard -lt $round ] && [ $tenths -lt 50 ]; do sleep 0.1; tenths=$((tenths + 1)); done
    [ "$(cat "$MACHINE/signals")" -gt $round ] || return 0
  done
}

# python3, and the python of an environment that it made
python() {
  case $* in
    *ensurepip*) [ -e "$MACHINE/python3-venv" ] ;;
    *Python.h*) [ -e "$MACHINE/python3-dev" ] ;;
    *'-m venv '*) mkdir -p "$3/bin" && ln -sf "$MACHINE/stub" "$3/bin/python" ;;
    *'pip install'*)
      for package in "$@"; do :; done
      [ ! -e "$MACHINE/pip_fails" ] || ! grep -q "$package" "$MACHINE/pip_fails" || { echo 'ERROR: no network'; exit 1; }
      ;;
    *--targets*) echo peers_zero0_f32 ;;
    *compare.py*) [ ! -e "$MACHINE/peers_fail" ] ;;
  esac
}

case $tool in
  g++ | clang++)
    case $* in
      *-dumpfullversion*) version ;;
      *--version*) echo "$tool $(version)" ;;
      *) compile "$@" ;;
    esac
    ;;
  cmake) cmake "$@" ;;
  ninja | ccache | nvidia-smi) version ;;
  nproc) echo 2 ;;
  id) cat "$MACHINE/uid" ;;
  sudo)
    [ "$1" = -n ] || { echo 'sudo asked for a password' >>"$MACHINE/calls"; exit 1; }
    [ -e "$MACHINE/sudo_is_free" ] || { echo 'sudo: a password is required' >&2; exit 1; }
    shift
    exec "$@"
    ;;
  apt-get) apt_get "$@" ;;
  apt-cache)
    candidate='(none)'
    [ -e "$MACHINE/apt_lists" ] && [ -e "$MACHINE/apt/$2" ] && candidate=1.0
    echo "  Candidate: $candidate"
    ;;
  mpirun) mpirun "$@" ;;
  python | python3) python "$@" ;;
  dpkg-deb) [ -e "$2" ] && mkdir "$3" ;;
  ctest) [ ! -e "$MACHINE/ctest_fails" ] ;;
  bench_*)
    for argument in "$@"; do
      case $argument in --benchmark_out=*) echo '{"figure": 1}' >"${argument#*=}" ;; esac
    done
    ;;
esac
