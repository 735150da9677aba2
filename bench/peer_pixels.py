#!/usr/bin/env python3
"""Plain PyTorch models of pixels beside `banyan train --model imagegpt` and `--model image-transformer`: the same shapes, pictures,
batches, steps, optimiser and schedule. Prints one line of JSON: the loss on the test pictures in nats, and the time.

  peer_pixels.py imagegpt  --data DIR --palette MODEL --layers 6 --width 256 --heads 4 --batch 64 --steps 1500 --curve FILE
  peer_pixels.py categorical|dmol --data DIR --block 196 --memory 196 ...

DIR has the files of MNIST or Fashion-MNIST; MODEL is a directory whose preprocessor_config.json has the palette.
"""
import argparse
import gzip
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("kind", choices=["imagegpt", "categorical", "dmol"])
    p.add_argument("--data", required=True)
    p.add_argument("--palette")
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--block", type=int, default=196)
    p.add_argument("--memory", type=int, default=196)
    p.add_argument("--mixtures", type=int, default=10)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=1500)
    p.add_argument("--rate", type=float, default=1e-3)
    p.add_argument("--warmup", type=int, default=200)
    p.add_argument("--decay", type=float, default=0.01)
    p.add_argument("--held", type=int, default=1200, help="training pictures held out for the curve")
    p.add_argument("--eval-steps", type=int, default=250)
    p.add_argument("--test", type=int, default=0, help="test pictures; 0: all")
    p.add_argument("--curve", help="a file for lines of step and held-out loss")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--device", default="cuda")
    return p.parse_args()


def pictures(path):
    with gzip.open(path) as f:
        raw = bytearray(f.read())
    return torch.frombuffer(raw, dtype=torch.uint8)[16:].view(-1, 784)


