#!/usr/bin/env python3
"""Records what beam search of the reference library (transformers) gives for many settings.

    python tools/beam_reference.py MODEL_DIR > tests/data/beams.json

MODEL_DIR is a causal language model, ../shared/parity/gpt2-lm for the tests. Settings are drawn with a fixed seed. Every case
holds the prompts, the settings under the reference's names, and for every text its new tokens (with the end token, if one
came) and its score.
"""
import json
import random
import sys

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

CASES = 120


def draw_settings(rng, vocab, likely):
    """Settings of one case. `likely` are tokens that the model tends to produce, so that ends and bans matter."""
    width = rng.choice([2, 3, 4, 5, 8])
    settings = {
        "num_beams": width,
        "max_new_tokens": rng.choice([1, 4, 8, 12, 16]),
        "length_penalty": rng.choice([-0.7, 0.0, 0.6, 1.0, 1.0, 2.0]),
        "early_stopping": rng.choice([False, True, "never"]),
        "num_return_sequences": rng.randint(1, width),
        "eos_token_id": rng.choice([None, [2], rng.sample(likely, 2), *(rng.sample(range(vocab), n) for n in (8, 12, 20))]),
    }
    if rng.random() < 0.3:
        settings["min_new_tokens"] = rng.randint(1, settings["max_new_tokens"])
    if rng.random() < 0.3:
        settings["no_repeat_ngram_size"] = rng.choice([1, 2, 3])
    if rng.random() < 0.3:
        settings["repetition_penalty"] = rng.choice([0.8, 1.2, 1.5])
    if rng.random() < 0.3:
        words = [rng.sample(likely, 1), rng.sample(likely, 2), rng.sample(likely, 2), rng.sample(range(vocab), 3)]
        settings["bad_words_ids"] = [w for w in words if w not in [[e] for e in settings["eos_token_id"] or []]]
    if rng.random() < 0.2:
        settings["forced_bos_token_id"] = rng.randrange(vocab)
    if settings["eos_token_id"] and rng.random() < 0.2:
        settings["forced_eos_token_id"] = settings["eos_token_id"][0]
    if rng.random() < 0.15:
        settings["prefix"] = [rng.randrange(vocab) for _ in range(min(rng.randint(1, 3), settings["max_new_tokens"]))]
    return settings


def run(model, prompts, settings):
    kwargs = dict(settings)
    prefix = kwargs.pop("prefix", None)
    width = max(len(p) for p in prompts)
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    if prefix:
        everything = list(range(model.config.vocab_size))
        kwargs["prefix_allowed_tokens_fn"] = lambda _, text: (
            [prefix[len(text) - width]] if len(text) - width < len(prefix) else everything
        )
    model.generation_config = GenerationConfig(pad_token_id=0)
    out = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=False, output_scores=True, return_dict_in_generate=True,
        output_logits=True, **kwargs
    )
    lengths = (out.beam_indices >= 0).sum(dim=1).tolist()
    return [
        {"tokens": row[width : width + n].tolist(), "score": round(float(score), 5)}
        for row, n, score in zip(out.sequences, lengths, out.sequences_scores)
    ]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
    vocab, rng = model.config.vocab_size, random.Random(6)
    cases = []
    for _ in range(CASES):
        prompt = [rng.randrange(3, vocab) for _ in range(rng.choice([1, 1, 3, 9]))]
        with torch.no_grad():
            free = model.generate(torch.tensor([prompt]), do_sample=False, num_beams=4, num_return_sequences=4,
                                  max_new_tokens=12, eos_token_id=None, pad_token_id=0)
        likely = sorted(set(free[:, len(prompt) :].flatten().tolist()))
        settings = draw_settings(rng, vocab, likely if len(likely) > 4 else list(range(5)))
        if len(prompt) > 1:
            settings.pop("forced_bos_token_id", None)  # the reference forces it after a single token alone
        prompts = [prompt]
        # Padding takes part in what looks back at the text: ragged batches do without that.
        if not {"no_repeat_ngram_size", "repetition_penalty", "bad_words_ids", "forced_bos_token_id"} & set(settings):
            prompts += [[rng.randrange(3, vocab) for _ in range(rng.choice([1, 4, 7]))] for _ in range(rng.randint(0, 3))]
        cases.append({"prompts": prompts, "settings": settings, "texts": run(model, prompts, settings)})
    print("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]")


main()
