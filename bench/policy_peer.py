#!/usr/bin/env python3
"""policy_peer.py MODEL PROMPTS [STEPS] - steps of GRPO by TRL, with the model, prompts and settings of bench/policy_sort.sh: 16 prompts, 8
answers each, at most 8 tokens, one update. Prints seconds of wall and processor time per step, without the first two. Needs torch,
transformers, trl and datasets. THREADS (1)."""
import json
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ.get("THREADS", "1")
import torch
from datasets import Dataset
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
model, prompts = sys.argv[1:3]
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 12
tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(model, "tokenizer.json"), eos_token="\n", pad_token="=")


def is_sorted(prompts, completions, **_):
    return [float(c.strip("\n") == "".join(sorted(p.rstrip("=")))) for p, c in zip(prompts, completions)]


class Clock(TrainerCallback):
    marks = []

    def on_step_end(self, *_, **__):
        self.marks.append((time.time(), time.process_time()))


policy = GPT2LMHeadModel.from_pretrained(model)
policy.generation_config.eos_token_id = tokenizer.eos_token_id
policy.generation_config.pad_token_id = tokenizer.pad_token_id
with open(prompts, encoding="utf-8") as lines:
    data = Dataset.from_list([json.loads(line) for line in lines])
config = GRPOConfig(output_dir=os.path.join("/tmp", "policy-peer"), per_device_train_batch_size=128, num_generations=8,
                    max_completion_length=8, learning_rate=1e-3, beta=0.0, max_steps=steps, report_to=[], save_strategy="no",
                    use_cpu=True, gradient_checkpointing=False, bf16=False, logging_steps=steps, disable_tqdm=True)
trainer = GRPOTrainer(model=policy, reward_funcs=is_sorted, args=config, train_dataset=data, processing_class=tokenizer,
                      callbacks=[Clock()])
trainer.train()
marks = Clock.marks[1:]
n = len(marks) - 1
print(json.dumps({"steps": n, "wall_s": (marks[-1][0] - marks[0][0]) / n, "cpu_s": (marks[-1][1] - marks[0][1]) / n,
                  "reward": [h["reward"] for h in trainer.state.log_history if "reward" in h][-1]}))
