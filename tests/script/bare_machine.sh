#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bare_machine.sh <project> <suite> [label]...: the first commands on a bare machine. debootstrap makes a
# minimal Debian of that suite (bookworm, trixie) in a temporary folder, the project's last commit is cloned into it, and
# ./dspp train --seconds 5 and ./dspp test -L <label> (base where none is given; `all` for every test, `clang` for the preset
# of that name, in parts) run there in a chroot with an empty environment and nothing mounted; for `clang`, whose sanitizers
# need it, /proc is, and for `all`, whose tests look at processes and open files and start MPI, /sys too. Packages come from the
# sources of this machine's apt.
#
# Needs root, debootstrap and git, and installs the latter two. If one is not available it exits with 1, or with 77 if
# DSPP_SKIP_BARE=1 is set.
set -u
project=$1 suite=$2
shift 2
[ $# -gt 0 ] || set -- base

cannot() {
  echo "dspp: a bare machine needs $1." >&2
  [ "${DSPP_SKIP_BARE-}" = 1 ] || { echo 'dspp: DSPP_SKIP_BARE=1 goes on without one.' >&2; exit 1; }
  echo "dspp: skipped: DSPP_SKIP_BARE=1 is set"
  exit 77
}
[ "$(id -u)" -eq 0 ] || cannot 'root, but this is another user'
# Others may install, too: this waits for them.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >/dev/null 2>&1; }
for tool in debootstrap git; do
  command -v $tool >/dev/null 2>&1 || apt install -y $tool || { apt update && apt install -y $tool; } ||
    cannot "$tool, but it was not found and apt-get could not install it"
done

# The package archives of this machine's own distribution, "<address> <release>" a line.
# shellcheck disable=SC2016 # apt-get's own $(...)
archives=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
  awk '$3 == "Debian" { print $1, $2 }' | sort -u)
# shellcheck source=/dev/null
own_release=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
mirror=$(printf '%s\n' "$archives" | awk -v release="$own_release" '$2 == release { print $1; exit }')
[ -n "$mirror" ] || cannot "a Debian whose apt names its archive, but apt-get indextargets has none for '$own_release'"

work=$(mktemp -d) || exit 1
root=$work/root
trap 'umount "$root/proc" "$root/sys" 2>/dev/null; rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' HUP INT TERM

echo "=== a minimal Debian ($suite)"
debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/log" 2>&1 || {
  tail -n 5 "$work/log" >&2
  cannot "a Debian ($suite) from debootstrap, but it failed as said above"
}
printf '%s\n' "$archives" | while read -r address release; do
  echo "deb $address $suite${release#"$own_release"} main"
done >"$root/etc/apt/sources.list"
# How this machine reaches its archives: names, proxies, certificates.
for file in /etc/resolv.conf /etc/hosts; do [ ! -e $file ] || cp -L "$file" "$root$file"; done
if [ -d /etc/ssl/certs ]; then mkdir -p "$root/etc/ssl" && cp -RL /etc/ssl/certs "$root/etc/ssl/" 2>/dev/null; fi
apt-config dump | grep -i '^Acquire::[a-z]*::\(proxy\|verify\|cainfo\)' >"$root/etc/apt/apt.conf.d/90as-outside"
for protocol in http https; do
  proxy=$(printenv ${protocol}_proxy || printenv "$(echo ${protocol}_proxy | tr '[:lower:]' '[:upper:]')")
  [ -z "$proxy" ] || echo "Acquire::$protocol::Proxy \"$proxy\";" >>"$root/etc/apt/apt.conf.d/90as-outside"
done
git clone -q "$project" "$root/srv/dspp" || exit 1

# there <command>...: on the bare machine, with an empty environment and no standard input.
there() {
  echo "=== ($suite) $*"
  chroot "$root" /usr/bin/env -i /bin/sh -c 'cd /srv/dspp && exec "$@"' sh "$@" </dev/null
}
# mount_there <type> [folder]
mount_there() { mountpoint -q "$root/${2-$1}" || mount -t "$1" "$1" "$root/${2-$1}"; }
there ./dspp train --seconds 5 || { echo "dspp: ./dspp train failed on a bare Debian ($suite)." >&2; exit 1; }
# Every test. Those of MPI skip where CMake finds none, which ./dspp has installed.
all_tests() {
  mount_there proc && mount_there sysfs sys || return 1
  { there ./dspp test 2>&1; echo $? >"$work/status"; } | tee "$work/tests"
  [ "$(cat "$work/status")" -eq 0 ] || return 1
  grep -q ' comm\.mpi_2 .* Passed' "$work/tests" || { echo 'dspp: the tests of MPI need to run, but they were skipped.' >&2; return 1; }
}
for label in "$@"; do
  case $label in
    all) all_tests ;;
    clang)
      mount_there proc &&
        there ./dspp test --preset clang -L headers -L compile_fail -L odr -L package -L matrix
      ;;
    *) there ./dspp test -L "$label" ;;
  esac ||
    { echo "dspp: ./dspp test ($label) failed on a bare Debian ($suite)." >&2; exit 1; }
done
