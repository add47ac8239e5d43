# SPDX-License-Identifier: Apache-2.0
"""Writes gpt2_sharded/ and llama_sharded/: the two golden models as `save_pretrained` writes them, in f16 and bf16, in shards.

Usage: python make_sharded_golden.py [directory]   (default: the folder of this script). README.md lists what the files hold.
"""

import pathlib
import sys

import make_gpt2_golden
import make_llama_golden
import torch
from safetensors.torch import load_file, save_file
from transformers.models.llama import modeling_llama

MAX_SHARD = "20KB"


def write_folder(folder: pathlib.Path, model: torch.nn.Module, kind: torch.dtype, golden: pathlib.Path) -> None:
    """The model's folder, and `logits` that its rounded weights give in f64 for the golden files' input_ids."""
    model.to(kind).save_pretrained(folder, max_shard_size=MAX_SHARD)
    (folder / "generation_config.json").unlink()
    for file in folder.iterdir():
        file.chmod(0o644)
    with torch.no_grad():
        logits = model.to(torch.float64).eval()(input_ids=load_file(golden)["input_ids"].long()).logits
    save_file({"logits": logits.contiguous()}, folder.with_name(folder.name + "_expected.safetensors"), metadata={"format": "pt"})


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    torch.set_num_threads(1)
    modeling_llama.LlamaRotaryEmbedding.forward = make_llama_golden.angles_in_f64
    modeling_llama.LlamaRMSNorm.forward = make_llama_golden.norm_in_f64
    golden = pathlib.Path(__file__).resolve().parent
    write_folder(folder / "gpt2_sharded", make_gpt2_golden.build_model(), torch.float16, golden / "gpt2_expected.safetensors")
    write_folder(folder / "llama_sharded", make_llama_golden.build_model(), torch.bfloat16, golden / "llama_expected.safetensors")


if __name__ == "__main__":
    main()
