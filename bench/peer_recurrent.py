#!/usr/bin/env python3
"""What `banyan bench train|forward --model rnn|lstm|gru` measures, by PyTorch: embedding, recurrent layers (cuDNN on a GPU, oneDNN on
a CPU), projection to the vocabulary, cross-entropy, clipping, AdamW; the same shapes, without dropout. One line of JSON.

  peer_recurrent.py train --cell lstm --width 650 --batch 20 --seq 35 --vocab 10000 [--dtype bf16] [--device cuda] [--way compiled]
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["train", "forward", "layer"])
    p.add_argument("--cell", choices=["rnn", "lstm", "gru"], default="lstm")
    p.add_argument("--width", type=int, default=650)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--vocab", type=int, default=10000)
    p.add_argument("--batch", type=int, default=20)
    p.add_argument("--seq", type=int, default=35)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--way", choices=["eager", "compiled"], default="eager")
    p.add_argument("--tf32", action="store_true")
    return p.parse_args()


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.encoder = nn.Embedding(o.vocab, o.width)
        self.rnn = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[o.cell](o.width, o.width, o.layers, batch_first=True)
        self.decoder = nn.Linear(o.width, o.vocab)

    def forward(self, tokens):
        y, _ = self.rnn(self.encoder(tokens))
        return self.decoder(y)


def main():
    o = parse()
    torch.set_num_threads(o.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = o.tf32
    torch.manual_seed(1)
    dtype = torch.bfloat16 if o.dtype == "bf16" else torch.float32
    model = Model(o).to(o.device)
    master = model.parameters()
    optimizer = torch.optim.AdamW(master, lr=1e-4, fused=True)
    run = torch.compile(model) if o.way == "compiled" else model
    tokens = torch.randint(o.vocab, (o.batch, o.seq + 1), device=o.device)

    def step():
        with torch.autocast(o.device, dtype, enabled=o.dtype == "bf16"):
            logits = run(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().view(-1, o.vocab), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss

    def forward():
        with torch.no_grad(), torch.autocast(o.device, dtype, enabled=o.dtype == "bf16"):
            return run(tokens[:, :-1])

    x = torch.randn(o.batch, o.seq, o.width, device=o.device, requires_grad=True)

    def layer():
        """The recurrent layers alone, forward and backward."""
        with torch.autocast(o.device, dtype, enabled=o.dtype == "bf16"):
            y, _ = model.rnn(x)
        y.float().sum().backward()

    work = {"train": step, "forward": forward, "layer": layer}[o.what]
    seconds, cpu = [], []
    for i in range(o.warmup + o.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        work()
        if o.device == "cuda":
            torch.cuda.synchronize()
        if i >= o.warmup:
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - cpu_start)
    tokens_count = o.batch * o.seq
    print(json.dumps({"what": o.what, "model": o.cell, "way": o.way, "torch": torch.__version__, "device": o.device, "dtype": o.dtype,
                      "batch": o.batch, "seq": o.seq, "width": o.width, "ms_per_step": 1e3 * statistics.median(seconds),
                      "ms_min": 1e3 * min(seconds), "cpu_ms_min": 1e3 * min(cpu), "tokens_per_s": tokens_count / statistics.median(seconds)}))


main()
