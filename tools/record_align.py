#!/usr/bin/env python3
"""Record the cases align-* of tests/data/verify: losses of TRL, with their gradients, for tiny random models. `banyan verify DIR`
compares. Needs torch, transformers, trl and safetensors; neither the build nor the tests run this.

usage: tools/record_align.py [OUT]     (OUT: tests/data/verify)
"""
import collections
import json
import os
import sys
import types

import torch
import transformers
import trl
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

VOCAB = 41
MADE_WITH = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, trl {trl.__version__}"
ONE_PROCESS = types.SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x,
                                    pad_across_processes=lambda x, dim, pad_index: x, num_processes=1)


def tiny(seed):
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=VOCAB, n_embd=8, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=2,
                        pad_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) * 0.25 + (p.dim() == 1) * 0.2)
    model.tie_weights()
    return model


def rows(count, width, low, seed):
    """Masks of rows that begin at 0 and have from `low` to `width` tokens."""
    lengths = torch.randint(low, width + 1, (count,), generator=torch.Generator().manual_seed(seed))
    return (torch.arange(width) < lengths[:, None]).long()


def gradients(model, loss, prefix):
    model.zero_grad()
    loss.backward()
    return {f"{prefix}.grad.{k}": p.grad.clone() for k, p in model.named_parameters()}


def write(out, name, model, case, tensors, reference=None):
    folder = os.path.join(out, name)
    model.save_pretrained(folder)
    if reference is not None:
        reference.save_pretrained(os.path.join(folder, "ref"))
    with open(os.path.join(folder, "case.json"), "w", encoding="utf-8") as f:
        json.dump({"kind": "align", "class": type(model).__name__, "family": "gpt2"} | case | {"made_with": MADE_WITH}, f, indent=1)
        f.write("\n")
    save_file({k: v.detach().float().contiguous() if v.is_floating_point() else v.contiguous() for k, v in tensors.items()},
              os.path.join(folder, "reference.safetensors"))


# ---- DPO: what each variant sets in DPOConfig ------------------------------------------------------

