#!/usr/bin/env python3
"""What `banyan bench train|translate` measures on encoder-decoders, by PyTorch with transformers, or by CTranslate2: the same weights
(a directory written with --save), the same tokens, one line of JSON.

  peer_seq2seq.py train     --model-dir DIR --batch 32 --seq 512 --target 128 --way eager|compiled [--dtype bf16] [--device cuda]
  peer_seq2seq.py translate --model-dir DIR --batch 32 --seq 32 --new-tokens 32 --beams 4 --way eager|ct2 ...
"""
import argparse
import json
import tempfile
import time

import torch
import transformers
from peer_encoder import Draw, report, wait


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["train", "translate"])
    p.add_argument("--model-dir", required=True)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--seq", type=int, default=32)
    p.add_argument("--target", type=int)
    p.add_argument("--new-tokens", type=int, default=32)
    p.add_argument("--beams", type=int, default=4)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--way", choices=["eager", "compiled", "ct2"], default="eager")
    return p.parse_args()


def timed(o, step):
    seconds = []
    for i in range(-o.warmup, o.steps):
        work = step()
        wait(o)
        begin = time.perf_counter()
        work()
        wait(o)
        if i >= 0:
            seconds.append(time.perf_counter() - begin)
    return seconds


def open_model(o):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(o.model_dir, attn_implementation="sdpa" if o.what == "translate" else None)
    for m in model.modules():
        for name in ("p", "dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(m, name, None), float):
                setattr(m, name, 0.0)
    return model.to(o.device)


def train(o):
    model = open_model(o).train()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if o.way == "compiled" else model
    draw, target = Draw(model.config.vocab_size), o.target or o.seq
    last = [None]

    def step():
        ids = torch.tensor([draw.one() for _ in range(o.batch * o.seq)]).view(o.batch, o.seq)
        labels = torch.tensor([draw.one() for _ in range(o.batch * target)]).view(o.batch, target)

        def work():
            x, y = ids.to(o.device), labels.to(o.device)
            with torch.autocast(o.device, torch.bfloat16, enabled=o.dtype == "bf16"):
                loss = run(input_ids=x, labels=y).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            last[0] = loss.item()
        return work

    report(o, timed(o, step), o.batch * (o.seq + target), loss=last[0])


def by_transformers(o, draw):
    model = open_model(o).eval()
    if o.dtype == "bf16":
        model = model.to(torch.bfloat16)

    def translate(rows):
        ids = torch.tensor(rows).to(o.device)
        with torch.inference_mode():
            return model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), num_beams=o.beams, min_new_tokens=o.new_tokens,
                                  max_new_tokens=o.new_tokens, length_penalty=1.0, early_stopping=False).tolist()
    return translate


def by_ctranslate2(o, draw):
    import ctranslate2
    from ctranslate2.converters.transformers import _MODEL_LOADERS
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(o.model_dir)
    c, words = model.config, [f"t{i}" for i in range(model.config.vocab_size)]
    words[c.pad_token_id], words[c.eos_token_id] = "<pad>", "</s>"
    spec = _MODEL_LOADERS["MarianConfig"].get_model_spec(model)
    spec.register_source_vocabulary(words[:-1])  # the converter leaves padding out, the last one
    spec.register_target_vocabulary(words[:-1])
    spec.config.eos_token, spec.config.unk_token, spec.config.decoder_start_token = "</s>", "t2", "</s>"
    spec.config.add_source_eos = False
    spec.validate()
    folder = tempfile.mkdtemp() + "/model"
    import os
    os.makedirs(folder)
    spec.save(folder)
    translator = ctranslate2.Translator(folder, device=o.device, compute_type="bfloat16" if o.dtype == "bf16" else "float32",
                                        inter_threads=1, intra_threads=o.threads)

    def translate(rows):
        out = translator.translate_batch([[words[min(i, len(words) - 2)] for i in r] for r in rows], beam_size=o.beams, length_penalty=1.0,
                                         min_decoding_length=o.new_tokens, max_decoding_length=o.new_tokens, max_batch_size=o.batch)
        return [[words.index(w) for w in x.hypotheses[0][:4]] for x in out]
    return translate


def translate(o):
    config = transformers.AutoConfig.from_pretrained(o.model_dir)
    draw = Draw(config.vocab_size)
    run, first = (by_ctranslate2 if o.way == "ct2" else by_transformers)(o, draw), []

    def step():
        rows = [[draw.one() for _ in range(o.seq)] for _ in range(o.batch)]
        return lambda: first.append(run(rows))

    seconds = timed(o, step)
    report(o, seconds, o.batch * o.new_tokens, beams=o.beams, new_tokens=o.new_tokens, begins=[r[:6] for r in first[0][:2]])


options = parse()
torch.set_num_threads(options.threads)
(train if options.what == "train" else translate)(options)
