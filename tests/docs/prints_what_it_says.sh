#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# prints_what_it_says.sh <document> <program>...: every line that the program prints is in the document.
document=$1
shift
status=0 lines=0
output=$("$@") || { echo "dspp: $* failed."; exit 1; }
while IFS= read -r line; do
  lines=$((lines + 1))
  grep -qF -- "$line" "$document" || { echo "dspp: $document needs the line that $1 prints: '$line'"; status=1; }
done <<LINES
$output
LINES
[ "$lines" -gt 1 ] || { echo "dspp: $* printed nothing to compare."; exit 1; }
exit $status
