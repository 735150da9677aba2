#!/usr/bin/env python3
"""Record the cases upscale-2d and upscale-dmol of tests/data/verify: tiny Image Transformers (Parmar et al. 2018, section 5.3) that
enlarge pictures, written down here in PyTorch once more, with their outputs and gradients. `banyan verify DIR` compares. Needs torch
and safetensors; neither the build nor the tests run this.

usage: tools/record_upscale.py [OUT]     (OUT: tests/data/verify)
"""
import json
import math
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

COMMON = {"model_type": "image-transformer", "architectures": ["ImageTransformerForCausalImageModeling"], "image_height": 4,
          "image_width": 4, "num_channels": 3, "hidden_size": 8, "num_hidden_layers": 2, "encoder_layers": 2, "upscale_factor": 2,
          "num_attention_heads": 2, "intermediate_size": 12, "hidden_act": "relu", "layer_norm_eps": 1e-6, "dropout": 0.0,
          "scale_embedding": False}
CASES = {
    "upscale-2d": COMMON | {"hidden_size": 4, "output_distribution": "categorical", "attention_blocks": "2d", "query_block_height": 2,
                            "query_block_width": 4, "memory_height": 1, "memory_width": 2, "position_encoding": "sinusoidal"},
    "upscale-dmol": COMMON | {"output_distribution": "dmol", "attention_blocks": "1d", "query_block_length": 5, "memory_length": 3,
                              "num_mixtures": 2, "position_encoding": "learned"},
}


class Parameters:
    """Tensors by name, drawn when they are first asked for."""

    def __init__(self, seed):
        self.all, self.generator = {}, torch.Generator().manual_seed(seed)

    def get(self, name, *shape, spread=0.4, mean=0.0):
        if name not in self.all:
            values = mean + spread * torch.randn(shape, generator=self.generator)
            self.all[name] = values.float().double().requires_grad_()
        return self.all[name]


def norm(p, name, x, eps):
    width = x.shape[-1]
    weight, bias = p.get(name + ".weight", width, spread=0.1, mean=1.0), p.get(name + ".bias", width, spread=0.1)
    return F.layer_norm(x, (width,), weight, bias, eps)


def attention(p, name, c, x, memory, allowed):
    """allowed (T, S): what a query sees; None: all. Returns the result and the weights."""
    width, heads = c["hidden_size"], c["num_attention_heads"]

    def split(part, of):
        y = of @ p.get(f"{name}.{part}_proj.weight", width, width).T
        return y.view(*y.shape[:2], heads, width // heads).transpose(1, 2)

    q, k, v = split("q", x), split("k", memory), split("v", memory)
    scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    weights = scores.softmax(-1)
    y = (weights @ v).transpose(1, 2).reshape(x.shape)
    return y @ p.get(f"{name}.out_proj.weight", width, width).T, weights


def layer(p, name, c, x, memory, allowed, seen):
    eps, width, inner = c["layer_norm_eps"], c["hidden_size"], c["intermediate_size"]
    y, own = attention(p, name + ".self_attn", c, x, x, allowed)
    x = norm(p, name + ".self_attn_layer_norm", x + y, eps)
    seen["own"].append(own)
    if memory is not None:
        y, cross = attention(p, name + ".encoder_attn", c, x, memory, None)
        x = norm(p, name + ".encoder_attn_layer_norm", x + y, eps)
        seen["cross"].append(cross)
    y = x @ p.get(name + ".fc1.weight", inner, width).T + p.get(name + ".fc1.bias", inner)
    y = y.relu() @ p.get(name + ".fc2.weight", width, inner).T + p.get(name + ".fc2.bias", width)
    return norm(p, name + ".final_layer_norm", x + y, eps)


def coordinates(p, name, c, rows, columns):
    """(rows * columns, C), in raster order."""
    half = c["hidden_size"] // 2
    if c["position_encoding"] == "learned":
        parts = [p.get(f"{name}.{k}_embeddings.weight", n, half) for k, n in (("row", rows), ("column", columns))]
    else:
        parts = []
        for n in (rows, columns):
            angle = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, half, 2)[None] / half)
            parts.append(torch.stack((angle.sin(), angle.cos()), -1).reshape(n, half))
    row, column = parts
    return torch.cat((row[:, None].expand(rows, columns, half), column[None].expand(rows, columns, half)), -1).reshape(-1, 2 * half)


def embed(p, name, c, pixels):
    """pixels (B, N, channels) -> (B, positions, C)"""
    width, channels = c["hidden_size"], c["num_channels"]
    if c["output_distribution"] == "dmol":
        x = pixels / 127.5 - 1
        return x @ p.get(name + ".embed_pixels.weight", width, channels).T + p.get(name + ".embed_pixels.bias", width)
    table = p.get(name + ".embed_tokens.weight", channels * 256, width, spread=1.0)
    return table[(pixels + 256 * torch.arange(channels)).flatten(1)]


