#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pairs.sh <project>: every sentence of a static_assert in include/ has a file of the catalogue that must say it, or a line in
# pairs_waivers.txt with the reason.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
# shellcheck disable=SC2046 # no name in the project has a space
exec awk -f "$here/pairs.awk" $(find include -name '*.hpp' | sort) $(find tests/compile_fail -maxdepth 1 -name '*.cpp' | sort) \
  tests/compile_fail/pairs_waivers.txt
