#!/usr/bin/env python3
"""What `banyan bench` measures, in PyTorch: the same model, the same tokens, the same steps, one line of JSON of the same form.

Every work can be done in several ways (eager or compiled, autocast or bf16 parameters, ...). With --variant best, each is measured in
a process of its own and the fastest one is printed. Needs torch and nothing else.
"""
import time

STARTED = time.perf_counter()

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys

VARIANTS = {  # (work, dtype): ways to do it
    ("train", "f32"): ["eager+foreach", "eager+fused", "compiled+fused"],
    ("train", "bf16"): ["eager+fused+autocast", "eager+fused+masters", "compiled+fused+autocast", "compiled+fused+masters"],
}
INFERENCE_VARIANTS = ["eager", "compiled"]
DEFAULTS = {  # batch, seq, steps, warmup
    "train": (4, 64, 10, 2), "forward": (4, 64, 10, 2), "prefill": (1, 512, 10, 2), "decode": (1, 64, 3, 1),
}


def parse():
    p = argparse.ArgumentParser(description="the works of banyan bench, in PyTorch")
    p.add_argument("what", choices=sorted(DEFAULTS))
    for name, value in (("layers", 12), ("heads", 12), ("width", 768), ("context", 1024), ("vocab", 50257)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--model-dir", help="config.json and model.safetensors of a GPT-2")
    for name in ("batch", "steps", "warmup"):
        p.add_argument("--" + name, type=int)
    p.add_argument("--seq", "--prompt", dest="seq", type=int)
    p.add_argument("--new-tokens", type=int, default=256)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--variant", default="best")
    o = p.parse_args()
    for name, value in zip(("batch", "seq", "steps", "warmup"), DEFAULTS[o.what]):
        if getattr(o, name) is None:
            setattr(o, name, value)
    if o.model_dir:
        with open(os.path.join(o.model_dir, "config.json")) as f:
            c = json.load(f)
        o.layers, o.heads, o.width = c["n_layer"], c["n_head"], c["n_embd"]
        o.context, o.vocab = c["n_positions"], c["vocab_size"]
    return o


def best(o):
    """Measure every variant in its own process; this one never loads torch, so that its memory does not count as theirs."""
    lines = []
    for variant in VARIANTS.get((o.what, o.dtype), INFERENCE_VARIANTS):
        run = subprocess.run([sys.executable, *sys.argv, "--variant", variant], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if run.returncode == 0:
            lines.append(json.loads(run.stdout.splitlines()[-1]))
            print(f"torch {o.what} {o.dtype} {variant}: {lines[-1]['tokens_per_s']:.1f} tokens/s", file=sys.stderr)
        else:
            reason = (run.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"torch {o.what} {o.dtype} {variant}: failed: {reason}", file=sys.stderr)
    if not lines:
        sys.exit("no variant worked")
    fastest = max(lines, key=lambda line: line["tokens_per_s"])
    if "first_token_s" in fastest:  # compiling makes the first token late: take the earliest of all
        fastest["first_token_s"] = min((line["first_token_s"] for line in lines if line["first_token_s"]), default=None)
    return fastest


def measure(o):
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(o.threads)
    torch.manual_seed(1337)
    bf16, compiled = o.dtype == "bf16", "compiled" in o.variant

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            c = o.width
            self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
            self.c_attn, self.attn_proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
            self.c_fc, self.mlp_proj = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

        def forward(self, x, cache, past):
            b, t, c = x.shape
            q, k, v = (z.view(b, t, o.heads, c // o.heads).transpose(1, 2) for z in self.c_attn(self.ln_1(x)).split(c, dim=2))
            if cache is not None:  # (2, B, H, M, D), written in place
                cache[0, :, :, past:past + t] = k
                cache[1, :, :, past:past + t] = v
                k, v = cache[0, :, :, :past + t], cache[1, :, :, :past + t]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
            x = x + self.attn_proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(o.vocab, o.width), nn.Embedding(o.context, o.width)
            self.h = nn.ModuleList(Block() for _ in range(o.layers))
            self.ln_f = nn.LayerNorm(o.width)

        def forward(self, tokens, caches=None, past=0, last=False):
            x = self.wte(tokens) + self.wpe(torch.arange(past, past + tokens.shape[1]))
            for i, block in enumerate(self.h):
                x = block(x, None if caches is None else caches[i], past)
            x = self.ln_f(x[:, -1:] if last else x)
            return F.linear(x, self.wte.weight)

    def load(model, directory):
        """model.safetensors: the length of a JSON header, the header, the data. GPT-2's projections are stored (in, out)."""
        path = os.path.join(directory, "model.safetensors")
        with open(path, "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(size))
        data = torch.from_file(path, size=os.path.getsize(path), dtype=torch.uint8)[8 + size:]
        with torch.no_grad():
            for name, p in model.named_parameters():
                key = name.replace("attn_proj", "attn.c_proj").replace("mlp_proj", "mlp.c_proj")
                key = key.replace("c_attn", "attn.c_attn").replace("c_fc", "mlp.c_fc")
                entry = header.get("transformer." + key) or header[key]
                begin, end = entry["data_offsets"]
                kind = {"F32": torch.float32, "BF16": torch.bfloat16}[entry["dtype"]]
                values = data[begin:end].clone().view(kind).view(entry["shape"])
                p.copy_(values.t() if ".c_" in key and p.dim() == 2 else values)

    with torch.device("meta"):
        model = GPT2()
    kind = torch.bfloat16 if bf16 and "autocast" not in o.variant else torch.float32
    model = model.to(kind).to_empty(device="cpu")
    parameters = sum(p.numel() for p in model.parameters())
    if o.model_dir:
        load(model, o.model_dir)
    else:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.normal_(std=0.02) if p.dim() > 1 else p.fill_(float("ln" in name and "weight" in name))

    # ---- the tokens that banyan bench draws

    state = 1

    def draw_rows():
        nonlocal state
        rows = []
        for _ in range(o.batch * (o.seq + 1)):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            rows.append((state >> 33) % o.vocab)
        rows = torch.tensor(rows).view(o.batch, o.seq + 1)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    # ---- the works: each returns the seconds that count

    result = {}
    tokens_per_step, passes = o.batch * o.seq, 1

    def flops(seen):
        return 2 * parameters + 4 * o.layers * o.width * seen

    flops_per_token = flops(o.seq)
    if o.what == "train":
        flops_per_token *= 3
        weights = list(model.parameters())
        masters = [p.detach().float().requires_grad_() for p in weights] if "masters" in o.variant else weights
        groups = [{"params": [p for p in masters if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in masters if p.dim() <= 1], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8,
                                      **{"fused" if "fused" in o.variant else "foreach": True})

        def loss_of(x, y):
            with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in o.variant):
                logits = model(x)
            return F.cross_entropy(logits.float().view(-1, o.vocab), y.view(-1))

        forward = torch.compile(loss_of) if compiled else loss_of

        def step(x, y):
            begin = time.perf_counter()
            loss = forward(x, y)
            loss.backward()
            if masters is not weights:
                for m, p in zip(masters, weights):
                    m.grad = p.grad.float()
                    p.grad = None
            torch.nn.utils.clip_grad_norm_(masters, 1.0)
            optimizer.step()
            if masters is not weights:
                with torch.no_grad():
                    torch._foreach_copy_(weights, masters)
            optimizer.zero_grad(set_to_none=True)
            result["loss"] = loss.item()
            return time.perf_counter() - begin
    else:
        model.requires_grad_(False).eval()
        if compiled:
            import torch._inductor.config
            torch._inductor.config.freezing = True  # packs the weights for oneDNN
        forward = torch.compile(model) if compiled else model

    if o.what in ("prefill", "decode"):
        room = o.seq + (o.new_tokens - 1 if o.what == "decode" else 0)
        caches = [torch.zeros(2, o.batch, o.heads, room, o.width // o.heads, dtype=kind) for _ in range(o.layers)]

    if o.what == "forward":
        def step(x, _):
            begin = time.perf_counter()
            forward(x)
            return time.perf_counter() - begin
    elif o.what == "prefill":
        flops_per_token -= 2 * o.vocab * o.width * (1 - 1 / o.seq)

        def step(x, _):
            begin = time.perf_counter()
            forward(x, caches, 0, True)
            return time.perf_counter() - begin
    elif o.what == "decode":
        passes = o.new_tokens - 1
        tokens_per_step = o.batch * passes
        flops_per_token = flops(o.seq + passes / 2)

        def step(x, _):
            token = model(x, caches, 0, True).argmax(-1)  # (B, 1)
            text = [token]
            token[0, 0].item()
            begin = time.perf_counter()
            if "first_token_s" not in result:
                result["first_token_s"] = begin - STARTED if o.model_dir else None
            for past in range(o.seq, o.seq + passes):
                token = forward(token, caches, past, True).argmax(-1)
                text.append(token)
            seconds = time.perf_counter() - begin
            result.setdefault("token_sum", int(torch.cat(text).sum()))
            return seconds

    def peak():
        a, b = (torch.full((1024, 1024), 0.5, dtype=torch.bfloat16 if bf16 else torch.float32) for _ in range(2))
        times = []
        for _ in range(6):
            begin = time.perf_counter()
            a @ b
            times.append(time.perf_counter() - begin)
        return 2 * 1024**3 / min(times[1:])

    with torch.set_grad_enabled(o.what == "train"):
        seconds = [step(*draw_rows()) for _ in range(o.warmup + o.steps)][o.warmup:]
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        top = peak()
    median = statistics.median(seconds)
    rate = tokens_per_step / median
    line = {"what": o.what, "model": "gpt2", "parameters": parameters}
    line.update({name: getattr(o, name) for name in ("layers", "heads", "width", "context", "vocab", "batch", "seq")})
    if o.what == "decode":
        line["new_tokens"] = o.new_tokens
    line.update(dtype=o.dtype, device=f"torch {torch.__version__}, cpu, {o.threads} threads", variant=o.variant, threads=o.threads,
                steps=o.steps, tokens_per_s=rate, ms_per_step=1e3 * median / passes, ms_min=1e3 * min(seconds) / passes,
                flops_per_s=rate * flops_per_token, peak_flops_per_s=top, peak_share=rate * flops_per_token / top,
                max_rss_bytes=rss, **result)
    assert math.isfinite(line.get("loss", 0)), "the loss is not finite"
    return line


if __name__ == "__main__":
    settings = parse()
    print(json.dumps(best(settings) if settings.variant == "best" else measure(settings), separators=(",", ":")))