def order(c, columns):
    """The raster's places as they are generated, and allowed (T, T) by turn."""
    rows, places = c["image_height"], []
    if c["attention_blocks"] == "1d":
        n = rows * columns
        block, memory = c["query_block_length"], c["memory_length"]
        return list(range(n)), torch.tensor([[t // block * block - memory <= s <= t for s in range(n)] for t in range(n)])
    high, wide = c["query_block_height"], c["query_block_width"]
    for top in range(0, rows, high):
        for left in range(0, columns, wide):
            places += [(top + y) * columns + left + x for y in range(high) for x in range(wide)]

    def sees(t, s):
        top, left = t // columns // high * high, t % columns // wide * wide
        return (places.index(s) <= places.index(t) and top - c["memory_height"] <= s // columns < top + high
                and left - c["memory_width"] <= s % columns < left + wide + c["memory_width"])

    return places, torch.tensor([[sees(t, s) for s in places] for t in places])


def mixture_nats(logits, pixels, k):
    """Salimans et al. 2017: -ln p of every pixel, three channels."""
    x = (pixels / 127.5 - 1).unsqueeze(-1)  # (B, N, 3, 1)
    mix, rest = logits[..., :k], logits[..., k:].view(*logits.shape[:2], 3, 3 * k)
    mean, scale, mixed = rest[..., :k], rest[..., k:2 * k].clamp(min=-7), rest[..., 2 * k:].tanh()
    red, green = x[:, :, 0], x[:, :, 1]
    mean = torch.stack((mean[:, :, 0], mean[:, :, 1] + mixed[:, :, 0] * red,
                        mean[:, :, 2] + mixed[:, :, 1] * red + mixed[:, :, 2] * green), 2)
    inverse = (-scale).exp()
    upper, lower, middle = inverse * (x - mean + 1 / 255), inverse * (x - mean - 1 / 255), inverse * (x - mean)
    mass = upper.sigmoid() - lower.sigmoid()
    density = middle - scale - 2 * F.softplus(middle) - math.log(127.5)
    inside = torch.where(mass > 1e-5, mass.clamp(min=1e-12).log(), density)
    log_p = torch.where(x < -0.999, F.logsigmoid(upper), torch.where(x > 0.999, -F.softplus(lower), inside))
    return -(log_p.sum(2) + mix.log_softmax(-1)).logsumexp(-1)


def run(p, c, tokens):
    """tokens (B, H * W * channels). Returns the outputs."""
    batch, height, width, channels = len(tokens), c["image_height"], c["image_width"], c["num_channels"]
    mixture, factor = c["output_distribution"] == "dmol", c["upscale_factor"]
    pixels = tokens.view(batch, height * width, channels)
    squares = tokens.view(batch, height // factor, factor, width // factor, factor, channels)
    low = (squares.sum((2, 4)) + factor * factor // 2) // (factor * factor)
    per = 1 if mixture else channels
    seen = {"own": [], "cross": []}
    memory = embed(p, "model.encoder", c, low.view(batch, -1, channels))
    memory = memory + coordinates(p, "model.encoder", c, height // factor, width // factor * per)
    out = {"encoder_hidden_states.0": memory}
    for i in range(c["encoder_layers"]):
        memory = layer(p, f"model.encoder.layers.{i}", c, memory, None, None, seen)
        out[f"encoder_hidden_states.{i + 1}"] = memory
    out |= {f"encoder_attentions.{i}": w for i, w in enumerate(seen["own"])}
    seen["own"].clear()
    places, allowed = order(c, width * per)
    back = torch.tensor([places.index(i) for i in range(len(places))])
    x = embed(p, "model", c, pixels)[:, places]
    x = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1) + coordinates(p, "model", c, height, width * per)[places]
    out["hidden_states.0"] = x[:, back]
    for i in range(c["num_hidden_layers"]):
        x = layer(p, f"model.layers.{i}", c, x, memory, allowed, seen)
        out[f"hidden_states.{i + 1}"] = x[:, back]
    out |= {f"cross_attentions.{i}": w for i, w in enumerate(seen["cross"])}
    k = c.get("num_mixtures", 0)
    count = 10 * k if mixture else 256
    out["logits"] = x[:, back] @ p.get("lm_head.weight", count, c["hidden_size"]).T
    if not mixture:
        out["loss"] = F.cross_entropy(out["logits"].flatten(0, 1), tokens.flatten())
        return out
    out["logits"] = out["logits"] + p.get("lm_head.bias", count)
    out["pixel_losses"] = mixture_nats(out["logits"], pixels, k)
    out["loss"] = out["pixel_losses"].mean() / channels
    return out


def record(name, c, folder, seed):
    p = Parameters(seed)
    count = c["image_height"] * c["image_width"] * c["num_channels"]
    tokens = torch.randint(0, 256, (2, count), generator=torch.Generator().manual_seed(seed + 1))
    tokens[0, :7] = torch.tensor([0, 255, 0, 255, 255, 0, 1])
    out = run(p, c, tokens)
    out["loss"].backward()
    os.makedirs(folder, exist_ok=True)
    tensors = {"input.input_ids": tokens}
    tensors |= {f"output.{k}": v.detach().float().contiguous() for k, v in out.items()}
    tensors |= {f"grad.{k}": v.grad.float() for k, v in p.all.items()}
    save_file(tensors, os.path.join(folder, "reference.safetensors"))
    save_file({k: v.detach().float() for k, v in p.all.items()}, os.path.join(folder, "model.safetensors"))
    case = {"class": c["architectures"][0], "family": c["model_type"], "scalar_inputs": {}, "generate": {}, "note": "",
            "made_with": f"torch {torch.__version__.split('+')[0]}"}
    for file, content in (("config.json", c), ("case.json", case)):
        with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
            json.dump(content, f, indent=1)
            f.write("\n")
    print(f"{folder}: {len(tensors)} tensors")


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)  # differences of sigmoids lose digits
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/data/verify")
    for number, (each, config) in enumerate(CASES.items()):
        record(each, config, os.path.join(target, each), 41 + 2 * number)
