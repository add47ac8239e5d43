# SPDX-License-Identifier: Apache-2.0
"""Asks transformers whether it accepts the folders that dspp writes, and writes hugging_face_verdicts.json.

Usage: cmake --build build/cpu --target hugging_face_folders
       build/cpu/tests/hugging_face_folders /tmp/folders && python check_hugging_face.py /tmp/folders

A folder is accepted if from_pretrained reads it without a missing, unexpected or mismatched tensor, takes its configuration, and
computes dspp's logits. The verdict holds for the bytes whose hashes it lists: tests/engine/hugging_face_test.cpp asserts that dspp
still writes them. Another version of transformers that accepts the same bytes adds itself to "by".
"""

import json
import pathlib
import sys

import safetensors
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

BOUND = 1e-5  # of the largest logit; both sides compute in f32


def fnv1a(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return f"{value:016x}"


def judge(folder: pathlib.Path) -> dict:
    ours = load_file(folder.with_name(folder.name + "_logits.safetensors"))
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, local_files_only=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not report.get(kind), f"{folder}: {kind}: {report[kind]}"
    assert model.dtype == torch.float32, model.dtype
    assert [type(model).__name__] == config.architectures
    with torch.no_grad():
        theirs = model.eval()(input_ids=ours["input_ids"].long()).logits.double()
    gap = ((theirs - ours["logits"]).abs().max() / ours["logits"].abs().max()).item()
    assert gap < BOUND, f"{folder}: logits differ by {gap}"
    files = {file.name: fnv1a(file.read_bytes()) for file in sorted(folder.iterdir())}
    return {"class": type(model).__name__, "files": files, "logits_differ_by_at_most": BOUND}


def main() -> None:
    directory = pathlib.Path(sys.argv[1])
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    assert folders, f"{directory} has no folders"
    accepted = {folder.name: judge(folder) for folder in folders}
    judge_names = {"safetensors": safetensors.__version__, "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    target = pathlib.Path(__file__).with_name("hugging_face_verdicts.json")
    before = json.loads(target.read_text()) if target.exists() else {"accepted": None}
    others = before["by"] if before["accepted"] == accepted else []  # who judged the same bytes
    verdicts = {"accepted": accepted, "by": [other for other in others if other != judge_names] + [judge_names]}
    target.write_text(json.dumps(verdicts, indent=2, sort_keys=True) + "\n")
    print(f"{len(folders)} folders accepted; wrote {target}")


if __name__ == "__main__":
    main()
