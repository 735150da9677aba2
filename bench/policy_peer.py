#!/usr/bin/env python3
"""policy_peer.py make DIR, policy_peer.py run DIR PROMPTS - steps of GRPO by TRL, generation by transformers, to compare with `banyan align
--method grpo`. Needs torch, transformers, trl and datasets.

make writes a GPT-2 with random weights, a tokenizer of words w0, w1_, w2__, ... and DIR/prompts.jsonl, whose prompts have the same number of tokens.
run trains DIR and prints a JSON object: seconds of wall and processor time per step without the first two, tokens per answer, mean reward of the
first and of the last tenth of the steps. An answer ends with the token --end, or without that option after --max-new-tokens. The learning rate is constant."""
import argparse
import json
import os
import random
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
verbs = parser.add_subparsers(dest="verb", required=True)
make = verbs.add_parser("make")
make.add_argument("dir")
for name, preset in (("layers", 12), ("heads", 12), ("width", 768), ("vocab", 50257), ("context", 1024), ("prompt", 64), ("prompts", 1000)):
    make.add_argument("--" + name, type=int, default=preset)
run = verbs.add_parser("run")
run.add_argument("dir")
run.add_argument("prompts")
for name, preset in (("steps", 20), ("batch", 16), ("generations", 8), ("max-new-tokens", 8), ("threads", 1)):
    run.add_argument("--" + name, type=int, default=preset)
run.add_argument("--learning-rate", type=float, default=1e-3)
run.add_argument("--reward", default="sorted", help="sorted or length:N")
run.add_argument("--end", help="text of the token that ends an answer; \\\\n is a line break")
run.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
run.add_argument("--bf16", action="store_true", help="compute in bf16 (autocast)")
run.add_argument("--weights", default="float32", help="type of the weights: float32 or bfloat16")
run.add_argument("--ids", action="store_true", help="print the ids of the first prompt and answer of each step")
args = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(getattr(args, "threads", 1))
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast


def make_model():
    torch.manual_seed(1)
    ids = {"bos_token_id": None, "eos_token_id": None}
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    GPT2LMHeadModel(GPT2Config(vocab_size=args.vocab, n_positions=args.context, n_embd=args.width, n_layer=args.layers,
                               n_head=args.heads, **ids, **drops)).save_pretrained(args.dir)
    words = ["w%d%s" % (i, "_" * (i % 8)) for i in range(args.vocab)]  # of several lengths, so that a reward by length can be learned
    with open(os.path.join(args.dir, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                   "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
                   "model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(words)}, "unk_token": "w0"}}, out)
    with open(os.path.join(args.dir, "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, out)
    draw = random.Random(1)
    with open(os.path.join(args.dir, "prompts.jsonl"), "w", encoding="utf-8") as out:
        for _ in range(args.prompts):
            print(json.dumps({"prompt": " ".join(draw.choices(words, k=args.prompt))}), file=out)


def reward_of(prompt, answer):
    if args.reward == "sorted":
        return float(answer.strip("\n") == "".join(sorted(prompt.rstrip("="))))
    wanted = int(args.reward.split(":")[1])
    return max(0.0, 1 - abs(len(answer) - wanted) / wanted)


def train():
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    torch.set_num_threads(args.threads)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(args.dir, "tokenizer.json"))
    # Without an end token, one that the model does not have: it is never sampled, and prompts of one length need no padding.
    tokenizer.add_special_tokens({"eos_token": args.end.replace("\\n", "\n") if args.end else "<end>"})
    tokenizer.pad_token = tokenizer.eos_token
    marks = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            if args.device == "cuda":
                torch.cuda.synchronize()
            marks.append((time.time(), time.process_time()))

    class Trainer(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids, *rest, **more):
            made = super()._generate_single_turn(prompt_ids, *rest, **more)
            if args.ids:
                print(prompt_ids[0], made[0][0], file=sys.stderr)
            return made

    def reward(prompts, completions, **_):
        return [reward_of(p, c) for p, c in zip(prompts, completions)]

    policy = GPT2LMHeadModel.from_pretrained(args.dir, dtype=getattr(torch, args.weights))
    with open(args.prompts, encoding="utf-8") as lines:
        data = Dataset.from_list([json.loads(line) for line in lines])
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(output_dir=folder, per_device_train_batch_size=args.batch * args.generations,
                            num_generations=args.generations, max_completion_length=args.max_new_tokens,
                            learning_rate=args.learning_rate, lr_scheduler_type="constant", beta=0.0, max_steps=args.steps,
                            report_to=[], save_strategy="no", use_cpu=args.device == "cpu", gradient_checkpointing=False,
                            bf16=args.bf16, logging_steps=1, disable_tqdm=True)
        trainer = Trainer(model=policy, reward_funcs=reward, args=config, train_dataset=data, processing_class=tokenizer,
                          callbacks=[Clock()])
        sys.stdout, out = sys.stderr, sys.stdout
        trainer.train()
        sys.stdout = out
    steps = [h for h in trainer.state.log_history if "reward" in h]
    part = max(len(steps) // 10, 1)

    def mean(name, some):
        return sum(h[name] for h in some) / len(some)

    n = len(marks) - 2
    print(json.dumps({"steps": len(steps), "wall_s": (marks[-1][0] - marks[1][0]) / n, "cpu_s": (marks[-1][1] - marks[1][1]) / n,
                      "tokens": mean("completions/mean_length", steps), "first_reward": mean("reward", steps[:part]),
                      "last_reward": mean("reward", steps[-part:])}))


make_model() if args.verb == "make" else train()
