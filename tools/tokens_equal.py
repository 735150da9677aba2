#!/usr/bin/env python3
"""Ids of `banyan tokenize` against those of the reference libraries, on whole corpora and on random Unicode.

    tools/tokens_equal.py --banyan build/banyan --data ../shared/data [--random N] [--corpora] [DIR|FILE ...]

DIR: model directories; FILE: bare SentencePiece models. Without any, all of DATA/tokenizers. Needs transformers,
tokenizers and sentencepiece from PyPI, and sacremoses for XLM. Prints one line a tokenizer and corpus: texts, tokens,
texts that differ. Exit status 1 when any does. --bytes N also feeds N lines of random bytes, which must not fail.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

SPACES = [chr(c) for c in (9, 10, 11, 12, 13, 32, 32, 32, 0x85, 0xA0, 0x1680, 0x2000, 0x2003, 0x200A, 0x2028, 0x2029,
                           0x202F, 0x205F, 0x3000, 0x200B, 0x200D, 0xFEFF, 0x1C, 0x1F, 0x2581)]
SCRIPTS = [(0x20, 0x7F), (0x20, 0x7F), (0x61, 0x7B), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700),
           (0x900, 0xE80), (0xE00, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2C00), (0x3000, 0x3400), (0x4E00, 0x4F00),
           (0xAC00, 0xAD00), (0xF900, 0x10000), (0x1F000, 0x1FB00), (0x1D400, 0x1D800), (0x10000, 0x20000),
           (0x20000, 0x33480), (0xE0000, 0xE0200), (1, 0xD800), (0xE000, 0x110000)]
WORDS = ["the", "don't", "'s", "U.S.", "1,000.5", "e\u0301", "\u00c5\u030a", "\ufb01", "\u1e9e", "\u0130", "\u03a3", "``", "''", "##ing",
         "...", "http://a.b/c?d=e", "<0x0A>", "\u2581", "hello world", "\u0e33", "\U0001f468\u200d\U0001f469", "\u1112\u1161\u11ab", "x" * 120, "DOTMULTI"]


def random_text(rng, special):
    text = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.random()
        if kind < 0.15:
            text.append(rng.choice(SPACES) * rng.randrange(1, 3))
        elif kind < 0.25:
            text.append(rng.choice(WORDS))
        elif kind < 0.3 and special:
            text.append(rng.choice(special))
        else:
            low, high = rng.choice(SCRIPTS)
            text += [chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 6))]
    return "".join(c for c in "".join(text) if not 0xD800 <= ord(c) <= 0xDFFF and c != "\0")


def corpora(data):
    """Name, and the texts: every line by itself, and the whole as one."""
    for name in ("tinyshakespeare", "wikitext2-valid", "wikitext2-test"):
        text = open(f"{data}/corpora/{name}.txt", encoding="utf-8", newline="").read()
        yield name, text.split("\n") + [text]
    for language in ("en", "de"):
        lines = []
        for path in sorted(glob.glob(f"{data}/tasks/multi30k/*")):
            if path.endswith("." + language) or f".{language}." in path:
                lines += open(path, encoding="utf-8", newline="").read().split("\n")
        yield "multi30k-" + language, lines
    texts = []
    for path in sorted(glob.glob(f"{data}/tasks/xquad/*.json")):
        for article in json.load(open(path, encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                texts += [paragraph["context"]] + [q["question"] for q in paragraph["qas"]]
    yield "xquad", texts


class Bare:
    def __init__(self, path):
        import sentencepiece

        self.model, self.special, self.fast = sentencepiece.SentencePieceProcessor(model_file=path), [], True

    def encode(self, texts):
        return self.model.encode(texts)


class Directory:
    def __init__(self, path):
        import transformers

        transformers.logging.set_verbosity_error()
        if os.path.exists(path + "/vocab_xnli_15.txt"):
            path = xlm_directory(path)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        self.special = self.tokenizer.all_special_tokens
        self.fast = getattr(self.tokenizer, "_tokenizer", None)

    def encode(self, texts):
        if self.fast:
            self.fast.no_truncation()
            return [e.ids for e in self.fast.encode_batch(texts)]
        return [self.tokenizer(t)["input_ids"] for t in texts]


def xlm_directory(path):
    """What the reference reads, from the vocabulary as XLM itself wrote it."""
    new = tempfile.mkdtemp()
    vocab = {"<s>": 0, "</s>": 1, "<pad>": 2, "<unk>": 3, **{f"<special{i}>": 4 + i for i in range(10)}}
    for line in open(path + "/vocab_xnli_15.txt", encoding="utf-8", newline="\n"):
        word = line.rstrip("\n").split(" ")[0]
        vocab.setdefault(word.replace("@@", "") if "@@" in word else word + "</w>", len(vocab))
    json.dump(vocab, open(new + "/vocab.json", "w", encoding="utf-8"), ensure_ascii=False)
    open(new + "/merges.txt", "wb").write(open(path + "/merges.txt", "rb").read())
    json.dump({"tokenizer_class": "XLMTokenizer"}, open(new + "/tokenizer_config.json", "w"))
    return new


def ours(banyan, path, texts):
    lines = "".join(json.dumps({"text": t}) + "\n" for t in texts).encode()
    run = subprocess.run([banyan, "tokenize", path, "--jsonl"], input=lines, stdout=subprocess.PIPE, check=True)
    return [json.loads(line)["ids"] for line in run.stdout.splitlines()]


def compare(banyan, path, name, reference, texts, show):
    tokens, wrong = 0, 0
    for start in range(0, len(texts), 50000):
        part = texts[start:start + 50000]
        for text, mine, theirs in zip(part, ours(banyan, path, part), reference.encode(part)):
            tokens += len(theirs)
            if mine != theirs:
                wrong += 1
                if wrong <= show:
                    print("  ", json.dumps(text[:200]), mine[:60], theirs[:60])
    print(f"{os.path.basename(path.rstrip('/'))} {name}: {len(texts)} texts, {tokens} tokens, {wrong} differ", flush=True)
    return wrong


def feed_bytes(banyan, path, count, rng):
    lines = b"\n".join(rng.randbytes(rng.randrange(40)).replace(b"\n", b" ") for _ in range(count)) + b"\n"
    out = subprocess.run([banyan, "tokenize", path], input=lines, stdout=subprocess.PIPE, check=True).stdout
    assert out.count(b"\n") == count
    print(f"{os.path.basename(path.rstrip('/'))} random bytes: {count} texts", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banyan", default="build/banyan")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--corpora", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("paths", nargs="*")
    o = parser.parse_args()
    folder = o.data + "/tokenizers/"
    paths = o.paths or sorted(glob.glob(folder + "*")) + sorted(glob.glob(folder + "*/spiece.model"))
    wrong = 0
    for path in paths:
        reference = Directory(path) if os.path.isdir(path) else Bare(path)
        for name, texts in corpora(o.data) if o.corpora else []:
            wrong += compare(o.banyan, path, name, reference, texts, o.show)
        rng = random.Random(o.seed)
        if o.random:
            texts = [random_text(rng, reference.special) for _ in range(o.random)]
            if not getattr(reference, "fast", True):
                # These go by the tables of Python itself: leave out what they are too old for.
                texts = ["".join(c for c in t if ord(c) >= 0x40000 or unicodedata.category(c) != "Cn") for t in texts]
            wrong += compare(o.banyan, path, f"random Unicode {unicodedata.unidata_version}", reference, texts, o.show)
        if o.bytes:
            feed_bytes(o.banyan, path, o.bytes, rng)
    sys.exit(wrong > 0)


main()
