# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# An in-memory folder for the programs of a script. Sourced by coverage.sh and mutations.sh.

# folder_in_memory: /dev/shm if 2 GB are free and programs may run there, else empty.
folder_in_memory() {
  probe=$(mktemp /dev/shm/dspp.XXXXXX 2>/dev/null) || return 0
  free=$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')
  if [ "$free" -ge 2000000 ] && cp /bin/true "$probe" && chmod 700 "$probe" && "$probe"; then echo /dev/shm; fi 2>/dev/null
  rm -f "$probe"
}
