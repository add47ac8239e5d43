# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154
# A machine made of stubs with a copy of the front door, and the expectations of a test there. Sourced by
# front_door_test.sh, which sets: source (the project), here (this folder), work (a temporary folder).

root=$work/root machine=$work/machine calls=$work/machine/calls
failures=0

# real <tool>: its path, also if the shell has a builtin of that name.
real() { (IFS=:; for folder in $PATH; do [ ! -x "$folder/$1" ] || { echo "$folder/$1"; return; }; done); }

# on_a_machine <fact>: begins a case as root on a machine that has everything.
on_a_machine() {
  fact=$1
  [ -e "$work/whole" ] || { whole_machine && mkdir "$work/whole" && mv "$root" "$machine" "$work/whole"; }
  rm -rf "$root" "$machine"
  cp -RP "$work/whole/root" "$work/whole/machine" "$work"
}

# whole_machine: makes the one that cases begin with, at the place that its links name.
whole_machine() {
  mkdir -p "$root" "$machine/bin" "$machine/headers/doctest" "$machine/headers/benchmark" "$machine/headers/Eigen" \
    "$machine/headers/CLI" "$machine/version" "$machine/apt"
  cp -R "$source/dspp" "$source/scripts" "$root"
  mkdir "$root/examples" && cp -R "$source/examples/help" "$source/examples/train_gpt.cpp" "$root/examples"
  cp "$here/stub.sh" "$machine/stub"
  chmod +x "$machine/stub"
  for tool in sh env awk basename cat chmod cksum cut dirname grep head ln mkdir mkfifo mktemp mv readlink rm sed setsid sleep sort tail tr true; do
    ln -s "$(real "$tool")" "$machine/bin/$tool"
  done
  for tool in g++ clang++ cmake ninja nproc id sudo apt-get apt-cache ctest mpicxx mpirun dpkg-deb python3; do give "$tool"; done
  for header in concepts doctest/doctest.h benchmark/benchmark.h Eigen/Core CLI/CLI.hpp dnnl.h liburing.h omp.h cstdio cstring; do
    : >"$machine/headers/$header"
  done
  : >"$machine/libfuzzer"
  : >"$machine/python3-venv"
  : >"$machine/python3-dev"
  echo 12.2.0 >"$machine/version/g++"
  echo 14.0.6 >"$machine/version/clang++"
  echo 3.25.1 >"$machine/version/cmake"
  echo 1.11.1 >"$machine/version/ninja"
  echo 4.1.4 >"$machine/version/mpirun"
  echo 0 >"$machine/uid"
  : >"$machine/apt_lists"
  echo 'ln -sf ../stub bin/g++; echo 12.2.0 >version/g++' >"$machine/apt/g++"
  echo 'ln -sf ../stub bin/clang++' >"$machine/apt/clang"
  echo ': >libfuzzer' >"$machine/apt/libclang-rt-dev"
  echo 'ln -sf ../stub bin/cmake; echo 3.25.1 >version/cmake' >"$machine/apt/cmake"
  echo 'ln -sf ../stub bin/ninja' >"$machine/apt/ninja-build"
  echo ': >headers/Eigen/Core' >"$machine/apt/libeigen3-dev"
  echo ': >headers/CLI/CLI.hpp' >"$machine/apt/libcli11-dev"
  echo ': >headers/dnnl.h' >"$machine/apt/libdnnl-dev"
  echo ': >headers/liburing.h' >"$machine/apt/liburing-dev"
  echo ': >headers/doctest/doctest.h' >"$machine/apt/doctest-dev"
  echo ': >headers/benchmark/benchmark.h' >"$machine/apt/libbenchmark-dev"
  echo 'ln -sf ../stub bin/mpicxx' >"$machine/apt/libopenmpi-dev"
  : >"$machine/apt/libmpich-dev"
  echo 'ln -sf ../stub bin/python3' >"$machine/apt/python3"
  echo ': >python3-venv' >"$machine/apt/python3-venv"
  echo ': >python3-dev' >"$machine/apt/python3-dev"
  echo 'ln -sf ../stub bin/mpirun' >"$machine/apt/openmpi-bin"
}

give() { ln -sf "$machine/stub" "$machine/bin/$1"; }

# without <tool, header, libfuzzer, python3-venv or python3-dev>...
without() {
  for thing in "$@"; do rm -f "$machine/bin/$thing" "$machine/headers/$thing" "$machine/$thing"; done
}

# try <argument>...: ./dspp on the machine, with an interactive user; sets status, out and err.
try() {
  : >"$calls"
  command="./dspp $*"
  echo yes | env -i PATH="$machine/bin" MACHINE="$machine" TMPDIR="$work" "$root/dspp" "$@" >"$work/out" 2>"$work/err"
  status=$?
  out=$(cat "$work/out") err=$(cat "$work/err")
}

# fails <what is wrong>
fails() {
  failures=$((failures + 1))
  printf 'FAILED  %s\n        %s\n        %s\n' "$fact" "$command" "$1"
  printf '        status %s; stdout: %s; stderr: %s\n' "$status" "$out" "$err"
  sed 's/^/        called: /' "$calls"
}

exits() { [ "$status" -eq "$1" ] || fails "exits with $status, not $1"; }

# prints <text>: on stdout.
prints() { case $out in *"$1"*) ;; *) fails "does not print: $1" ;; esac; }

# refuses <text>: status 2 and one dspp sentence on stderr that contains the text.
refuses() {
  exits 2
  case $err in "dspp: "*) ;; *) fails "stderr does not begin with dspp:" ;; esac
  [ "$(grep -c '' "$work/err")" -eq 1 ] || fails "stderr is not one line"
  case $err in *"$1"*) ;; *) fails "does not say: $1" ;; esac
}

# called <text>: a call contains it.     never_called <text>
called() { grep -qF -- "$1" "$calls" || fails "nothing called: $1"; }
never_called() { if grep -qF -- "$1" "$calls"; then fails "something called: $1"; fi; }

# reads_package_lists <times>
reads_package_lists() {
  [ "$(grep -cF '[update]' "$calls")" -eq "$1" ] || fails "does not read the package lists $1 times"
}

# complains <text>: on stderr.
complains() { case $err in *"$1"*) ;; *) fails "does not complain: $1" ;; esac; }

# installs <package>...: only these, in this order, each requested once and without a question.
installs() {
  installed=$(sed -n 's/^apt-get .*\[install\].*\[\(.*\)\]$/\1/p' "$calls" | tr '\n' ' ')
  [ "$installed" = "${*:+$* }" ] || fails "installs '$installed', not '$*'"
  never_called 'would ask'
  never_called 'was answered'
  never_called 'asked for a password'
}