DPO = {
    "discopop": {"loss_type": "discopop", "beta": 0.1},
    "aot": {"loss_type": "aot", "beta": 0.3},
    "aot_smoothed": {"loss_type": "aot", "beta": 0.3, "label_smoothing": 0.2},
    "aot_unpaired": {"loss_type": "aot_unpaired", "beta": 0.3},
    "forward_kl": {"loss_type": "sigmoid", "beta": 0.3, "f_divergence_type": "forward_kl"},
    "js": {"loss_type": "sigmoid", "beta": 0.3, "f_divergence_type": "js_divergence"},
    "alpha": {"loss_type": "sigmoid", "beta": 0.3, "f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.7},
    "alpha_ipo": {"loss_type": "ipo", "beta": 0.4, "f_divergence_type": "alpha_divergence"},
    "js_hinge": {"loss_type": "hinge", "beta": 0.5, "f_divergence_type": "js_divergence"},
    "forward_norm": {"loss_type": "sigmoid_norm", "beta": 2.0, "f_divergence_type": "forward_kl"},
    "weighted": {"loss_type": "sigmoid", "beta": 0.3, "use_weighting": 1},
    "weighted_ipo": {"loss_type": "ipo", "beta": 0.3, "use_weighting": 1},
    "mixed": {"loss_type": "sigmoid,bco_pair,sft", "loss_weights": "0.8,0.2,1", "beta": 0.3},
    "mixed_weighted": {"loss_type": "robust,discopop", "loss_weights": "1,0.5", "beta": 0.3, "label_smoothing": 0.1,
                       "use_weighting": 1, "f_divergence_type": "js_divergence"},
}


def dpo_loss(model, reference, inputs, settings):
    kinds = settings["loss_type"].split(",")
    weights = [float(w) for w in settings.get("loss_weights", ",".join("1" for _ in kinds)).split(",")]
    fields = {"accelerator": ONE_PROCESS, "aux_loss_enabled": False, "ld_alpha": None, "precompute_ref_logps": False,
              "model": model, "ref_model": reference, "loss_types": kinds, "loss_weights": weights, "beta": settings["beta"],
              "label_smoothing": settings.get("label_smoothing", 0.0), "use_weighting": bool(settings.get("use_weighting")),
              "f_divergence_type": settings.get("f_divergence_type", "reverse_kl"),
              "f_alpha_divergence_coef": settings.get("f_alpha_divergence_coef", 0.5),
              "args": types.SimpleNamespace(discopop_tau=0.05, gradient_checkpointing_kwargs=None),
              "_metrics": collections.defaultdict(lambda: collections.defaultdict(list)), "_total_train_tokens": 0, "_tp_size": 1}
    trainer = types.SimpleNamespace(**fields)
    loss = DPOTrainer._compute_loss(trainer, model, inputs, False)
    return loss, {k: v[-1] for k, v in trainer._metrics["eval"].items()}


def record_dpo(out):
    model, reference = tiny(11), tiny(12)
    for m in (model, reference):
        add_fused_lm_head(m, outputs=("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1"))
    pairs, width, prompt = 4, 11, 3
    ids = torch.randint(3, VOCAB, (2 * pairs, width), generator=torch.Generator().manual_seed(1))
    ids[pairs:, :prompt] = ids[:pairs, :prompt]
    mask = rows(2 * pairs, width, prompt + 2, 2)
    inputs = {"input_ids": ids * mask, "attention_mask": mask, "completion_mask": mask * (torch.arange(width) >= prompt)}
    tensors = {"input." + k: v for k, v in inputs.items()}
    for name, settings in DPO.items():
        loss, metrics = dpo_loss(model, reference, inputs, settings)
        tensors[f"{name}.loss"] = loss
        tensors |= gradients(model, loss, name)
        tensors[f"{name}.margins_mean"] = torch.tensor(metrics["rewards/margins"])
        tensors[f"{name}.accuracies_mean"] = torch.tensor(metrics["rewards/accuracies"])
    case = {"formula": "trl.DPOTrainer._compute_loss, called per variant", "variants": DPO,
            "keys": "as in a case of the plain losses: chosen rows, then rejected ones; ref/ is the reference model"}
    write(out, "align-dpo-mixed", model, case, tensors, reference)


# ---- supervised tuning -------------------------------------------------------------------------------


def record_sft(out):
    model = tiny(14)
    count, width, prompt = 4, 9, 3
    ids = torch.randint(3, VOCAB, (count, width), generator=torch.Generator().manual_seed(5))
    mask = rows(count, width, prompt + 1, 6)
    inputs = {"input_ids": ids * mask, "attention_mask": mask, "completion_mask": mask * (torch.arange(width) >= prompt)}
    tensors = {"input." + k: v for k, v in inputs.items()}
    for name in ("nll", "dft"):
        logits = model(input_ids=inputs["input_ids"], attention_mask=mask).logits[:, :-1]
        logps = logits.log_softmax(-1).gather(-1, inputs["input_ids"][:, 1:, None])[..., 0]
        logps = logps[inputs["completion_mask"][:, 1:].bool()]
        loss = -(logps if name == "nll" else logps.exp().detach() * logps).mean()
        tensors[f"{name}.loss"] = loss
        tensors |= gradients(model, loss, name)
    case = {"formula": "trl.SFTTrainer, loss_type nll and dft"}
    write(out, "align-sft", model, case, tensors)


# ---- GRPO ------------------------------------------------------------------------------------------

GRPO = {
    "cispo": {"loss_type": "cispo", "scale": "group", "epsilon_high": 1.3},
    "cispo_kl": {"loss_type": "cispo", "scale": "none", "epsilon_high": 5.0, "beta": 0.04},
    "sapo": {"loss_type": "sapo", "scale": "group"},
    "two_sided": {"loss_type": "grpo", "scale": "group", "delta": 1.5},
    "two_sided_dapo": {"loss_type": "dapo", "scale": "batch", "epsilon_high": 0.28, "delta": 1.4},
    "entropy": {"loss_type": "dapo", "scale": "group", "top_entropy_quantile": 0.3},
    "entropy_kl": {"loss_type": "grpo", "scale": "group", "top_entropy_quantile": 0.55, "beta": 0.04},
    "entropy_cispo": {"loss_type": "cispo", "scale": "group", "epsilon_high": 5.0, "top_entropy_quantile": 0.2},
}
TEMPERATURE, LONGEST, GROUP = 0.9, 12, 4


def token_values(model, inputs):
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    count = inputs["completion_ids"].shape[1]
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -count - 1:-1] / TEMPERATURE
    logps = logits.log_softmax(-1)
    return logps.gather(-1, inputs["completion_ids"][..., None])[..., 0], -(logps.exp() * logps).sum(-1).detach()


