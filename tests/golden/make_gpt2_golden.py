# SPDX-License-Identifier: Apache-2.0
"""Writes gpt2_weights.safetensors and gpt2_expected.safetensors: a small random GPT-2 as `transformers` computes it, in f64.

Usage: python make_gpt2_golden.py [directory]   (default: the folder of this script). README.md lists what the files hold.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

CONFIG = dict(n_layer=2, n_embd=24, n_head=12, vocab_size=61, n_positions=16)
BATCH, SEQUENCE = 2, 12


def build_model() -> GPT2LMHeadModel:
    """All values are random and large enough to matter: weights and biases 0.2 N(0,1), LayerNorm weights 1 + 0.2 N(0,1)."""
    config = GPT2Config(
        **CONFIG,
        activation_function="gelu_new",
        layer_norm_epsilon=1e-5,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        tie_word_embeddings=True,
        attn_implementation="eager",
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config).to(torch.float64).train()
    generator = torch.Generator().manual_seed(20240229)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            is_norm_weight = ".ln_" in name and name.endswith("weight")
            parameter.copy_(1.0 + values if is_norm_weight else values)
    return model


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    model = build_model()
    stream = torch.randint(0, CONFIG["vocab_size"], (BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(7))
    input_ids, targets = stream[:, :-1].contiguous(), stream[:, 1:].contiguous()

    logits = model(input_ids=input_ids).logits  # [batch, sequence, vocabulary]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()

    parameters = dict(model.named_parameters())  # the tied lm_head.weight appears once, as transformer.wte.weight
    weights = {name: p.detach().contiguous() for name, p in parameters.items()}
    expected = {f"grad.{name}": p.grad.contiguous() for name, p in parameters.items()}
    expected |= {
        "input_ids": input_ids.to(torch.int32),
        "targets": targets.to(torch.int32),
        "logits": logits.detach().contiguous(),
        "loss": loss.detach().reshape(1),
    }
    save_file(weights, folder / "gpt2_weights.safetensors", metadata={"format": "pt"})
    save_file(expected, folder / "gpt2_expected.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
