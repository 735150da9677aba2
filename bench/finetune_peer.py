#!/usr/bin/env python3
"""finetune_peer.py - what `banyan finetune --task classify` does, done with PyTorch and transformers: the same data, batch
size, learning rate, warm-up, decay, clipping and dropout, so that the accuracies can be compared.

    finetune_peer.py MODEL train.tsv dev.tsv [--epochs 2] [--lr 5e-5] [--batch 32] [--max-length 128] [--seed 1] [--threads 2]

Prints one JSON object. The order of the rows, the values of the new head and the dropout masks differ from banyan's, as
they do between two seeds.
"""
import argparse
import json
import math
import random
import time

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def read(path):
    with open(path, encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    return [r[0] for r in rows], [int(r[-1]) for r in rows]


def batches(order, size):
    return [order[i:i + size] for i in range(0, len(order), size)]


def evaluate(model, encode, texts, labels, size):
    model.eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    right, loss = 0, 0.0
    with torch.no_grad():
        for rows in batches(order, size):
            out = model(**encode([texts[i] for i in rows]), labels=torch.tensor([labels[i] for i in rows]))
            loss += out.loss.item() * len(rows)
            right += sum(int(p) == labels[i] for p, i in zip(out.logits.argmax(-1), rows))
    return right / len(texts), loss / len(texts)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("train")
    p.add_argument("dev")
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=5e-5)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--max-length", type=int, default=128)
    p.add_argument("--warmup", type=float, default=0.1)
    p.add_argument("--weight-decay", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    random.seed(a.seed)
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForSequenceClassification.from_pretrained(a.model, num_labels=2)

    def encode(texts):
        return tokenizer(texts, truncation=True, max_length=a.max_length, padding=True, return_tensors="pt")

    texts, labels = read(a.train)
    dev_texts, dev_labels = read(a.dev)
    plain = [q for n, q in model.named_parameters() if q.dim() < 2]
    decayed = [q for n, q in model.named_parameters() if q.dim() >= 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": a.weight_decay},
                                   {"params": plain, "weight_decay": 0.0}], lr=a.lr, betas=(0.9, 0.999), eps=1e-8)
    per_epoch = math.ceil(len(texts) / a.batch)
    steps = per_epoch * a.epochs
    warmup = math.ceil(a.warmup * steps)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: (s + 1) / warmup if s < warmup else max(0.0, (steps - s) / max(1, steps - warmup)))
    begin, trained, course = time.time(), 0.0, []
    for epoch in range(a.epochs):
        model.train()
        order = list(range(len(texts)))
        random.shuffle(order)
        start = time.time()
        for rows in batches(order, a.batch):
            loss = model(**encode([texts[i] for i in rows]), labels=torch.tensor([labels[i] for i in rows])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            optimizer.zero_grad()
        trained += time.time() - start
        accuracy, dev_loss = evaluate(model, encode, dev_texts, dev_labels, a.batch)
        course.append({"epoch": epoch + 1, "accuracy": round(accuracy, 4), "loss": round(dev_loss, 4)})
    print(json.dumps({"steps": steps, "epochs": course, "ms_per_step": round(1000 * trained / steps, 1),
                      "seconds": round(time.time() - begin, 1)}))


if __name__ == "__main__":
    main()
