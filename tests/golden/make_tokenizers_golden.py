# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizers/*.json, trained here with the configurations of Llama 3, Qwen 2, Llama 2 and BERT, and
tokenizers_expected.json: what `tokenizers` makes with them of the text of make_tokenizer_golden.py.

Usage: python make_tokenizers_golden.py [--train]      (tokenizers 0.23.3)

Expected are, for each tokenizer as it is: the number and the FNV-1a of the ids of the whole text, and of the blocks of 4 KB of
its first eighth, encoded one by one, one after another; the ids of some lines, with the text that they are decoded to; and
with fields of its file changed, the number and the FNV-1a of the ids of the first eighth and of the lines after it. --train trains the tokenizers first, on text that a Debian machine with Python has.
"""

import json
import pathlib
import sys
import sysconfig

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make_tokenizer_golden import SEED, TEXT_BYTES, blocks_of, digest, mixed_text

FOLDER = pathlib.Path(__file__).resolve().parent
VOCABULARY = 2500
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
SPACE = "\u2581"

LINES = [
    "Hello world, it's 12345678 o'clock; WE'LL SEE'M, I'\u017f and they'Re'd.",
    "a\r\n\r\n  b \n\n\tc   \n d  !!\r\n\n?\n e\u3000\u3000f\u00a0g\u2028h",
    "e\u0301 \u00e9 \u1112\u1161\u11ab\ud55c A\u030a\u212b \u0958 o\u0327\u0302 \u0345\u0301x \u11935\u11930",
    "\u0130stanbul \u00c9T\u00c9 \ufb01 \u00df \u01c5 \u0391\u03a3 \u4e2d\u6587\uff0c\u65e5\u672c\u8a9e \uac00\uac01",
    "don\u2019t \u00abquote\u00bb x_y-z $3.50 ^~`+=<>| \u00a9\u00b7\u2026",
    "un\u0000con\u0007trolled\u200b \ufffd\ufeff \U000e0001 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    " leading and trailing  ", "   ", "\n", "x" * 101, "counter" * 14 + "un", "<s>a</s> <unk>[MASK] [mask]b<|end_of_text|>\n",
    "<|im_start|>user\nhi<|im_end|>", "Added_Word added_word \u00c0dded_word dspp_Toke\u0323n dspp_Tok\u1eb9n", "<0x41>\u2581\u2581a\u2581",
]


def texts() -> list[str]:
    corpus = sorted(pathlib.Path("/usr/share/common-licenses").iterdir())
    corpus += sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return [file.read_text(encoding="utf-8", errors="replace") for file in corpus] + [SEED.decode()] * 20


def special(*names: str) -> list[AddedToken]:
    return [AddedToken(name, special=True, normalized=False) for name in names]


def byte_level(pattern: str, ignore_merges: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_bytes(tokenizer: Tokenizer) -> None:
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))


def llama3() -> str:
    """Every second merge is left out, so that words that are tokens cannot be merged."""
    tokenizer = byte_level(LLAMA3, True)
    train_bytes(tokenizer)
    file = json.loads(tokenizer.to_str())
    file["model"]["merges"] = [merge for i, merge in enumerate(file["model"]["merges"]) if i < 1000 or i % 2]
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    begin = "<|begin_of_text|>"
    template = processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1",
                                             special_tokens=[(begin, tokenizer.token_to_id(begin))])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer.to_str()


def qwen2() -> str:
    tokenizer = byte_level(QWEN2, False)
    tokenizer.normalizer = normalizers.NFC()
    train_bytes(tokenizer)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("dspp_Toke\u0323n", normalized=True), AddedToken("<tool>", normalized=False)])
    return tokenizer.to_str()


def llama2() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    names = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % byte for byte in range(256)]
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=names,
                                                               limit_alphabet=300, show_progress=False))
    file = json.loads(tokenizer.to_str())
    file["model"].update(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    file["pre_tokenizer"], file["added_tokens"] = None, file["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                             special_tokens=[("<s>", 1)])
    return tokenizer.to_str()


def bert() -> str:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=None, lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, show_progress=False,
                                        special_tokens=special("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_tokens([AddedToken("Added_Word", normalized=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                             special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer.to_str()


def metaspace(scheme: str, split: str) -> list[list[str]]:
    prepend = '"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"%s"},' % SPACE
    replace = '{"type":"Replace","pattern":{"String":" "},"content":"%s"}]}' % SPACE
    new = '"pre_tokenizer":{"type":"Metaspace","replacement":"%s","prepend_scheme":"%s","split":%s}'
    return [[prepend + replace, '"normalizer":null'], ['"pre_tokenizer":null', new % (SPACE, scheme, split)]]


def is_bert(clean: str, chinese: str, strip: str, lower: str) -> list[list[str]]:
    fields = '"clean_text":%s,"handle_chinese_chars":%s,"strip_accents":%s,"lowercase":%s'
    return [[fields % ("true", "true", "null", "true"), fields % (clean, chinese, strip, lower)]]


NOT_NORMALIZED = [['"normalized":true', '"normalized":false']]  # a long text is then normalized in parts
MODELS = {
    "llama3": (llama3, [[['"ignore_merges":true', '"ignore_merges":false']]]),
    "qwen2": (qwen2, [[['"normalizer":{"type":"NFC"}', '"normalizer":null']], NOT_NORMALIZED]),
    "llama2": (llama2, [metaspace("first", "false"), metaspace("always", "true"), metaspace("never", "true")]),
    "bert": (bert, [is_bert("true", "true", "null", "false"), is_bert("false", "false", "true", "false"),
                    is_bert("false", "true", "false", "true"), is_bert("true", "false", "true", "true"), NOT_NORMALIZED]),
}


def expected_of(written: str, text: bytes) -> dict:
    """Of the whole text, of the blocks of its first eighth, of the lines."""
    tokenizer = Tokenizer.from_str(written)

    def ids_of(piece: str) -> list[int]:
        return tokenizer.encode(piece, add_special_tokens=False).ids

    blocks = [id for block in blocks_of(first_eighth(text)) for id in ids_of(block.decode())]
    lines = [[line, ids_of(line), tokenizer.decode(ids_of(line), skip_special_tokens=False)] for line in LINES]
    return {"whole": digest(ids_of(text.decode())), "blocks": digest(blocks), "lines": lines,
            "template": tokenizer.encode("").ids, "size": tokenizer.get_vocab_size()}


def first_eighth(text: bytes) -> bytes:
    return b"".join(blocks_of(text)[:len(blocks_of(text)) // 8])


def ids_of_parts(written: str, parts: list[str]) -> list[int]:
    tokenizer = Tokenizer.from_str(written)
    return [id for part in parts for id in tokenizer.encode(part, add_special_tokens=False).ids]


def main() -> None:
    text, all_expected = mixed_text(TEXT_BYTES), []
    for name, (train, variants) in MODELS.items():
        path = FOLDER / "tokenizers" / f"{name}.json"
        if "--train" in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(train())
        written = path.read_text()
        expected = {"name": name, **expected_of(written, text), "variants": []}
        for changes in variants:
            changed = written
            for old, new in changes:
                assert changed.count(old) == 1, old
                changed = changed.replace(old, new)
            before, ids = (ids_of_parts(file, [first_eighth(text).decode()] + LINES) for file in (written, changed))
            assert ids != before or changes == NOT_NORMALIZED, changes
            expected["variants"].append({"changes": changes, "ids": digest(ids)})
        all_expected.append(expected)
    lines = json.dumps(all_expected, separators=(",", ":")).replace('],["', '],\n["').replace(',{"', ',\n{"')
    (FOLDER / "tokenizers_expected.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