class Norm(nn.Module):
    """ImageGPT's: neither centred nor with a bias."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)


class GPTBlock(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads = a.heads
        self.norm1, self.norm2 = Norm(a.width), Norm(a.width)
        self.qkv, self.out = nn.Linear(a.width, 3 * a.width), nn.Linear(a.width, a.width)
        self.wide, self.narrow = nn.Linear(a.width, 4 * a.width), nn.Linear(4 * a.width, a.width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        h = self.wide(self.norm2(x))
        return x + self.narrow(h * torch.sigmoid(1.702 * h))


class ImageGPT(nn.Module):
    def __init__(self, a, colours):
        super().__init__()
        self.colours = colours
        self.wte, self.wpe = nn.Embedding(colours + 1, a.width), nn.Embedding(784, a.width)
        self.blocks = nn.ModuleList(GPTBlock(a) for _ in range(a.layers))
        self.norm, self.head = Norm(a.width), nn.Linear(a.width, colours, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                small = name.endswith(("out.weight", "narrow.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * a.layers) if small else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def loss(self, x):
        start = torch.full_like(x[:, :1], self.colours)
        h = self.wte(torch.cat([start, x[:, :-1]], 1)) + self.wpe.weight
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).float().transpose(1, 2), x)


class LocalBlock(nn.Module):
    """Post-norm; queries of a block see the memory before it and the block up to themselves."""

    def __init__(self, a):
        super().__init__()
        self.heads, self.block, self.memory = a.heads, a.block, a.memory
        self.q, self.k, self.v, self.out = (nn.Linear(a.width, a.width, bias=False) for _ in range(4))
        self.wide, self.narrow = nn.Linear(a.width, 4 * a.width), nn.Linear(4 * a.width, a.width)
        self.norm1, self.norm2 = nn.LayerNorm(a.width, eps=1e-6), nn.LayerNorm(a.width, eps=1e-6)

    def keys(self, x):
        """(B, T, C) -> (B, H, blocks, memory + block, D)"""
        b, t, c = x.shape
        x = F.pad(x.view(b, t, self.heads, -1).transpose(1, 2), (0, 0, self.memory, 0))
        return x.unfold(2, self.memory + self.block, self.block).transpose(3, 4)

    def forward(self, x, mask):
        b, t, c = x.shape
        q = self.q(x).view(b, t, self.heads, -1).transpose(1, 2).unflatten(2, (-1, self.block))
        y = F.scaled_dot_product_attention(q, self.keys(self.k(x)), self.keys(self.v(x)), attn_mask=mask)
        x = self.norm1(x + self.out(y.flatten(2, 3).transpose(1, 2).reshape(b, t, c)))
        return self.norm2(x + self.narrow(F.relu(self.wide(x))))


def sines(positions, width):
    rates = 10000 ** (-torch.arange(0, width, 2) / width)
    angle = positions[:, None] * rates
    return torch.stack([angle.sin(), angle.cos()], 2).flatten(1)


class ImageTransformer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.mixture, self.k = a.kind == "dmol", a.mixtures
        self.embed = nn.Linear(1, a.width) if self.mixture else nn.Embedding(256, a.width)
        self.blocks = nn.ModuleList(LocalBlock(a) for _ in range(a.layers))
        self.head = nn.Linear(a.width, 3 * a.mixtures) if self.mixture else nn.Linear(a.width, 256, bias=False)
        t = torch.arange(784)
        self.register_buffer("places", torch.cat([sines(t // 28, a.width // 2), sines(t % 28, a.width // 2)], 1))
        q, s = torch.arange(a.block)[:, None], torch.arange(a.memory + a.block)
        there = torch.arange(784 // a.block)[:, None, None] * a.block + s - a.memory >= 0
        self.register_buffer("mask", (s <= q + a.memory) & there)
        for name, p in self.named_parameters():
            if p.dim() == 2 and "blocks" in name:
                nn.init.xavier_normal_(p)
            elif name.endswith("bias") and "norm" not in name:
                nn.init.zeros_(p)
        nn.init.normal_(self.head.weight, std=0.02 if self.mixture else a.width ** -0.5)
        nn.init.normal_(self.embed.weight)

    def loss(self, x):
        h = self.embed(x[..., None] / 127.5 - 1) if self.mixture else self.embed(x)
        h = F.pad(h[:, :-1], (0, 0, 1, 0)) + self.places
        for block in self.blocks:
            h = block(h, self.mask)
        h = self.head(h).float()
        return self.mixture_loss(h, x) if self.mixture else F.cross_entropy(h.transpose(1, 2), x)

    def mixture_loss(self, h, x):
        prior, mean, scale = h.split(self.k, 2)
        scale = scale.clamp(min=-7)
        d = x[..., None] / 127.5 - 1 - mean
        inverse = torch.exp(-scale)
        high, low, mid = inverse * (d + 1 / 255), inverse * (d - 1 / 255), inverse * d
        p = torch.sigmoid(high) - torch.sigmoid(low)
        inner = torch.where(p > 1e-5, p.clamp(min=1e-12).log(), mid - scale - 2 * F.softplus(mid) - math.log(127.5))
        log_p = torch.where(x[..., None] == 0, F.logsigmoid(high), torch.where(x[..., None] == 255, -F.softplus(low), inner))
        return -torch.logsumexp(log_p + F.log_softmax(prior, 2), 2).mean()


def to_palette(x, directory):
    """The nearest colour of every grey pixel."""
    with open(f"{directory}/preprocessor_config.json", encoding="utf-8") as f:
        colours = torch.tensor(json.load(f)["clusters"], dtype=torch.float64)
    grey = (torch.arange(256, dtype=torch.float64) / 127.5 - 1)[:, None].expand(-1, 3)
    table = ((grey[:, None] - colours[None]) ** 2).sum(2).argmin(1)
    return table[x.long()], len(colours)


@torch.no_grad()
def measure(model, x, batch=200):
    return sum(float(model.loss(part)) * len(part) for part in x.split(batch)) / len(x)


def main():
    a = parse()
    torch.manual_seed(a.seed)
    train, test = pictures(f"{a.data}/train-images-idx3-ubyte.gz"), pictures(f"{a.data}/t10k-images-idx3-ubyte.gz")
    if a.test:
        test = test[:a.test]
    if a.kind == "imagegpt":
        (train, colours), (test, _) = to_palette(train, a.palette), to_palette(test, a.palette)
        model = ImageGPT(a, colours)
    else:
        train, test = train.long(), test.long()
        model = ImageTransformer(a)
    train = train[torch.randperm(len(train))].to(a.device)
    held, train, test, model = train[:a.held], train[a.held:], test.to(a.device), model.to(a.device)
    wide = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    adam = torch.optim.AdamW([{"params": wide, "weight_decay": a.decay}, {"params": rest, "weight_decay": 0}], lr=a.rate,
                             betas=(0.9, 0.95), fused=a.device == "cuda")
    autocast = torch.autocast(a.device.split(":")[0], torch.bfloat16)
    order, at, started, curve = torch.randperm(len(train), device=a.device), 0, time.time(), []
    for step in range(a.steps):
        rate = a.rate * (step + 1) / a.warmup if step < a.warmup else \
            a.rate * (0.1 + 0.9 * (1 + math.cos(math.pi * (step - a.warmup) / (a.steps - a.warmup))) / 2)
        for group in adam.param_groups:
            group["lr"] = rate
        if at + a.batch > len(train):
            order, at = torch.randperm(len(train), device=a.device), 0
        x = train[order[at:at + a.batch]]
        at += a.batch
        with autocast:
            loss = model.loss(x)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        if (step + 1) % a.eval_steps == 0 or step + 1 == a.steps:
            with autocast:
                curve.append((step + 1, measure(model, held)))
    seconds = time.time() - started
    if a.curve:
        with open(a.curve, "w", encoding="utf-8") as f:
            f.writelines(f"{step} {loss:.5f}\n" for step, loss in curve)
    nats = measure(model, test)
    print(json.dumps({"kind": a.kind, "torch": torch.__version__, "parameters": sum(p.numel() for p in model.parameters()),
                      "steps": a.steps, "held_out": curve[-1][1], "test_nats": nats, "test_bits": nats / math.log(2),
                      "seconds": round(seconds, 1)}))


if __name__ == "__main__":
    main()
