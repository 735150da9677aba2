#!/usr/bin/env python3
"""compare_trl.py - `banyan align` beside TRL itself: losses and gradient norms of five steps on a tiny random model.

Needs torch, transformers, datasets and trl; banyan does not. All examples are one batch, so that their order does not matter.
Completions begin with a space: of a token that has the end of the prompt and the beginning of the completion, TRL makes two.

    tools/compare_trl.py build/banyan [NAME...]
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
STEPS, ROWS, RATE = 5, 6, 1e-3

PAIRS = [{"prompt": f"say {i}:", "chosen": f" it is {i}.", "rejected": " no" * (1 + i % 4)} for i in range(ROWS)]
MARGINS = [pair | {"margin": 0.2 * i} for i, pair in enumerate(PAIRS)]
ANSWERS = [{"prompt": f"say {i}:", "completion": f" it is {i}." * (1 + i % 3)} for i in range(ROWS)]
JUDGED = [{"prompt": f"say {i}:", "completion": f" it is {i}.", "label": bool(i % 3)} for i in range(ROWS)]

# name: method, data, members of TRL's configuration, options of banyan
CASES = {
    "sft": ("sft", ANSWERS, {}, ""),
    "sft-dynamic": ("sft", ANSWERS, {"loss_type": "dft"}, "--dynamic"),
    "sft-prompts": ("sft", ANSWERS, {"completion_only_loss": False}, "--learn-prompts"),
    "sft-packed": ("sft", ANSWERS, {"packing": True, "max_length": 48}, "--pack --max-length 48"),
    "sft-beginning": ("sft", ANSWERS, {"max_length": 20}, "--max-length 20"),
    "sft-end": ("sft", ANSWERS, {"max_length": 20, "truncation_mode": "keep_end"}, "--max-length 20 --keep-end"),
    "dpo": ("dpo", PAIRS, {"beta": 0.3}, "--beta 0.3"),
    "dpo-hinge": ("dpo", PAIRS, {"beta": 0.3, "loss_type": ["hinge"]}, "--beta 0.3 --loss hinge"),
    "dpo-robust": ("dpo", PAIRS, {"beta": 0.3, "loss_type": ["robust"], "label_smoothing": 0.1},
                   "--beta 0.3 --loss robust --label-smoothing 0.1"),
    "dpo-ipo-end": ("dpo", PAIRS, {"beta": 0.2, "loss_type": ["ipo"], "max_length": 14, "truncation_mode": "keep_end"},
                    "--beta 0.2 --loss ipo --max-length 14 --keep-end"),
    "dpo-discopop": ("dpo", PAIRS, {"loss_type": ["discopop"]}, "--loss discopop"),
    "dpo-aot": ("dpo", PAIRS, {"beta": 0.3, "loss_type": ["aot"], "precompute_ref_log_probs": True}, "--beta 0.3 --loss aot"),
    "dpo-sum": ("dpo", PAIRS, {"beta": 0.3, "loss_type": ["sigmoid", "bco_pair", "sft"], "loss_weights": [0.8, 0.2, 1.0]},
                "--beta 0.3 --loss sigmoid,bco_pair,sft --loss-weights 0.8,0.2,1"),
    "dpo-js-weighted": ("dpo", PAIRS, {"beta": 0.3, "f_divergence_type": "js_divergence", "use_weighting": True},
                        "--beta 0.3 --divergence js_divergence --weight-pairs"),
    "dpo-alpha": ("dpo", PAIRS, {"beta": 0.3, "f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.7},
                  "--beta 0.3 --divergence alpha_divergence --divergence-alpha 0.7 --no-cache"),
    "kto": ("kto", JUDGED, {"beta": 0.2, "desirable_weight": 1.3, "undesirable_weight": 0.6},
            "--beta 0.2 --desirable-weight 1.3 --undesirable-weight 0.6"),
    "kto-unpaired": ("kto", JUDGED, {"beta": 0.2, "loss_type": "apo_zero_unpaired"}, "--beta 0.2 --unpaired"),
    "reward": ("reward", MARGINS, {"center_rewards_coefficient": 0.05}, "--center 0.05"),
}
CLASSES = {"sft": (trl.SFTConfig, trl.SFTTrainer), "dpo": (trl.DPOConfig, trl.DPOTrainer), "kto": (trl.KTOConfig, trl.KTOTrainer),
           "reward": (trl.RewardConfig, trl.RewardTrainer)}


def tokenizer():
    """Bytes."""
    tokens = ["<|end|>", "<pad>"] + sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_alone, eos_token="<|end|>", pad_token="<pad>")


def make(folder, method):
    words = tokenizer()
    config = transformers.LlamaConfig(vocab_size=len(words), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, eos_token_id=0,
                                      bos_token_id=None, pad_token_id=1, num_labels=1)
    torch.manual_seed(1)
    cls = transformers.LlamaForSequenceClassification if method == "reward" else transformers.LlamaForCausalLM
    model = cls(config)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * 0.15)
    model.save_pretrained(folder)
    words.save_pretrained(folder)


def there(folder, method, data, settings, out):
    config, trainer = CLASSES[method]
    cls = transformers.AutoModelForSequenceClassification if method == "reward" else transformers.AutoModelForCausalLM
    args = config(output_dir=out, per_device_train_batch_size=ROWS, max_steps=STEPS, learning_rate=RATE, weight_decay=0.0,
                  lr_scheduler_type="constant", warmup_steps=0, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True,
                  bf16=False, disable_tqdm=True, gradient_checkpointing=False, **settings)
    run = trainer(model=cls.from_pretrained(folder), args=args, train_dataset=Dataset.from_list(data),
                  processing_class=transformers.AutoTokenizer.from_pretrained(folder))
    run.train()
    return [(float(line["loss"]), float(line["grad_norm"])) for line in run.state.log_history if "loss" in line]


def here(banyan, folder, method, data, options, out):
    with open(out + "/data.jsonl", "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row) + "\n" for row in data)
    command = [banyan, "align", folder, "--method", method, "--data", out + "/data.jsonl", "--out", out + "/run", "--batch-size",
               str(ROWS), "--max-steps", str(STEPS), "--learning-rate", str(RATE), "--lr-scheduler", "constant", "--warmup-steps",
               "0", "--dropout", "0", "--threads", "1", "--quiet", *options.split()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(out + "/run/metrics.jsonl", encoding="utf-8") as f:
        return [(line["loss"], line["grad_norm"]) for line in map(json.loads, f)]


def main():
    banyan, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    failed = 0
    for name, (method, data, settings, options) in CASES.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as out:
            make(out + "/model", method)
            pairs = list(zip(there(out + "/model", method, data, settings, out + "/trl"),
                             here(banyan, out + "/model", method, data, options, out)))
        loss = max(abs(a[0] - b[0]) for a, b in pairs)
        norm = max(abs(a[1] - b[1]) / max(abs(a[1]), 1e-2) for a, b in pairs)
        same = len(pairs) == STEPS and loss < 1e-4 and norm < 1e-3
        failed += not same
        print(f"{name:18} losses {loss:.1e} apart, gradient norms {norm:.1e}", "" if same else "FAILED")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
