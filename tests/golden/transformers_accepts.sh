#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# transformers_accepts.sh <hugging_face_folders> <directory> <python>: writes the folders, and asks transformers about them.
set -eu
rm -rf "$2"
"$1" "$2"
exec "$3" "$(dirname "$0")/check_hugging_face.py" --check "$2"
