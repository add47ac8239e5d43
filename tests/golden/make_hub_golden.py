# SPDX-License-Identifier: Apache-2.0
"""Writes hub/<name>/, hub/<name>_expected.safetensors and rope_expected.safetensors: what `transformers` computes of small random
models, of Llama's family and a BERT, and of scaled rotary angles, in f64.

Usage: python make_hub_golden.py [directory]   (default: the folder of this script). README.md lists what the files hold.
"""

import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers import modeling_rope_utils
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

BATCH, SEQUENCE, VOCABULARY = 2, 12, 61
SMALL = dict(
    num_hidden_layers=2,
    hidden_size=16,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=24,
    vocab_size=VOCABULARY,
    attention_dropout=0.0,
    bos_token_id=0,
    eos_token_id=0,
    pad_token_id=None,
)
# the sequences of 12 tokens are longer than every window and every original length
MODELS = {
    "llama3": (
        LlamaForCausalLM,
        LlamaConfig,
        dict(
            head_dim=8,
            max_position_embeddings=32,
            rms_norm_eps=1e-5,
            rope_parameters=dict(
                rope_type="llama3", rope_theta=50.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0, original_max_position_embeddings=16
            ),
        ),
    ),
    "mistral": (
        MistralForCausalLM,
        MistralConfig,
        dict(
            head_dim=6, max_position_embeddings=24, sliding_window=5, rope_parameters=dict(rope_type="linear", rope_theta=100.0, factor=2.5)
        ),
    ),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config,
        dict(
            hidden_size=32,
            max_position_embeddings=32,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=1,
            rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=8, beta_fast=2.0),
        ),
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        Qwen3Config,
        dict(
            head_dim=6, max_position_embeddings=8, max_window_layers=2, tie_word_embeddings=True, rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, factor=2.0)
        ),
    ),
}

# of heads of 128 features, as published models have them, and of small ones where other branches are taken
ANGLES = {
    "linear": dict(rope_type="linear", rope_theta=1e4, factor=4.0),
    "dynamic": dict(rope_type="dynamic", rope_theta=1e4, factor=2.0),
    "llama3": dict(
        rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
    ),
    "yarn": dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=32768),
    "yarn_mscale": dict(
        rope_type="yarn",
        rope_theta=1e4,
        factor=40.0,
        original_max_position_embeddings=4096,
        beta_fast=32,
        beta_slow=1,
        mscale=1.0,
        mscale_all_dim=0.707,
        truncate=False,
    ),
    "yarn_given": dict(
        rope_type="yarn", rope_theta=1e4, factor=2.0, original_max_position_embeddings=4096, attention_factor=1.25, beta_fast=1.0, beta_slow=1.0
    ),
}


class TorchInF64:
    """The module torch, in which `float` and `float32` are float64: transformers computes norms and angles in f32 otherwise."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def compute_in_f64() -> None:
    """From here on all of transformers' own code for these models computes in f64."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    for module in (modeling_rope_utils, modeling_llama, modeling_mistral, modeling_qwen2, modeling_qwen3):
        module.torch = TorchInF64()


def build_model(name: str) -> torch.nn.Module:
    model_type, config_type, fields = MODELS[name]
    # the eager attention computes its softmax in f32
    return with_values(model_type(config_type(**(SMALL | fields), attn_implementation="sdpa")))


def with_values(model: torch.nn.Module) -> torch.nn.Module:
    """All values are random and large enough to matter: weights and biases 0.3 N(0,1), norm weights 1 + 0.3 N(0,1)."""
    model = model.to(torch.float64).train()
    generator = torch.Generator().manual_seed(40)
    with torch.no_grad():
        for parameter_name, parameter in sorted(model.named_parameters()):
            values = 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1.0 + values if "norm.weight" in parameter_name.lower() else values)
    return model


def write_model(folder: pathlib.Path, name: str) -> None:
    model = build_model(name)
    stream = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(8))
    input_ids, targets = stream[:, :-1].contiguous(), stream[:, 1:].contiguous()
    logits = model(input_ids=input_ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    write_folder(folder, name, model, {"input_ids": input_ids, "targets": targets}, logits, loss)


def write_bert(folder: pathlib.Path) -> None:
    """Sentences of 12 and of 7 tokens, padded by token 0, two kinds of tokens, and the labels of some."""
    config = BertConfig(
        num_hidden_layers=2,
        hidden_size=16,
        num_attention_heads=4,
        intermediate_size=24,
        vocab_size=VOCABULARY,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    model = with_values(BertForMaskedLM(config))
    generator = torch.Generator().manual_seed(9)
    ids = torch.randint(1, VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    types = (torch.arange(SEQUENCE) >= torch.tensor([[5], [3]])).long()
    lengths = torch.tensor([SEQUENCE, 7])
    labels = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    labels[torch.rand((BATCH, SEQUENCE), generator=generator) < 0.6] = -100
    mask = (torch.arange(SEQUENCE) < lengths[:, None]).long()
    ids[mask == 0], labels[mask == 0] = 0, -100
    result = model(input_ids=ids, token_type_ids=types, attention_mask=mask, labels=labels)
    result.loss.backward()
    batch = {"input_ids": ids, "token_type_ids": types, "lengths": lengths, "labels": labels}
    write_folder(folder, "bert", model, batch, result.logits, result.loss)


def write_folder(folder: pathlib.Path, name: str, model: torch.nn.Module, batch: dict, logits: torch.Tensor, loss: torch.Tensor) -> None:
    expected = {f"grad.{parameter_name}": p.grad.contiguous() for parameter_name, p in model.named_parameters()}
    expected |= {field: ids.to(torch.int32) for field, ids in batch.items()}
    expected |= {"logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1)}
    save_file(expected, folder / f"{name}_expected.safetensors", metadata={"format": "pt"})
    shutil.rmtree(folder / name, ignore_errors=True)
    model.save_pretrained(folder / name)
    (folder / name / "generation_config.json").unlink(missing_ok=True)
    for file in (folder / name).iterdir():
        file.chmod(0o644)


def angles() -> dict:
    """Per scaling the frequencies of every pair, and the factor of cosines and sines; of `dynamic` at 4096 and at 9000 positions."""
    result = {}
    for name, parameters in ANGLES.items():
        config = LlamaConfig(head_dim=128, max_position_embeddings=4096, rope_parameters=dict(parameters))
        for length in (4096, 9000) if name == "dynamic" else (4096,):
            compute = modeling_rope_utils.ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
            frequencies, factor = compute(config, seq_len=torch.tensor(length))
            assert frequencies.dtype == torch.float64
            result[f"{name}.{length}.frequencies"] = frequencies
            result[f"{name}.{length}.factor"] = torch.tensor([factor], dtype=torch.float64)
    return result


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    compute_in_f64()
    (folder / "hub").mkdir(exist_ok=True)
    for name in MODELS:
        write_model(folder / "hub", name)
    write_bert(folder / "hub")
    save_file(angles(), folder / "rope_expected.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
