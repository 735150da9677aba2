#!/usr/bin/env python3
"""What `banyan bench` measures, in PyTorch: the same model, the same tokens, the same steps, one line of JSON of the same form.

Every work can be done in several ways (eager or compiled, autocast or bf16 parameters, ...). With --variant best, each is measured in
a process of its own and the fastest one is printed; --compile and --no-compile leave out the others. Needs torch and nothing else, but
for the ways called transformers, which are that library's generate().

The words that ways are made of, beside the plain ones:
  padded   the vocabulary padded to a multiple of 128 with tokens that never come (50304 for 50257)
  cudnn    attention by cuDNN, where scaled_dot_product_attention would have taken its flash kernel
  static   decoding over a cache that has its full length from the start
  graphed  static, and the passes are replayed as a CUDA graph
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
CUDA_VARIANTS = {
    ("train", "f32"): ["eager+fused", "compiled+fused"],
    ("train", "bf16"): ["eager+fused+autocast+padded", "compiled+fused+autocast+padded", "compiled+fused+autocast+padded+cudnn",
                        "compiled+fused+masters+padded"],
    ("decode", "f32"): ["eager", "eager+graphed", "transformers", "transformers+static+compiled"],
    ("decode", "bf16"): ["eager", "eager+graphed", "transformers", "transformers+static+compiled"],
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
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--compile", action=argparse.BooleanOptionalAction, help="only the compiled ways, or only the others")
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
    ways = (CUDA_VARIANTS if o.device == "cuda" else VARIANTS).get((o.what, o.dtype), INFERENCE_VARIANTS)
    for variant in (way for way in ways if o.compile in (None, "compiled" in way)):
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
        fastest["first_token_s"] = min((line["first_token_s"] for line in lines if line.get("first_token_s")), default=None)
    return fastest


def measure(o):
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(o.threads)
    torch.manual_seed(1337)
    words = o.variant.split("+")
    bf16, compiled, cuda = o.dtype == "bf16", "compiled" in words, o.device == "cuda"
    if cuda:
        torch.set_float32_matmul_precision("high")  # TF32
    if "cudnn" in words:
        torch.backends.cuda.enable_cudnn_sdp(True)
        for other in ("flash", "mem_efficient", "math"):
            getattr(torch.backends.cuda, f"enable_{other}_sdp")(False)
    entries = -(-o.vocab // 128) * 128 if "padded" in words else o.vocab  # of the embedding

    def wait():
        if cuda:
            torch.cuda.synchronize()

    def timed(work, *arguments):
        wait()
        begin = time.perf_counter()
        work(*arguments)
        wait()
        return time.perf_counter() - begin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            c = o.width
            self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
            self.c_attn, self.attn_proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
            self.c_fc, self.mlp_proj = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

        def forward(self, x, cache, past, mask):
            b, t, c = x.shape
            q, k, v = (z.view(b, t, o.heads, c // o.heads).transpose(1, 2) for z in self.c_attn(self.ln_1(x)).split(c, dim=2))
            if mask is not None:  # static: one token at the place that the tensor `past` holds, and all of the cache
                cache.index_copy_(3, past, torch.stack((k, v)))
                k, v = cache[0], cache[1]
            elif cache is not None:  # (2, B, H, M, D), written in place
                cache[0, :, :, past:past + t] = k
                cache[1, :, :, past:past + t] = v
                k, v = cache[0, :, :, :past + t], cache[1, :, :, :past + t]
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and t > 1)
            x = x + self.attn_proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(entries, o.width), nn.Embedding(o.context, o.width)
            self.h = nn.ModuleList(Block() for _ in range(o.layers))
            self.ln_f = nn.LayerNorm(o.width)

        def forward(self, tokens, caches=None, past=0, last=False, mask=None):
            places = torch.arange(past, past + tokens.shape[1], device=tokens.device) if mask is None else past
            x = self.wte(tokens) + self.wpe(places)
            for i, block in enumerate(self.h):
                x = block(x, None if caches is None else caches[i], past, mask)
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
                values = values.t() if ".c_" in key and p.dim() == 2 else values
                p[:values.shape[0]].copy_(values)
                p[values.shape[0]:].zero_()  # rows of padding

    def library_model():
        """GPT-2 of transformers, whose generate() does not stop at a token."""
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from transformers import GPT2Config, GPT2LMHeadModel
        if o.model_dir:
            model = GPT2LMHeadModel.from_pretrained(o.model_dir, dtype=kind)
        else:
            model = GPT2LMHeadModel(GPT2Config(vocab_size=o.vocab, n_positions=o.context, n_embd=o.width, n_layer=o.layers,
                                               n_head=o.heads)).to(kind)
        model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
        return model.to(o.device)

    with torch.device("meta"):
        model = GPT2()
    kind = torch.bfloat16 if bf16 and "autocast" not in words else torch.float32
    parameters = sum(p.numel() for p in model.parameters()) - (entries - o.vocab) * o.width
    model = library_model() if "transformers" in words else model.to(kind).to_empty(device=o.device)
    if "transformers" in words:
        assert o.what == "decode", "transformers is for decode"
    elif o.model_dir:
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
        masters = [p.detach().float().requires_grad_() for p in weights] if "masters" in words else weights
        groups = [{"params": [p for p in masters if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in masters if p.dim() <= 1], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8,
                                      **{"fused" if "fused" in words else "foreach": True})

        def loss_of(x, y):
            with torch.autocast(o.device, torch.bfloat16, enabled="autocast" in words):
                logits = model(x)
            return F.cross_entropy(logits.float().view(-1, entries), y.view(-1))

        forward = torch.compile(loss_of) if compiled else loss_of

        def step(x, y):
            begin = time.perf_counter()
            loss = forward(x.to(o.device), y.to(o.device))
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
            wait()
            return time.perf_counter() - begin
    else:
        model.requires_grad_(False).eval()
        if compiled and not cuda:
            import torch._inductor.config
            torch._inductor.config.freezing = True  # packs the weights for oneDNN
        forward = torch.compile(model) if compiled and "transformers" not in words else model

    if o.what in ("prefill", "decode") and "transformers" not in words:
        room = o.seq + (o.new_tokens - 1 if o.what == "decode" else 0)
        room = -(-room // 8) * 8  # fast attention over all of it wants whole eights
        caches = [torch.zeros(2, o.batch, o.heads, room, o.width // o.heads, dtype=kind, device=o.device) for _ in range(o.layers)]

    if o.what == "forward":
        def step(x, _):
            return timed(lambda: forward(x.to(o.device)))
    elif o.what == "prefill":
        flops_per_token -= 2 * o.vocab * o.width * (1 - 1 / o.seq)

        def step(x, _):
            return timed(lambda: forward(x.to(o.device), caches, 0, True))
    elif o.what == "decode":
        passes = o.new_tokens - 1
        tokens_per_step = o.batch * passes
        flops_per_token = flops(o.seq + passes / 2)

        def all_at_once(x, _):  # prompt included; its time is taken off in the end
            wait()
            begin = time.perf_counter()
            text = write(x, o.new_tokens)
            wait()
            seconds = time.perf_counter() - begin
            result.setdefault("token_sum", int(text[:, o.seq:].sum()))
            return seconds

        def write(x, n):
            x = x.to(o.device)
            cache = {"cache_implementation": "static"} if "static" in words else {}  # which generate() compiles on a GPU
            return model.generate(x, attention_mask=torch.ones_like(x), do_sample=False, max_new_tokens=n, **cache)

        def one_by_one(x, _):
            token = model(x.to(o.device), caches, 0, True).argmax(-1)  # (B, 1)
            token[0, 0].item()
            wait()
            begin = time.perf_counter()
            if "first_token_s" not in result:
                result["first_token_s"] = begin - STARTED if o.model_dir else None
            text = go_on(token)
            wait()
            seconds = time.perf_counter() - begin
            result.setdefault("token_sum", int(text.sum()))
            return seconds

        def go_on(token):
            text = [token]
            for past in range(o.seq, o.seq + passes):
                token = forward(token, caches, past, True).argmax(-1)
                text.append(token)
            return torch.cat(text)

        def go_on_static(token):
            fixed["token"].copy_(token)
            fixed["place"].fill_(o.seq)
            fixed["text"][:, :1] = token
            for _ in range(passes):
                replay()
            return fixed["text"]

        def one_pass():
            place, text, token = fixed["place"], fixed["text"], fixed["token"]
            mask = (torch.arange(room, device=o.device) <= place).view(1, 1, 1, room)
            token.copy_(forward(token, caches, place, True, mask).argmax(-1))
            place += 1
            text.index_copy_(1, place - o.seq, token)

        def captured(work):
            """The work as a CUDA graph; elsewhere the work itself, to try it."""
            if not cuda:
                return work
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    fixed["place"].fill_(o.seq)
                    work()
            fixed["place"].fill_(o.seq)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                work()
            return graph.replay

        step = all_at_once if "transformers" in words else one_by_one
        if "static" in words and "transformers" not in words or "graphed" in words:
            go_on = go_on_static
            fixed = {"token": torch.zeros(o.batch, 1, dtype=torch.long, device=o.device),
                     "place": torch.full((1,), o.seq, device=o.device),
                     "text": torch.zeros(o.batch, passes + 1, dtype=torch.long, device=o.device)}
            with torch.no_grad():
                replay = captured(one_pass) if "graphed" in words else one_pass

    def peak():
        n = (8192 if bf16 else 4096) if cuda else 1024
        a, b = (torch.rand(n, n, device=o.device).mul(2).sub(1).to(torch.bfloat16 if bf16 else torch.float32) for _ in range(2))
        return 2 * n**3 / min([timed(torch.matmul, a, b) for _ in range(6)][1:])

    with torch.set_grad_enabled(o.what == "train"):
        for _ in range(o.warmup):
            step(*draw_rows())
        if cuda:
            torch.cuda.reset_peak_memory_stats()  # compiling may have taken more
        seconds = [step(*draw_rows()) for _ in range(o.steps)]
        if "transformers" in words:
            x = draw_rows()[0]
            prompt = min(timed(write, x, 1) for _ in range(3))
            seconds = [s - prompt for s in seconds]
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if cuda:
            result.update(device_bytes=torch.cuda.max_memory_allocated(), reserved_bytes=torch.cuda.max_memory_reserved())
        top = peak()
    median = statistics.median(seconds)
    rate = tokens_per_step / median
    where = f"torch {torch.__version__}, {torch.cuda.get_device_name() if cuda else f'cpu, {o.threads} threads'}"
    line = {"what": o.what, "model": "gpt2", "parameters": parameters}
    line.update({name: getattr(o, name) for name in ("layers", "heads", "width", "context", "vocab", "batch", "seq")})
    if o.what == "decode":
        line["new_tokens"] = o.new_tokens
    line.update(dtype=o.dtype, device=where, variant=o.variant, threads=o.threads,
                steps=o.steps, tokens_per_s=rate, ms_per_step=1e3 * median / passes, ms_min=1e3 * min(seconds) / passes,
                flops_per_s=rate * flops_per_token, peak_flops_per_s=top, peak_share=rate * flops_per_token / top,
                max_rss_bytes=rss, **result)
    assert math.isfinite(line.get("loss", 0)), "the loss is not finite"
    return line


if __name__ == "__main__":
    settings = parse()
    print(json.dumps(best(settings) if settings.variant == "best" else measure(settings), separators=(",", ":")))
