#!/usr/bin/env python3
"""compare_peft.py - adapters beside PEFT itself, on tiny random models of several families.

Needs torch, transformers and peft; banyan does not. Two directions:

  read   PEFT makes an adapter with random values; outputs, gradients and merged weights are recorded as a case of
         `banyan verify` (kind "tune").
  write  `banyan finetune --lora` trains an adapter; PEFT opens it. Its logits must equal those that transformers
         computes with the model that `banyan convert --merge` writes.

    tools/compare_peft.py build/banyan [NAME...]
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers as t
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from peft.utils.save_and_load import get_peft_model_state_dict
from safetensors.torch import save_file

warnings.simplefilter("ignore")
t.logging.set_verbosity_error()
t.logging.disable_progress_bar()
VOCAB = 61
LLAMA = t.LlamaConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                      num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
GPT2 = t.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=32)
BERT = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
BART = t.BartConfig(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32,
                    dropout=0.0, forced_eos_token_id=None)

# name: class, configuration, PEFT's configuration
READ = {
    "gpt2-embeddings": (t.GPT2LMHeadModel, GPT2, dict(target_modules=["wte", "wpe", "c_attn"])),
    "gpt2-head": (t.GPT2LMHeadModel, GPT2, dict(target_modules=["lm_head", "c_fc"])),
    "gpt2-saves-wte": (t.GPT2LMHeadModel, GPT2, dict(target_modules=["c_attn"], modules_to_save=["wte"])),
    "gpt2-saves-head": (t.GPT2LMHeadModel, GPT2, dict(target_modules=["c_attn"], modules_to_save=["lm_head", "ln_f"])),
    "gpt2-all-biases": (t.GPT2LMHeadModel, GPT2, dict(target_modules=["c_attn"], bias="all")),
    "llama-dora-embeddings": (t.LlamaForCausalLM, LLAMA,
                              dict(target_modules=["embed_tokens", "up_proj"], use_dora=True)),
    "llama-all-linear": (t.LlamaForCausalLM, LLAMA, dict(target_modules="all-linear", use_rslora=True,
                                                         exclude_modules=["k_proj"], layers_to_transform=None)),
    "bert-tag": (t.BertForTokenClassification, t.BertConfig(num_labels=5, **BERT),
                 dict(target_modules=["query", "output.dense"], task_type=TaskType.TOKEN_CLS)),
    "bert-mlm": (t.BertForMaskedLM, t.BertConfig(**BERT), dict(target_modules="all-linear")),
    "roberta-classify": (t.RobertaForSequenceClassification,
                         t.RobertaConfig(num_labels=3, pad_token_id=1, **BERT),
                         dict(target_modules=["query", "dense"], task_type=TaskType.SEQ_CLS, layers_to_transform=[1])),
    "albert-classify": (t.AlbertForSequenceClassification,
                        t.AlbertConfig(num_labels=3, embedding_size=16, **BERT),
                        dict(target_modules=["query", "value", "ffn"], task_type=TaskType.SEQ_CLS)),
    "distilbert-classify": (t.DistilBertForSequenceClassification,
                            t.DistilBertConfig(vocab_size=VOCAB, dim=32, n_layers=2, n_heads=4, hidden_dim=48,
                                               max_position_embeddings=40, num_labels=3, dropout=0.0,
                                               attention_dropout=0.0, seq_classif_dropout=0.0),
                            dict(target_modules=["q_lin", "lin2"], task_type=TaskType.SEQ_CLS, use_dora=True)),
    "bart": (t.BartForConditionalGeneration, BART,
             dict(target_modules=["q_proj", "v_proj", "fc2"], bias="lora_only", task_type=TaskType.SEQ_2_SEQ_LM)),
}


def batch(model):
    torch.manual_seed(5)
    ids = torch.randint(3, VOCAB, (3, 9))
    name = type(model).__name__
    labels = torch.randint(0, 3, (3,)) if "Sequence" in name else torch.randint(0, 5, (3, 9)) if "Token" in name else \
        torch.randint(3, VOCAB, (3, 7)) if "Conditional" in name else ids.clone()
    return dict(input_ids=ids, labels=labels)


def record(name, out):
    cls, config, settings = READ[name]
    torch.manual_seed(3)
    model = cls(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.2)
    model.tie_weights()
    model.save_pretrained(out)
    inputs = batch(model)
    tensors = {"input." + k: v for k, v in inputs.items()}
    result = model(**inputs)
    tensors.update({"base.output.logits": result.logits, "base.output.loss": result.loss})
    peft = get_peft_model(model, LoraConfig(r=3, lora_alpha=5, **settings)).eval()
    with torch.no_grad():
        for k, p in peft.named_parameters():
            if p.requires_grad and "magnitude" not in k:
                p.add_(torch.randn_like(p) * 0.1)
    result = peft(**inputs)
    result.loss.backward()
    tensors.update({"output.logits": result.logits, "output.loss": result.loss})
    grads = {k: p.grad if p.grad is not None else torch.zeros_like(p) for k, p in peft.named_parameters()}
    for k, g in get_peft_model_state_dict(peft, state_dict=grads, save_embedding_layers=False).items():
        if "original_module" not in k:
            tensors["grad." + k] = g
    peft.save_pretrained(os.path.join(out, "adapter"))
    with open(os.path.join(out, "case.json"), "w") as f:
        json.dump({"kind": "tune", "class": cls.__name__, "family": config.model_type}, f)
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()},
              os.path.join(out, "reference.safetensors"))


# name: family, options of train, task, data, options of --lora, class
WRITE = {
    "gpt2": ("gpt2", "lm", "r=4,alpha=8,targets=all-linear", t.AutoModelForCausalLM),
    "gpt2-dora": ("gpt2", "lm", "r=4,targets=c_attn,wpe,dora,rslora", t.AutoModelForCausalLM),
    "llama": ("llama", "lm", "r=4,targets=q_proj,down_proj,save=norm", t.AutoModelForCausalLM),
    "bert": ("bert", "classify", "r=4,targets=all-linear,bias=all", t.AutoModelForSequenceClassification),
    "distilbert": ("distilbert", "classify", "r=4", t.AutoModelForSequenceClassification),
}


def write(banyan, name, out):
    family, task, lora, cls = WRITE[name]
    text, table = os.path.join(out, "text.txt"), os.path.join(out, "table.tsv")
    with open(text, "w") as f:
        f.write("the cat sat . a dog ran . who did what .\n" * 60)
    with open(table, "w") as f:
        f.write("the cat sat\tyes\na dog ran\tno\n" * 40)
    quiet = dict(check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    mlm = ["--objective", "mlm", "--tokenizer", "wordpiece:60"] if task == "classify" else ["--tokenizer", "bpe:280"]
    subprocess.run([banyan, "train", "--model", family, "--data", text, "--layers", "2", "--heads", "2", "--width", "32",
                    "--context", "48", "--max-steps", "2", "--batch-size", "2", "--out", out + "/base", *mlm], **quiet)
    base, run, merged = out + "/base/best", out + "/run", out + "/merged"
    subprocess.run([banyan, "finetune", base, "--task", task, "--data", table if task == "classify" else text,
                    "--lora", lora, "--max-steps", "12", "--learning-rate", "1e-2", "--out", run], **quiet)
    head = dict(num_labels=2) if task == "classify" else {}
    model = PeftModel.from_pretrained(cls.from_pretrained(base, **head), run).eval()
    ids = torch.randint(5, 40, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        here = model(input_ids=ids).logits
    subprocess.run([banyan, "convert", run, merged], **quiet)
    with torch.no_grad():
        there = cls.from_pretrained(merged).eval()(input_ids=ids).logits
        with model.disable_adapter():
            changes = (here - model(input_ids=ids).logits).abs().max() > 1e-4
    return (here - there).abs().max().item() if changes else float("nan")


def main():
    banyan, names = sys.argv[1], sys.argv[2:]
    failed = 0
    for name in READ:
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as out:
            record(name, out)
            r = subprocess.run([banyan, "verify", out], capture_output=True, text=True, check=False)
            lines = (r.stdout + r.stderr).strip().split("\n")
            failed += r.returncode != 0
            print(f"read  {name:24}", lines[-1] if r.returncode == 0 else "FAILED")
            for line in lines if r.returncode else []:
                if not line.endswith(" ok"):
                    print("   ", line)
    for name in WRITE:
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as out:
            error = write(banyan, name, out)
            failed += not error < 1e-4
            print(f"write {name:24} logits {error:.1e} apart", "" if error < 1e-4 else "FAILED")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
