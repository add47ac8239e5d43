# SPDX-License-Identifier: Apache-2.0
"""Asks transformers whether it accepts the folders that dspp writes, and writes hugging_face_verdicts.json.

Usage: cmake --build build/cpu --target hugging_face_folders
       build/cpu/tests/hugging_face_folders /tmp/folders && python check_hugging_face.py [--check] /tmp/folders

A folder is accepted if from_pretrained reads it without a missing, unexpected or mismatched tensor, takes its configuration, and
computes dspp's logits. The verdict holds for the bytes whose hashes it lists: tests/hub/hugging_face_test.cpp asserts that dspp
still writes them. Another version of transformers that accepts the same bytes of a folder adds itself to its "by".

--check writes nothing: it judges, and fails where a verdict is not the committed one (CTest golden.transformers_accepts). Without
one of the three packages nothing can be judged: the script says so and exits with 77.
"""

import argparse
import json
import pathlib
import sys

SKIPPED = 77  # what CTest takes for a skipped test

try:
    import safetensors
    import torch
    import transformers
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
except ImportError as error:
    print(f"dspp: skipped: safetensors, torch and transformers are needed, but: {error} (tests/golden/README.md installs them)")
    sys.exit(SKIPPED)
if not transformers.is_torch_available():
    print(f"dspp: skipped: transformers {transformers.__version__} does not take torch {torch.__version__}")
    sys.exit(SKIPPED)

BOUND = 1e-5  # of the largest logit; both sides compute in f32
TARGET = pathlib.Path(__file__).with_name("hugging_face_verdicts.json")


def fnv1a(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return f"{value:016x}"


def judge(folder: pathlib.Path) -> dict:
    ours = load_file(folder.with_name(folder.name + "_logits.safetensors"))
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    masked = config.model_type == "bert"
    auto = AutoModelForMaskedLM if masked else AutoModelForCausalLM
    model, report = auto.from_pretrained(folder, output_loading_info=True, local_files_only=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not report.get(kind), f"{folder}: {kind}: {report[kind]}"
    assert model.dtype == torch.float32, model.dtype
    assert [type(model).__name__] == config.architectures
    inputs = {"input_ids": ours["input_ids"].long()}
    if masked:
        positions = torch.arange(ours["input_ids"].shape[1])
        inputs["attention_mask"] = (positions < ours["lengths"].reshape(-1, 1)).long()
        inputs["token_type_ids"] = ours["token_type_ids"].long()
    with torch.no_grad():
        theirs = model.eval()(**inputs).logits.double()
    gap = ((theirs - ours["logits"]).abs().max() / ours["logits"].abs().max()).item()
    assert gap < BOUND, f"{folder}: logits differ by {gap}"
    files = {file.name: fnv1a(file.read_bytes()) for file in sorted(folder.iterdir())}
    return {"class": type(model).__name__, "files": files, "logits_differ_by_at_most": BOUND}


def without_judges(verdict: dict) -> dict:
    return {key: value for key, value in verdict.items() if key != "by"}


def differences(accepted: dict, committed: dict) -> list:
    """The folders, and the files in them, whose verdicts are not the same."""
    found = []
    for name in sorted(accepted.keys() | committed.keys()):
        ours, theirs = accepted.get(name, {"files": {}}), committed.get(name, {"files": {}})
        files = sorted(ours["files"].keys() | theirs["files"].keys())
        changed = [f"{name}/{file}" for file in files if ours["files"].get(file) != theirs["files"].get(file)]
        found += changed or ([] if without_judges(ours) == without_judges(theirs) else [name])
    return found


def check(accepted: dict, committed: dict, judge_names: dict) -> None:
    found = differences(accepted, committed)
    if found:
        sys.exit(
            f"dspp: check_hugging_face.py needs the verdicts of {TARGET.name}, but these differ: {', '.join(found)}. "
            "Where the change is meant, run the script without --check and commit what it writes."
        )
    versions = ", ".join(f"{name} {version}" for name, version in judge_names.items())
    print(f"{len(accepted)} folders accepted, as {TARGET.name} says, by {versions}")


def write(accepted: dict, before: dict, judge_names: dict) -> None:
    for name, verdict in accepted.items():
        judged = before.get(name, {})
        same = without_judges(judged) == verdict
        others = judged["by"] if same else []  # who judged the same bytes
        verdict["by"] = [other for other in others if other != judge_names] + [judge_names]
    TARGET.write_text(json.dumps({"accepted": accepted}, indent=2, sort_keys=True) + "\n")
    print(f"{len(accepted)} folders accepted; wrote {TARGET}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Asks transformers whether it accepts the folders that dspp writes.")
    parser.add_argument("directory", type=pathlib.Path, help="where hugging_face_folders wrote them")
    parser.add_argument("--check", action="store_true", help="compare with the committed verdicts and write nothing")
    arguments = parser.parse_args()
    folders = sorted(path for path in arguments.directory.iterdir() if path.is_dir())
    assert folders, f"{arguments.directory} has no folders"
    accepted = {folder.name: judge(folder) for folder in folders}
    judge_names = {"safetensors": safetensors.__version__, "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    before = json.loads(TARGET.read_text()) if TARGET.exists() else {"accepted": {}}
    if arguments.check:
        check(accepted, before["accepted"], judge_names)
    else:
        write(accepted, before["accepted"], judge_names)


if __name__ == "__main__":
    main()
