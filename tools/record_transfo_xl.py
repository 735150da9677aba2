#!/usr/bin/env python3
"""Records cases of Transformer-XL for `banyan verify`: a model written out from its definition, in f64, with PyTorch.

    python3 tools/record_transfo_xl.py tests/data/verify

transformers has no Transformer-XL any more, and the recorded cases elsewhere have one tail at most. These have three tails and
the options that they leave out. Scores are computed pair by pair, without a shift of rows.
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

B, T, M = 2, 7, 5  # rows, tokens, memory
C, H, D, INNER, LAYERS = 16, 2, 8, 24, 2
VOCAB, CUTOFFS = 50, [10, 20, 35]
ENDS = [0] + CUTOFFS + [VOCAB]
TAILS = len(CUTOFFS)


class Model:
    def __init__(self, div, embed, untied, pre, same_length, clamp, share, reversed_tails):
        self.__dict__.update(locals())
        self.projected = div > 1 or embed != C
        self.p = {}
        tables = range(TAILS + 1 if div > 1 else 1)
        for i in tables:
            self.add(f"transformer.word_emb.emb_layers.{i}.weight", self.rows(i), embed // div**i)
            if self.projected:
                self.add(f"transformer.word_emb.emb_projs.{i}", C, embed // div**i)
        for n in range(LAYERS):
            self.add_layer(f"transformer.layers.{n}.")
        if not untied:
            self.add_biases("transformer.")
        for i in tables:
            self.add(f"crit.out_layers.{i}.bias", self.rows(i))
        self.add("crit.cluster_weight", TAILS, embed)
        self.add("crit.cluster_bias", TAILS)
        for i in range(TAILS + 1):
            if self.projected and not self.is_tied(i):
                self.add(f"crit.out_projs.{i}", C, embed // div**i)

    def add(self, name, *shape):
        self.p[name] = (torch.randn(*shape) * 0.3).requires_grad_()

    def add_biases(self, prefix):
        self.add(prefix + "r_w_bias", H, D)
        self.add(prefix + "r_r_bias", H, D)

    def add_layer(self, prefix):
        for name, shape in [("qkv_net", (3 * H * D, C)), ("r_net", (H * D, C)), ("o_net", (C, H * D))]:
            self.add(f"{prefix}dec_attn.{name}.weight", *shape)
        if self.untied:
            self.add_biases(prefix + "dec_attn.")
        for part in ["dec_attn", "pos_ff"]:
            self.add(f"{prefix}{part}.layer_norm.weight", C)
            self.add(f"{prefix}{part}.layer_norm.bias", C)
        self.add(prefix + "pos_ff.CoreNet.0.weight", INNER, C)
        self.add(prefix + "pos_ff.CoreNet.0.bias", INNER)
        self.add(prefix + "pos_ff.CoreNet.3.weight", C, INNER)
        self.add(prefix + "pos_ff.CoreNet.3.bias", C)

    def rows(self, i):
        return ENDS[i + 1] - ENDS[i] if self.div > 1 else VOCAB

    def is_tied(self, i):
        return self.share and i > 0

    def embedding(self, token):
        i = cluster_of(token) if self.div > 1 else 0
        row = self.p[f"transformer.word_emb.emb_layers.{i}.weight"][token - (ENDS[i] if self.div > 1 else 0)]
        return self.p[f"transformer.word_emb.emb_projs.{i}"] @ row if self.projected else row

    def norm(self, x, prefix):
        return F.layer_norm(x, (C,), self.p[prefix + "layer_norm.weight"], self.p[prefix + "layer_norm.bias"], 1e-5)

    def score(self, q, k, distance, prefix, biases):
        if distance < 0 or (self.same_length and distance >= M):
            return torch.full((B, H), -1e30)
        far = min(distance, self.clamp) if self.clamp > 0 else distance
        angles = far / 10000 ** (torch.arange(0, C, 2) / C)
        r = (self.p[prefix + "r_net.weight"] @ torch.cat([angles.sin(), angles.cos()])).view(H, D)
        u, v = self.p[biases + "r_w_bias"], self.p[biases + "r_r_bias"]
        return (((q + u) * k).sum(-1) + ((q + v) * r).sum(-1)) / D**0.5

    def attention(self, rows, prefix):
        q, k, v = (rows @ self.p[prefix + "qkv_net.weight"].T).split(H * D, -1)
        q, k, v = q[:, -T:].view(B, T, H, D), k.view(B, M + T, H, D), v.view(B, M + T, H, D)
        biases = prefix if self.untied else "transformer."
        scores = [[self.score(q[:, t], k[:, s], t + M - s, prefix, biases) for s in range(M + T)] for t in range(T)]
        weights = torch.stack([torch.stack(row, -1) for row in scores], 2).softmax(-1)  # (B, H, T, M + T)
        return torch.einsum("bhts,bshd->bthd", weights, v).reshape(B, T, H * D) @ self.p[prefix + "o_net.weight"].T

    def feed_forward(self, x, prefix):
        x = F.relu(x @ self.p[prefix + "CoreNet.0.weight"].T + self.p[prefix + "CoreNet.0.bias"])
        return x @ self.p[prefix + "CoreNet.3.weight"].T + self.p[prefix + "CoreNet.3.bias"]

    def layer(self, x, memory, n):
        attn, ff = f"transformer.layers.{n}.dec_attn.", f"transformer.layers.{n}.pos_ff."
        rows = torch.cat([memory, x], 1)
        if self.pre:
            x = x + self.attention(self.norm(rows, attn), attn)
            return x + self.feed_forward(self.norm(x, ff), ff)
        x = self.norm(x + self.attention(rows, attn), attn)
        return self.norm(x + self.feed_forward(x, ff), ff)

    def log_softmax(self, h, i):
        at = i if self.div > 1 else 0
        part = slice(None) if self.div > 1 else slice(ENDS[i], ENDS[i + 1])
        w = self.p[f"transformer.word_emb.emb_layers.{at}.weight"][part]
        b = self.p[f"crit.out_layers.{at}.bias"][part]
        if i == 0:
            w, b = torch.cat([w, self.p["crit.cluster_weight"]]), torch.cat([b, self.p["crit.cluster_bias"]])
        if self.projected:
            name = f"transformer.word_emb.emb_projs.{at}" if self.is_tied(i) else f"crit.out_projs.{i}"
            h = h @ self.p[name]
        return F.log_softmax(h @ w.T + b, -1)

    def loss(self, h, target):
        i, head = cluster_of(target), self.log_softmax(h, 0)
        if i == 0:
            return -head[target]
        column = len(head) - i if self.reversed_tails else ENDS[1] + i - 1
        return -head[column] - self.log_softmax(h, i)[target - ENDS[i]]

    def config(self):
        return {"model_type": "transfo-xl", "vocab_size": VOCAB, "cutoffs": CUTOFFS, "div_val": self.div, "d_model": C,
                "d_embed": self.embed, "n_head": H, "d_head": D, "d_inner": INNER, "n_layer": LAYERS, "mem_len": M,
                "same_length": self.same_length, "clamp_len": self.clamp, "pre_lnorm": self.pre, "untie_r": self.untied,
                "proj_share_all_but_first": self.share, "tie_word_embeddings": True, "dropout": 0.0, "dropatt": 0.0}


def cluster_of(token):
    return max(i for i in range(TAILS + 1) if ENDS[i] <= token)


def as_f32(x):
    return x.detach().float().contiguous()


def record(folder, m):
    os.makedirs(folder, exist_ok=True)
    ids, labels = torch.randint(0, VOCAB, (B, T)), torch.randint(0, VOCAB, (B, T))
    memory = [torch.randn(B, M, C) for _ in range(LAYERS + 1)]
    out = {"input.input_ids": ids, "input.labels": labels}
    x = torch.stack([m.embedding(int(i)) for i in ids.flatten()]).view(B, T, C) * C**0.5
    for n in range(LAYERS + 1):
        out[f"input.mems.{n}"] = as_f32(memory[n])
        out[f"output.mems.{n}"] = as_f32(torch.cat([memory[n], x], 1)[:, -M:])
        x = m.layer(x, memory[n], n) if n < LAYERS else x
    losses = torch.stack([m.loss(h, int(t)) for h, t in zip(x.view(B * T, C), labels.flatten())])
    losses.mean().backward()
    out["output.last_hidden_state"] = as_f32(x)
    out["output.token_losses"] = as_f32(losses.view(B, T))
    out["output.loss"] = as_f32(losses.mean())
    for name, p in m.p.items():
        out["grad." + name] = as_f32(p.grad if p.grad is not None else torch.zeros_like(p))
    save_file(out, folder + "/reference.safetensors")
    prefix = "transformer." if m.reversed_tails else ""  # the authors' files have none
    save_file({name.removeprefix(prefix): as_f32(p) for name, p in m.p.items()}, folder + "/model.safetensors")
    for name, value in [("config", m.config()), ("case", {"class": "TransfoXLLMHeadModel", "family": "transfo-xl"})]:
        with open(f"{folder}/{name}.json", "w", encoding="ascii") as file:
            json.dump(value, file, indent=1)


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    record(sys.argv[1] + "/transfo-xl", Model(div=2, embed=C, untied=True, pre=False, same_length=True, clamp=3,
                                              share=True, reversed_tails=False))
    record(sys.argv[1] + "/transfo-xl-authors", Model(div=1, embed=8, untied=False, pre=True, same_length=False, clamp=-1,
                                                      share=False, reversed_tails=True))


main()
