#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# once.sh <folder> <compiler> [argument]... -c <source> -o <object>: calls the compiler, and keeps the object in the
# folder; or copies the object that is there of the same preprocessed text, by the same compiler with the same flags.
# The text and the flags have no paths of headers: an installed header and the source tree's give one object.
set -eu
store=$1 compiler=$2
shift 2
source='' object='' flags='' folder=''
# The arguments are rotated once: the source and the object are dropped.
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case $argument in
    -c | -o)
      if [ "$argument" = -c ]; then source=$1; else object=$1; fi
      shift
      count=$((count - 1))
      continue
      ;;
    -I | -isystem | -MF | -MT | -MQ) folder=$argument ;;  # the next argument is no flag of the object
    -I* | -MD | -MMD) ;;
    *) if [ -n "$folder" ]; then folder=''; else flags="$flags $argument"; fi ;;
  esac
  set -- "$@" "$argument"
done
mkdir -p "$store"
text=$(mktemp "$store/text.XXXXXX")
trap 'rm -f "$text"' EXIT
"$compiler" "$@" -E -P "$source" -o "$text"  # also writes the file of what the object depends on
key=$({ "$compiler" --version && echo "$flags" && cat "$text"; } | sha256sum | cut -d ' ' -f 1)
if [ -e "$store/$key" ]; then
  cp "$store/$key" "$object"
  exit
fi
"$compiler" "$@" -c "$source" -o "$object"
cp "$object" "$text"
mv "$text" "$store/$key"
