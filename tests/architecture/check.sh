#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <root> [<folder of floors.txt and waivers.txt>]: the house rules, a sentence for each breach.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rules=${2:-$here}
cd "$1"
for folder in include kernels tests examples bench; do
  if [ -d "$folder" ]; then find "$folder" -type f \( -name '*.hpp' -o -name '*.cuh' -o -name '*.cu' -o -name '*.cpp' \); fi
done | LC_ALL=C sort | LC_ALL=C awk -v rules="$rules" -f "$here/check.awk"
