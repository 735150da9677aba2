#!/usr/bin/env python3
"""What `banyan bench train|forward --model vit|deit` measures, by PyTorch with transformers or by onnxruntime: the same weights (a directory
written with --save), pictures of the same size, one line of JSON.

  peer_vision.py forward --model-dir DIR --batch 1 --way eager|compiled|onnx [--dtype bf16] [--device cuda]
  peer_vision.py train   --model-dir DIR --batch 256 --way eager|compiled [--dtype bf16] [--device cuda]
"""
import argparse
import io
import json
import resource
import statistics
import time

import torch


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["train", "forward"])
    p.add_argument("--model-dir", required=True)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--way", choices=["eager", "compiled", "onnx"], default="eager")
    return p.parse_args()


def wait(o):
    if o.device == "cuda":
        torch.cuda.synchronize()


def report(o, seconds, **more):
    median = statistics.median(seconds)
    line = {"what": o.what, "peer": o.way, "batch": o.batch, "dtype": o.dtype, "device": o.device,
            "pictures_per_s": o.batch / median, "ms_per_step": 1e3 * median, "ms_min": 1e3 * min(seconds),
            "max_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    if o.device == "cuda":
        line["max_gpu_bytes"] = torch.cuda.max_memory_allocated()
    print(json.dumps({**line, **more}))


def open_model(o):
    from transformers import AutoModelForImageClassification
    model = AutoModelForImageClassification.from_pretrained(o.model_dir, attn_implementation="sdpa").to(o.device)
    for m in model.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
    model.config.attention_probs_dropout_prob = 0.0
    return model


class Draw:
    """The pictures of banyan bench: every row of pixels is a ramp from a random start."""

    def __init__(self, o, model):
        self.state, self.side = 1, model.config.image_size
        self.shape = (o.batch, model.config.num_channels, self.side, self.side)

    def pictures(self):
        starts = []
        for _ in range(self.shape[0] * self.shape[1] * self.side):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
            starts.append(self.state >> 33)
        ramps = torch.tensor(starts).unsqueeze(1) + 37 * torch.arange(self.side)
        return ((ramps % 256).float() / 127.5 - 1).view(self.shape)


def timed(o, model, step):
    draw, seconds = Draw(o, model), []
    for i in range(-o.warmup, o.steps):
        x = draw.pictures()
        wait(o)
        begin = time.perf_counter()
        step(x)
        wait(o)
        if i >= 0:
            seconds.append(time.perf_counter() - begin)
    return seconds


def train(o):
    model = open_model(o).train()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if o.way == "compiled" else model
    labels = torch.arange(o.batch) % model.config.num_labels
    last = []

    def step(x):
        with torch.autocast(o.device, torch.bfloat16, enabled=o.dtype == "bf16"):
            logits = run(pixel_values=x.to(o.device)).logits
            loss = torch.nn.functional.cross_entropy(logits.float(), labels.to(o.device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last[:] = [loss.item()]

    report(o, timed(o, model, step), loss=last[0])


def onnx_session(o, model, x):
    import onnxruntime
    file = io.BytesIO()
    torch.onnx.export(model, (x,), file, input_names=["pixel_values"], output_names=["y"], dynamo=False)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = o.threads
    session = onnxruntime.InferenceSession(file.getvalue(), settings, providers=["CPUExecutionProvider"])
    return lambda x: session.run(["y"], {"pixel_values": x.numpy()})


@torch.inference_mode()
def forward(o):
    model = open_model(o).eval()
    if o.way == "onnx":
        step = onnx_session(o, model, Draw(o, model).pictures())
    else:
        type = torch.bfloat16 if o.dtype == "bf16" else torch.float32
        run = torch.compile(model.to(type)) if o.way == "compiled" else model.to(type)

        def step(x):
            run(pixel_values=x.to(o.device, type))
    report(o, timed(o, model, step))


def main():
    o = parse()
    torch.set_num_threads(o.threads)
    {"train": train, "forward": forward}[o.what](o)


main()
