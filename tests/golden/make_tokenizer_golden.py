# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizer.json, a byte-level BPE trained here, and tokenizer_expected.json: what `tokenizers` makes of 1 MB of text.

Usage: python make_tokenizer_golden.py [--train]      (tokenizers 0.23.3)

The text grows from tokenizer_seed.txt by mixed_text(), whose twin is tests/laws/mixed_text.hpp: slices of the seed, runs of
any code points, runs of one odd character, and random ASCII. Expected are, for blocks of 4096 bytes (a little more where a
character would be cut) encoded one by one, the number of ids and the FNV-1a of the ids as 32-bit little-endian integers;
the same of the whole text at once; and of the whole text with a field of tokenizer.json changed. With --train, the
tokenizer is trained first, on the seed and on text that a Debian machine with Python has.
"""

import json
import pathlib
import struct
import sys
import sysconfig

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).resolve().parent
SEED = (FOLDER / "tokenizer_seed.txt").read_bytes()
TEXT_BYTES, BLOCK_BYTES, VOCABULARY = 1 << 20, 4096, 6000
ODD = [0x20, 0x09, 0x0A, 0x0D, 0x0B, 0x0C, 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x3000, 0x200B, 0x200D, 0xFEFF, 0x180E,
       0x1C, 0x00, 0x7F, 0x27, 0x301, 0xFE0F, 0x1F600, 0x61, 0x39, 0x2026, 0xFFFD, 0x10FFFF]
ASCII = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789    ''\n\t.,!<|>_"
WORDS = '"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}'
VARIANTS = [(WORDS, WORDS.replace("false", "true", 1)), (WORDS, WORDS.replace('regex":true', 'regex":false'))]


def is_inside(text: bytes, at: int) -> bool:
    """Whether a character goes on at this byte."""
    return at < len(text) and text[at] & 0xC0 == 0x80


def mixed_text(size: int) -> bytes:
    state = 2026

    def draw(count: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (state >> 33) % count

    text = bytearray()
    while len(text) < size:
        kind = draw(8)
        if kind <= 4:
            start, length = draw(len(SEED)), 1 + draw(300)
            while is_inside(SEED, start):
                start += 1
            end = min(start + length, len(SEED))
            while is_inside(SEED, end):
                end += 1
            text += SEED[start:end]
        elif kind == 5:
            planes = 0x20000 if draw(4) else 0x110000
            block, count = draw(planes // 128), 1 + draw(40)
            for _ in range(count):
                code_point = 128 * block + draw(128)
                if not 0xD800 <= code_point < 0xE000:
                    text += chr(code_point).encode()
        elif kind == 6:
            character, count = chr(ODD[draw(len(ODD))]), 1 + draw(12)
            text += (character * count).encode()
        else:
            for _ in range(1 + draw(30)):
                text.append(ASCII[draw(len(ASCII))])
    return bytes(text)


def blocks_of(text: bytes) -> list[bytes]:
    blocks, start = [], 0
    while start < len(text):
        end = min(start + BLOCK_BYTES, len(text))
        while is_inside(text, end):
            end += 1
        blocks.append(text[start:end])
        start = end
    return blocks


def digest(ids: list[int]) -> list:
    value = 0xCBF29CE484222325
    for byte in struct.pack(f"<{len(ids)}i", *ids):
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return [len(ids), f"{value:016x}"]


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    corpus = sorted(pathlib.Path("/usr/share/common-licenses").iterdir())
    corpus += sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in corpus] + [SEED.decode()] * 20
    tokenizer.train_from_iterator(texts, trainer)
    special = [AddedToken(name, special=True, normalized=False) for name in ("<|endoftext|>", "<|pad|>", "<|end")]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken("dspp_token", normalized=True)])
    return tokenizer


def main() -> None:
    path = FOLDER / "tokenizer.json"
    if "--train" in sys.argv:
        path.write_text(train().to_str())
    written = path.read_text()
    tokenizer = Tokenizer.from_str(written)
    text = mixed_text(TEXT_BYTES)

    def ids_of(t: Tokenizer, piece: bytes) -> list[int]:
        return t.encode(piece.decode(), add_special_tokens=False).ids

    whole = ids_of(tokenizer, text)
    assert tokenizer.decode(whole, skip_special_tokens=False).encode() == text
    expected = {"text": digest(list(text)), "whole": digest(whole), "variants": [], "blocks": []}
    for old, new in VARIANTS:
        assert written.count(old) == 1, old
        ids = ids_of(Tokenizer.from_str(written.replace(old, new)), text)
        assert ids != whole, new
        expected["variants"].append([old, new, *digest(ids)])
    expected["blocks"] = [digest(ids_of(tokenizer, block)) for block in blocks_of(text)]
    lines = json.dumps(expected, separators=(",", ":")).replace("],[", "],\n[")
    (FOLDER / "tokenizer_expected.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