def grpo_loss(model, inputs, settings):
    args = types.SimpleNamespace(delta=settings.get("delta"), use_bias_correction_kl=False, sapo_temperature_pos=1.0,
                                 sapo_temperature_neg=1.05, steps_per_generation=1)
    fields = {"accelerator": ONE_PROCESS, "aux_loss_enabled": False, "model": model, "args": args, "use_vllm": False,
              "top_entropy_quantile": settings.get("top_entropy_quantile", 1.0), "off_policy_mask_threshold": None,
              "importance_sampling_level": "token", "beta": settings.get("beta", 0.0), "loss_type": settings["loss_type"],
              "epsilon_low": 0.2, "epsilon_high": settings.get("epsilon_high", 0.2), "_entropy_bonus_enabled": False,
              "max_completion_length": LONGEST, "current_gradient_accumulation_steps": 1,
              "_metrics": collections.defaultdict(lambda: collections.defaultdict(list))}
    trainer = types.SimpleNamespace(**fields)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (*token_values(model, inputs), None)
    trainer.get_high_entropy_mask = types.MethodType(GRPOTrainer.get_high_entropy_mask, trainer)
    given = inputs | ({} if fields["beta"] else {"ref_per_token_logps": None})
    loss = GRPOTrainer._compute_loss(trainer, model, given)
    return loss, {k: v[-1] for k, v in trainer._metrics["eval"].items()}


def advantages_of(rewards):
    groups = rewards.view(-1, GROUP)
    centred = groups - groups.mean(1, keepdim=True)
    return {"group": (centred / (groups.std(1, keepdim=True) + 1e-4)).flatten(), "none": centred.flatten(),
            "batch": centred.flatten() / (rewards.std() + 1e-4)}


def record_grpo(out):
    model = tiny(13)
    generator = torch.Generator().manual_seed(3)
    count, before, width = 8, 4, 7
    inputs = {"prompt_ids": torch.randint(3, VOCAB, (count, before), generator=generator),
              "prompt_mask": torch.ones(count, before, dtype=torch.long),
              "completion_ids": torch.randint(3, VOCAB, (count, width), generator=generator),
              "completion_mask": rows(count, width, 2, 4)}
    with torch.no_grad():
        logps, _ = token_values(model, inputs)
    noise = torch.randn(2, count, width, generator=generator) * inputs["completion_mask"]
    inputs["old_per_token_logps"], inputs["ref_per_token_logps"] = logps + 0.4 * noise[0], logps + 0.3 * noise[1]
    rewards = torch.randn(count, generator=generator)
    tensors = {"input." + k: v for k, v in inputs.items()} | {"input.rewards": rewards}
    inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
    for name, settings in GRPO.items():
        inputs["advantages"] = advantages_of(rewards)[settings["scale"]]
        loss, metrics = grpo_loss(model, inputs, settings)
        tensors[f"{name}.loss"] = loss
        tensors |= gradients(model, loss, name)
        for key, value in metrics.items():
            tensors[f"{name}.metric.{key.replace('/', '.')}"] = torch.tensor(value)
    settings = {"num_generations": GROUP, "temperature": TEMPERATURE, "epsilon_low": 0.2, "max_completion_length": LONGEST}
    case = {"formula": "trl.GRPOTrainer._compute_loss, called per variant", "settings": settings, "variants": GRPO,
            "keys": "rows of a group follow each other; old and reference log-probabilities are given"}
    write(out, "align-grpo-tokens", model, case, tensors)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/data/verify")
    record_sft(out)
    record_dpo(out)
    record_grpo(out)


if __name__ == "__main__":
    main()
