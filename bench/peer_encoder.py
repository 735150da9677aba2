#!/usr/bin/env python3
"""What `banyan bench train|forward --model bert` measures, by PyTorch with transformers, or by onnxruntime: the same weights (a
directory written with --save), the same tokens, one line of JSON.

  peer_encoder.py forward --model-dir DIR --batch 8 --seq 128 --way eager|compiled|onnx [--dtype bf16] [--device cuda]
  peer_encoder.py train   --model-dir DIR --batch 64 --seq 512 --way eager|compiled ...
  peer_encoder.py embed   --model-dir DIR --texts FILE ...   sentences a second by sentence-transformers' way: mean of the last states
"""
import argparse
import json
import resource
import statistics
import time

import torch


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["train", "forward", "embed"])
    p.add_argument("--model-dir", required=True)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seq", type=int, default=128)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--way", choices=["eager", "compiled", "onnx"], default="eager")
    p.add_argument("--texts")
    return p.parse_args()


class Draw:
    """The generator of banyan bench."""

    def __init__(self, vocab):
        self.state, self.vocab = 1, vocab

    def one(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % self.vocab

    def rows(self, batch, seq):
        tokens, targets = [], []
        for _ in range(batch):
            next = self.one()
            for _ in range(seq):
                tokens.append(next)
                next = self.one()
                targets.append(next)
        return tokens, targets


def wait(o):
    if o.device == "cuda":
        torch.cuda.synchronize()


def report(o, seconds, tokens, **more):
    median = statistics.median(seconds)
    line = {"what": o.what, "peer": o.way, "batch": o.batch, "seq": o.seq, "dtype": o.dtype, "device": o.device,
            "tokens_per_s": tokens / median, "ms_per_step": 1e3 * median, "ms_min": 1e3 * min(seconds),
            "max_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    if o.device == "cuda":
        line["max_gpu_bytes"] = torch.cuda.max_memory_allocated()
    print(json.dumps({**line, **more}))


def train(o):
    from transformers import AutoModelForMaskedLM
    model = AutoModelForMaskedLM.from_pretrained(o.model_dir, attn_implementation="sdpa").to(o.device).train()
    for m in model.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
        if hasattr(m, "dropout_prob"):
            m.dropout_prob = 0.0
    model.config.attention_probs_dropout_prob = 0.0
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-4, betas=(0.9, 0.95), fused=True)
    if o.way == "compiled":
        model = torch.compile(model)
    draw, cells = Draw(model.config.vocab_size), o.batch * o.seq
    hidden = [i for i in range(cells) if i * 3 % 20 < 3]
    seconds, loss = [], None
    for step in range(-o.warmup, o.steps):
        tokens, targets = draw.rows(o.batch, o.seq)
        labels = torch.full((cells,), -100)
        labels[torch.tensor(hidden)] = torch.tensor(targets[:len(hidden)])
        ids = torch.tensor(tokens).view(o.batch, o.seq)
        labels = labels.view(o.batch, o.seq)
        wait(o)
        begin = time.perf_counter()
        ids, labels = ids.to(o.device), labels.to(o.device)
        with torch.autocast(o.device, torch.bfloat16, enabled=o.dtype == "bf16"):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.item()
        wait(o)
        if step >= 0:
            seconds.append(time.perf_counter() - begin)
    report(o, seconds, cells, loss=loss)


def onnx_session(o, model, ids):
    import io

    import onnxruntime
    file = io.BytesIO()
    torch.onnx.export(model, (ids,), file, input_names=["input_ids"], output_names=["y"], dynamo=False)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = o.threads
    session = onnxruntime.InferenceSession(file.getvalue(), settings, providers=["CPUExecutionProvider"])
    return lambda x: session.run(["y"], {"input_ids": x.numpy()})


def forward(o):
    from transformers import AutoModel
    model = AutoModel.from_pretrained(o.model_dir, attn_implementation="sdpa", add_pooling_layer=False).to(o.device).eval()
    if o.dtype == "bf16":
        model = model.to(torch.bfloat16)

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids, return_dict=True).last_hidden_state

    run, seconds = Hidden(), []
    draw = Draw(model.config.vocab_size)
    ids = torch.tensor(draw.rows(o.batch, o.seq)[0]).view(o.batch, o.seq)
    with torch.inference_mode():
        if o.way == "compiled":
            run = torch.compile(run)
        if o.way == "onnx":
            run = onnx_session(o, run, ids)
        for step in range(-o.warmup, o.steps):
            ids = torch.tensor(draw.rows(o.batch, o.seq)[0]).view(o.batch, o.seq)
            wait(o)
            begin = time.perf_counter()
            run(ids.to(o.device))
            wait(o)
            if step >= 0:
                seconds.append(time.perf_counter() - begin)
    report(o, seconds, o.batch * o.seq)


def embed(o):
    from transformers import AutoModel, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(o.model_dir)
    model = AutoModel.from_pretrained(o.model_dir, attn_implementation="sdpa").to(o.device).eval()
    if o.dtype == "bf16":
        model = model.to(torch.bfloat16)
    texts = [line.rstrip("\n") for line in open(o.texts, encoding="utf-8")]
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))  # as sentence-transformers does
    seconds = []
    with torch.inference_mode():
        for step in range(2):
            begin = time.perf_counter()
            for at in range(0, len(order), o.batch):
                part = [texts[i] for i in order[at:at + o.batch]]
                x = tokenizer(part, padding=True, truncation=True, max_length=o.seq, return_tensors="pt").to(o.device)
                h = model(**x).last_hidden_state
                m = x["attention_mask"].unsqueeze(-1).to(h.dtype)
                v = torch.nn.functional.normalize((h * m).sum(1) / m.sum(1))
                v.float().cpu()
            wait(o)
            seconds.append(time.perf_counter() - begin)
    best = min(seconds)
    print(json.dumps({"what": "embed", "peer": "transformers", "texts": len(texts), "seconds": best, "texts_per_s": len(texts) / best}))


if __name__ == "__main__":
    o = parse()
    torch.set_num_threads(o.threads)
    torch.set_float32_matmul_precision("high" if o.device == "cuda" and o.dtype == "bf16" else "highest")
    {"train": train, "forward": forward, "embed": embed}[o.what](o)
