# SPDX-License-Identifier: Apache-2.0
"""Writes llama_weights.safetensors and llama_expected.safetensors: a small random Llama as `transformers` computes it, in f64.

Usage: python make_llama_golden.py [directory]   (default: the folder of this script). README.md lists what the files hold.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

CONFIG = dict(
    num_hidden_layers=2,
    hidden_size=24,
    num_attention_heads=12,
    num_key_value_heads=6,
    head_dim=4,
    intermediate_size=48,
    vocab_size=61,
    max_position_embeddings=16,
)
THETA, EPSILON = 100.0, 1e-5
BATCH, SEQUENCE = 2, 12


def angles_in_f64(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """LlamaRotaryEmbedding.forward, which computes angles in f32 whatever the model's type, line by line in f64."""
    exponents = torch.arange(0, CONFIG["head_dim"], 2, dtype=torch.float64) / CONFIG["head_dim"]
    frequencies = position_ids[:, :, None].double() * (1.0 / THETA**exponents)[None, None, :]
    angles = torch.cat((frequencies, frequencies), dim=-1)
    return angles.cos(), angles.sin()


def norm_in_f64(self, hidden_states: torch.Tensor) -> torch.Tensor:
    """LlamaRMSNorm.forward without its cast to f32."""
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    return self.weight * (hidden_states * torch.rsqrt(variance + self.variance_epsilon))


def build_model() -> LlamaForCausalLM:
    """All values are random and large enough to matter: weights 0.2 N(0,1), norm weights 1 + 0.2 N(0,1)."""
    config = LlamaConfig(
        **CONFIG,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        rms_norm_eps=EPSILON,
        tie_word_embeddings=False,
        attention_bias=False,
        mlp_bias=False,
        attention_dropout=0.0,
        attn_implementation="sdpa",  # the eager one computes its softmax in f32
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config).to(torch.float64).train()
    generator = torch.Generator().manual_seed(20240301)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = 0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            is_norm_weight = "norm" in name
            parameter.copy_(1.0 + values if is_norm_weight else values)
    return model


def logits_of(model: LlamaForCausalLM, input_ids: torch.Tensor) -> torch.Tensor:
    return model(input_ids=input_ids).logits  # [batch, sequence, vocabulary]


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    model = build_model()
    stream = torch.randint(0, CONFIG["vocab_size"], (BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(8))
    input_ids, targets = stream[:, :-1].contiguous(), stream[:, 1:].contiguous()

    as_published = logits_of(model, input_ids).detach()
    modeling_llama.LlamaRotaryEmbedding.forward = angles_in_f64
    modeling_llama.LlamaRMSNorm.forward = norm_in_f64
    logits = logits_of(model, input_ids)
    gap = (logits - as_published).abs().max().item() / logits.abs().max().item()
    print(f"logits as published, with angles and norms in f32, differ by {gap:.1e} of the largest")
    assert gap < 1e-6

    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()

    parameters = dict(model.named_parameters())
    weights = {name: p.detach().contiguous() for name, p in parameters.items()}
    expected = {f"grad.{name}": p.grad.contiguous() for name, p in parameters.items()}
    expected |= {
        "input_ids": input_ids.to(torch.int32),
        "targets": targets.to(torch.int32),
        "logits": logits.detach().contiguous(),
        "loss": loss.detach().reshape(1),
    }
    save_file(weights, folder / "llama_weights.safetensors", metadata={"format": "pt"})
    save_file(expected, folder / "llama_expected.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
