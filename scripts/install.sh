# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# Installs missing packages through apt-get, and lists them. Sourced by ./dspp.

# as_root <command>...: runs it as root, with sudo where needed; sudo never asks for a password.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() { as_root true 2>/dev/null; }

apt_quietly() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

# package_exists <package>: true if the package lists have a version to install.
package_exists() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [^(]'; }

install_packages() {
  list_is_new=${list_is_new:-no}
  for package in "$@"; do
    if [ "$list_is_new" = no ] && ! package_exists "$package"; then
      say "reading the package lists (apt-get update)"
      apt_quietly update >"$install_log" 2>&1 || return 1
      list_is_new=yes
    fi
  done
  apt_quietly install --no-install-recommends "$@" >"$install_log" 2>&1 && return 0
  # Old package lists name versions that no longer exist.
  [ "$list_is_new" = no ] || return 1
  say "reading the package lists again (apt-get update)"
  apt_quietly update >"$install_log" 2>&1 && list_is_new=yes &&
    apt_quietly install --no-install-recommends "$@" >"$install_log" 2>&1
}

what_was_seen() { if [ -n "$seen" ]; then printf '%s was found' "$seen"; else printf 'it was not found'; fi; }

# provide <required|optional> <package> <what it is for> <test>: installs the package if the test fails.
provide() {
  need=$1 package=$2 purpose=$3 present=$4 seen=
  $present && return 0
  got=$(what_was_seen)
  if [ "$may_install" = no ]; then
    [ "$need" = optional ] && return 0
    refuse "this command needs $purpose, but $got, and --no-install was given. Install $package."
  fi
  if ! have apt-get; then
    [ "$need" = optional ] && return 0
    refuse "this command needs $purpose, but $got, and there is no apt-get to install it with. Install the equivalent of $package."
  fi
  if ! can_be_root; then
    [ "$need" = optional ] && return 0
    refuse "this command needs $purpose, but $got, and installing needs root, or sudo without a password. Run: sudo apt-get install $package"
  fi
  say "installing $package ($purpose)"
  install_log=$(mktemp)
  if install_packages "$package"; then
    rm -f "$install_log"
    $present || [ "$need" = optional ] ||
      refuse "this command needs $purpose, but $(what_was_seen), and installing $package did not change that. See ./dspp doctor."
    return 0
  fi
  if [ "$need" = optional ]; then
    say "$package is not to be had from this distribution; going on without it"
    rm -f "$install_log"
    return 0
  fi
  tail -n 5 "$install_log" >&2
  rm -f "$install_log"
  refuse "this command needs $purpose, but $package could not be installed. The last lines of apt-get are above."
}

provide_build() {
  provide required g++ "a C++20 compiler (g++ 12 or later)" has_compiler
  provide required cmake "CMake 3.25 or later" has_cmake
  provide required ninja-build "Ninja" has_ninja
  provide required libeigen3-dev "Eigen 3.4" has_eigen
  provide required libcli11-dev "CLI11, which reads options" has_cli11
  provide optional libdnnl-dev "oneDNN, for faster matrix products" has_onednn
  provide optional liburing-dev "io_uring, for what rests on a disk" has_liburing
}
has_ninja() { have ninja; }
has_mpi() { have mpicxx; }
has_mpirun() { have mpirun; }
has_clang() { have clang++; }
# clang_links <option> <program>: whether clang++ builds the program, of one line, with that option.
clang_links() {
  linked_program=$(mktemp) || return 1
  printf '%s\n' "$2" | clang++ -x c++ "$1" -o "$linked_program" - >/dev/null 2>&1
  linked=$?
  rm -f "$linked_program"
  return $linked
}
has_sanitizers() {
  clang_links -fsanitize=address,undefined 'int main() {}' && clang_links -fsanitize=thread 'int main() {}'
}
has_fuzzer() {
  clang_links -fsanitize=fuzzer 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
}
has_clang_openmp() { clang_links -fopenmp=libomp 'int omp_get_max_threads(); int main() {}'; }

provide_tests() { provide required doctest-dev "doctest" has_doctest; }
provide_benchmarks() { provide required libbenchmark-dev "Google Benchmark" has_benchmark; }
# provide_mpi <required|optional>
provide_mpi() {
  provide "$1" libopenmpi-dev "MPI" has_mpi
  provide "$1" openmpi-bin "mpirun" has_mpirun
}

# provide_mpich_headers: unpacks MPICH's headers into build/mpich without installing them: the machine's MPI does not change.
provide_mpich_headers() {
  { [ "$may_install" = yes ] && [ ! -d "$root/build/mpich" ] && have apt-get && have dpkg-deb; } || return 0
  { package_exists libmpich-dev && mkdir -p "$root/build" 2>/dev/null; } || return 0
  unpacked=$(mktemp -d) || return 0
  if (cd "$unpacked" && DEBIAN_FRONTEND=noninteractive apt-get -y -qq download libmpich-dev </dev/null &&
    set +f && dpkg-deb -x libmpich-dev*.deb mpich) >/dev/null 2>&1; then
    mv "$unpacked/mpich" "$root/build/mpich"
    outcome="unpacked the headers of MPICH (libmpich-dev) into $root/build/mpich"
  else
    outcome="libmpich-dev could not be fetched; going on without it"
  fi
  rm -rf "$unpacked"
  say "$outcome"
}
# provide_sanitizers: for clang++, which the presets asan, tsan and clang take.
provide_sanitizers() {
  provide required clang "clang++ 14 or later" has_clang
  provide required libclang-rt-dev "the sanitizers of clang++" has_sanitizers
  provide optional libclang-rt-dev "the fuzzer of clang++" has_fuzzer
  provide optional libomp-dev "OpenMP of clang++" has_clang_openmp
}
