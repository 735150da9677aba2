"""The peer of bench/vit.sh: a Vision Transformer by onnxruntime.
    peer_vit.py make DIR PRESET      writes a model with random weights (base, small) and its graph, DIR/model.onnx
    peer_vit.py run DIR BATCH THREADS STEPS
Prints the line of bench/vit_forward.c. Needs torch, transformers, onnx and onnxruntime."""
import json
import sys
import time

import numpy as np

SHAPES = {"base": (12, 12, 768), "small": (12, 6, 384), "tiny": (12, 3, 192)}


def make(folder, preset):
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    layers, heads, width = SHAPES[preset]
    torch.manual_seed(1)
    config = ViTConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width, num_labels=1000)
    model = ViTForImageClassification(config).eval()
    torch.nn.init.normal_(model.classifier.weight, std=0.02)
    model.save_pretrained(folder)
    model.config.return_dict = False
    pixels = torch.zeros(2, 3, 224, 224)
    torch.onnx.export(model, (pixels,), folder + "/model.onnx", input_names=["pixel_values"], output_names=["logits"],
                      dynamic_axes={"pixel_values": {0: "batch"}, "logits": {0: "batch"}}, opset_version=17, dynamo=False)


def pixels_of(batch):
    n, state = batch * 3 * 224 * 224, np.uint64(1)
    out = np.empty(n, np.float32)
    a, c = 6364136223846793005, 1442695040888963407
    state = 1
    for i in range(n):
        state = (state * a + c) & 0xFFFFFFFFFFFFFFFF
        out[i] = (state >> 40) / 8388608.0 - 1
    return out.reshape(batch, 3, 224, 224)


def run(folder, batch, threads, steps):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(folder + "/model.onnx", options, providers=["CPUExecutionProvider"])
    pixels = pixels_of(batch)
    walls, cpus = [], []
    for i in range(-3, steps):
        begin, used = time.perf_counter(), time.process_time()
        logits = session.run(None, {"pixel_values": pixels})[0]
        if i >= 0:
            walls.append(time.perf_counter() - begin)
            cpus.append(time.process_time() - used)
    walls.sort()
    print(json.dumps({"ms": round(1e3 * walls[steps // 2], 2), "ms_least": round(1e3 * walls[0], 2),
                      "cpu_ms_least": round(1e3 * min(cpus), 2), "sum": round(float(np.abs(logits).sum()), 3)}))


if sys.argv[1] == "make":
    make(*sys.argv[2:])
else:
    run(sys.argv[2], *map(int, sys.argv[3:]))
