# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors_verdicts.txt: what the Python package safetensors makes of 10,000 files.

    mkdir files && DSPP_VERDICTS=files build/cpu/tests/test_faults -tc="C6*"
    python3 tests/golden/check_safetensors_verdicts.py files >tests/golden/safetensors_verdicts.txt
"""

import json
import pathlib
import sys

import safetensors


def names_twice(data):
    """Whether an object in the header has a name twice, which Python's reader of JSON may be asked."""
    found = []

    def check(pairs):
        if len({name for name, _ in pairs}) != len(pairs):
            found.append(True)
        return dict(pairs)

    try:
        json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")], object_pairs_hook=check)
    except ValueError:
        return False
    return bool(found)


verdicts, total = "", 0xCBF29CE484222325
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    data = path.read_bytes()
    try:
        tensors = dict(safetensors.deserialize(data))
    except safetensors.SafetensorError:
        verdicts += "0"
        continue
    if names_twice(data) or data[8:9] != b"{":
        verdicts += "2" if names_twice(data) else "3"
        continue
    verdicts += "1"
    for name in sorted(tensors, key=lambda text: text.encode()):
        tensor = tensors[name]
        text = tensor["dtype"] + "".join(f" {extent}" for extent in tensor["shape"])
        for byte in name.encode() + b"|" + text.encode() + b"|" + bytes(tensor["data"]):
            total = ((total ^ byte) * 0x100000001B3) % 2**64
print(verdicts)
print(f"{total:016x}")
