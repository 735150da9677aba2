#!/usr/bin/env python3
"""compare_peft.py - adapters beside PEFT itself, on tiny random models of several families.

Needs torch, transformers and peft; banyan does not. Two directions:

  read   PEFT makes an adapter with random values; outputs, gradients and merged weights are recorded as a case of
         `banyan verify` (kind "tune").
  write  `banyan finetune --lora`, `--ia3`, `--prefix-tuning` or `--prompt-tuning` trains an adapter; PEFT opens it. Its logits must equal those
         that transformers computes with the model that `banyan convert --merge` writes; with a prefix or a prompt, which cannot be
         merged, the perplexity must be that of `banyan eval`.

    tools/compare_peft.py build/banyan [NAME...]
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
import zlib

import torch
import transformers as t
from peft import IA3Config, LoraConfig, PeftModel, PrefixTuningConfig, PromptTuningConfig, TaskType, get_peft_model
from peft.utils.save_and_load import get_peft_model_state_dict
from safetensors.torch import load_file, save_file

warnings.simplefilter("ignore")
t.logging.set_verbosity_error()
t.logging.disable_progress_bar()
VOCAB = 61
LLAMA = t.LlamaConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                      num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
GPT2 = t.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=32)
GPTJ = t.GPTJConfig(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=32, rotary_dim=4)
BERT = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
BART = t.BartConfig(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32,
                    dropout=0.0, forced_eos_token_id=None)
VIT = dict(image_size=8, patch_size=4, num_channels=1, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
           intermediate_size=24)
CLIP = t.CLIPConfig(text_config=dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=24, max_position_embeddings=20, eos_token_id=VOCAB - 1),
                    vision_config=VIT, projection_dim=8)


def captioner(encoder):
    decoder = t.GPT2Config(vocab_size=VOCAB, n_embd=12, n_layer=2, n_head=2, n_positions=20)
    config = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 0, 2, 1
    return config


T5 = t.T5Config(vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0,
                decoder_start_token_id=0)
LAST_LABELS = dict(pad_token_id=1, num_labels=3)


# In names of gradients that are not compared: what PEFT keeps besides, and the pooler of a captioner's encoder.
UNUSED = ("original_module", "modules_to_save", "encoder.pooler")

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
    "llama-shifts": (t.LlamaForCausalLM, LLAMA, dict(target_modules=["q_proj", "up_proj"], lora_bias=True)),
    "gpt2-shifts": (t.GPT2LMHeadModel, GPT2, dict(target_modules="all-linear", lora_bias=True, bias="lora_only")),
    "gpt2-tokens": (t.GPT2LMHeadModel, GPT2, dict(target_modules="all-linear", trainable_token_indices=[60, 0, 7], bias="all")),
    "gpt2-tokens-positions": (t.GPT2LMHeadModel, GPT2, dict(target_modules=["c_attn"],
                                                            trainable_token_indices={"wte": [1, 7], "wpe": [0, 3]})),
    "gptj-tokens": (t.GPTJForCausalLM, GPTJ, dict(target_modules=["q_proj"], trainable_token_indices=[60, 0], use_dora=True)),
    "llama-patterns": (t.LlamaForCausalLM, LLAMA,
                       dict(target_modules=["q_proj", "down_proj", "gate_proj"], alpha_pattern={r"layers\.1\.mlp.*": 9.5},
                            rank_pattern={"^model.layers.0.self_attn.q_proj": 6, "q_proj": 2, r".*\.1\.mlp\.(up|gate)_proj": 4})),
    "bert-tag": (t.BertForTokenClassification, t.BertConfig(num_labels=5, **BERT),
                 dict(target_modules=["query", "output.dense"], task_type=TaskType.TOKEN_CLS)),
    "bert-mlm": (t.BertForMaskedLM, t.BertConfig(**BERT), dict(target_modules="all-linear")),
    "bert-mlm-all-biases": (t.BertForMaskedLM, t.BertConfig(**BERT), dict(target_modules=["decoder", "key"], bias="all")),
    "gptj-head": (t.GPTJForCausalLM, GPTJ, dict(target_modules=["lm_head", "wte"], use_dora=True)),
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
    "vit-classify": (t.ViTForImageClassification, t.ViTConfig(num_labels=3, **VIT),
                     dict(target_modules=["q_proj", "v_proj"], modules_to_save=["classifier"])),
    "vit-expression": (t.ViTForImageClassification, t.ViTConfig(num_labels=3, **VIT),
                       dict(target_modules=r".*layers\.\d\.(attention\.o_proj|mlp\.fc1)", exclude_modules=r".*0\.mlp.*",
                            bias="lora_only", task_type=TaskType.SEQ_CLS)),
    "vit-one-layer": (t.ViTForImageClassification, t.ViTConfig(num_labels=3, **VIT),
                      dict(target_modules=["k_proj", "fc1", "fc2"], layers_to_transform=[1], layers_pattern="layers",
                           rank_pattern={"mlp.fc2": 2}, alpha_pattern={"k_proj": 7}, use_rslora=True,
                           modules_to_save=["layers.0.mlp.fc2", "vit.layernorm", "classifier"])),
    "vit-features": (t.ViTModel, t.ViTConfig(**VIT), dict(target_modules="all-linear", bias="all")),
    "deit-classify": (t.DeiTForImageClassification, t.DeiTConfig(num_labels=3, **VIT),
                      dict(target_modules="all-linear", use_dora=True, task_type=TaskType.SEQ_CLS)),
    "deit-teacher": (t.DeiTForImageClassificationWithTeacher, t.DeiTConfig(num_labels=3, **VIT),
                     dict(target_modules=["q_proj", "fc2"], task_type=TaskType.SEQ_CLS)),
    "clip": (t.CLIPModel, CLIP, dict(target_modules="all-linear")),
    "clip-dora": (t.CLIPModel, CLIP, dict(target_modules=["q_proj", "fc1", "visual_projection"], use_dora=True,
                                          modules_to_save=["text_projection"])),
    "vit-captions": (t.VisionEncoderDecoderModel, captioner(t.ViTConfig(**VIT)),
                     dict(target_modules=["q_proj", "fc1", "c_attn", "q_attn"], task_type=TaskType.SEQ_2_SEQ_LM)),
    "deit-captions": (t.VisionEncoderDecoderModel, captioner(t.DeiTConfig(**VIT)),
                      dict(target_modules="all-linear", modules_to_save=["enc_to_dec_proj"], bias="all")),
}

# The same for IA3. Without targets PEFT takes those of its tables.
IA3 = {
    "ia3-gpt2": (t.GPT2LMHeadModel, GPT2, {}),
    "ia3-gpt2-outputs": (t.GPT2LMHeadModel, GPT2,
                         dict(target_modules=["c_attn", "attn.c_proj", "c_fc"], feedforward_modules=[],
                              modules_to_save=["ln_f"])),
    "ia3-gpt2-inputs": (t.GPT2LMHeadModel, GPT2,
                        dict(target_modules=["c_attn", "c_proj"], feedforward_modules=["c_attn", "c_proj"])),
    "ia3-bert-classify": (t.BertForSequenceClassification, t.BertConfig(num_labels=3, **BERT),
                          dict(task_type=TaskType.SEQ_CLS)),
    "ia3-bert-mlm": (t.BertForMaskedLM, t.BertConfig(**BERT),
                     dict(target_modules="all-linear", feedforward_modules=[])),
    "ia3-bert-expressions": (t.BertForTokenClassification, t.BertConfig(num_labels=5, **BERT),
                             dict(target_modules=r".*\.(query|dense)", feedforward_modules=r".*\.1\..*output\.dense",
                                  task_type=TaskType.TOKEN_CLS, exclude_modules=["pooler.dense"])),
    "ia3-roberta-classify": (t.RobertaForSequenceClassification, t.RobertaConfig(**LAST_LABELS, **BERT),
                             dict(task_type=TaskType.SEQ_CLS)),
    "ia3-albert-classify": (t.AlbertForSequenceClassification, t.AlbertConfig(num_labels=3, embedding_size=16, **BERT),
                            dict(target_modules=["key", "value", "ffn_output"], feedforward_modules=["ffn_output"],
                                 task_type=TaskType.SEQ_CLS)),
    "ia3-distilbert-classify": (t.DistilBertForSequenceClassification, READ["distilbert-classify"][1],
                                dict(target_modules=["k_lin", "v_lin", "lin2"], feedforward_modules=["lin2"],
                                     task_type=TaskType.SEQ_CLS)),
    "ia3-t5": (t.T5ForConditionalGeneration, T5, dict(task_type=TaskType.SEQ_2_SEQ_LM)),
    "ia3-t5-ends": (t.T5ForConditionalGeneration, T5,  # "o" is the end of "wo" too
                    dict(target_modules=["q", "o", "wo"], feedforward_modules=["o"])),
    "ia3-llama": (t.LlamaForCausalLM, LLAMA, {}),
    "ia3-llama-head": (t.LlamaForCausalLM, LLAMA,
                       dict(target_modules=["v_proj", "up_proj", "lm_head"], feedforward_modules=["up_proj"])),
    "ia3-bart": (t.BartForConditionalGeneration, BART, dict(task_type=TaskType.SEQ_2_SEQ_LM)),
    "ia3-vit-classify": (t.ViTForImageClassification, t.ViTConfig(num_labels=3, **VIT),
                         dict(target_modules=["k_proj", "v_proj", "fc2"], feedforward_modules=["fc2"],
                              modules_to_save=["classifier"])),
    "ia3-clip": (t.CLIPModel, CLIP, dict(target_modules="all-linear", feedforward_modules=["fc2"])),
    "ia3-vit-captions": (t.VisionEncoderDecoderModel, captioner(t.ViTConfig(**VIT)),
                         dict(target_modules=["k_proj", "c_attn", "mlp.c_proj"], feedforward_modules=["mlp.c_proj"])),
}


def batch(model):
    torch.manual_seed(5)
    ids = torch.randint(3, VOCAB, (3, 9))
    name = type(model).__name__
    pixels = torch.randn(3, 1, 8, 8)
    if "CLIP" in name:
        return dict(input_ids=torch.cat([ids, torch.full((3, 1), VOCAB - 1)], 1), pixel_values=pixels, return_loss=True)
    if "Vision" in name:
        return dict(pixel_values=pixels, labels=ids[:, :6])
    if "Image" in name:
        return dict(pixel_values=pixels) | ({} if "Teacher" in name else dict(labels=torch.randint(0, 3, (3,))))
    if "ViT" in name:
        return dict(pixel_values=pixels)
    labels = torch.randint(0, 3, (3,)) if "Sequence" in name else torch.randint(0, 5, (3, 9)) if "Token" in name else \
        torch.randint(3, VOCAB, (3, 7)) if "Conditional" in name else ids.clone()
    return dict(input_ids=ids, labels=labels)


def outputs(result, prefix):
    kinds = ("logits", "loss", "cls_logits", "last_hidden_state", "pooler_output", "logits_per_image", "image_embeds",
             "text_embeds")
    return {prefix + k: result[k] for k in kinds if k in result}


# The same for prefixes.
PREFIX = {
    "prefix-gpt2": (t.GPT2LMHeadModel, GPT2, dict(num_virtual_tokens=5)),
    "prefix-llama": (t.LlamaForCausalLM, LLAMA, dict(num_virtual_tokens=4)),
    "prefix-gptj": (t.GPTJForCausalLM, GPTJ, dict(num_virtual_tokens=6)),
    "prefix-gpt2-projection": (t.GPT2LMHeadModel, GPT2, dict(num_virtual_tokens=3, prefix_projection=True,
                                                             encoder_hidden_size=8)),
}

PROMPT = {
    "prompt-gpt2": (t.GPT2LMHeadModel, GPT2, dict(num_virtual_tokens=5)),
    "prompt-llama": (t.LlamaForCausalLM, LLAMA, dict(num_virtual_tokens=4)),
    "prompt-gptj": (t.GPTJForCausalLM, PREFIX["prefix-gptj"][1], dict(num_virtual_tokens=6)),
    "prompt-openai-gpt": (t.OpenAIGPTLMHeadModel, t.OpenAIGPTConfig(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4,
                                                                    n_positions=32), dict(num_virtual_tokens=2)),
}
BEFORE = PREFIX | PROMPT

# Merging would change a table that the head is tied to; PEFT cannot put a head of several layers back.
UNMERGED = ("ia3-llama-head", "ia3-roberta-classify")


def adapted(name, model):
    if name in READ:
        return get_peft_model(model, LoraConfig(r=3, lora_alpha=5, **READ[name][2])).eval()
    if name in PROMPT:
        return get_peft_model(model, PromptTuningConfig(task_type=TaskType.CAUSAL_LM, **PROMPT[name][2])).eval()
    if name in PREFIX:
        return get_peft_model(model, PrefixTuningConfig(task_type=TaskType.CAUSAL_LM, **PREFIX[name][2])).eval()
    return get_peft_model(model, IA3Config(**IA3[name][2])).eval()


# Under the names of the adapter's file. A projection is not in the file, but what it makes.
def gradients(name, peft):
    grads = {k: p.grad if p.grad is not None else torch.zeros_like(p) for k, p in peft.named_parameters()}
    if name not in BEFORE:
        return get_peft_model_state_dict(peft, state_dict=grads, save_embedding_layers=False)
    return {} if "projection" in name else {"prompt_embeddings": grads["prompt_encoder.default.embedding.weight"]}


# Weights and biases of the body that differ once the adapter is merged, under their names in the file.
def merged_weights(peft, out):
    plain = load_file(os.path.join(out, "model.safetensors"))
    path = os.path.join(out, "merged")
    peft.merge_and_unload().save_pretrained(path)
    merged = load_file(os.path.join(path, "model.safetensors"))
    shutil.rmtree(path)
    return {"merged." + k: v for k, v in merged.items() if not torch.equal(v, plain[k])}


def record(name, out):
    cls, config, _ = (READ | IA3 | BEFORE)[name]
    torch.manual_seed(3)
    model = cls(config).eval()
    with torch.no_grad():
        for k, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.2 + (p.dim() == 1 and k.endswith("weight")))
    model.tie_weights()
    model.save_pretrained(out)
    inputs = batch(model)
    tensors = {"input." + k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}
    tensors.update(outputs(model(**inputs), "base.output."))
    peft = adapted(name, model)
    with torch.no_grad():
        for k, p in peft.named_parameters():
            if p.requires_grad and "magnitude" not in k:
                p.add_(torch.randn_like(p) * 0.1)
    if name in PROMPT:  # PEFT would learn the first token too, from the last position of the prompt
        inputs["labels"][:, 0] = -100
    result = peft(**inputs)
    tensors.update(outputs(result, "output."))
    if name in PROMPT:
        tensors["output.logits"] = result.logits[:, -inputs["input_ids"].shape[1]:]
    if "loss" in result:
        result.loss.backward()
    for k, g in gradients(name, peft).items():
        if "loss" in result and not any(part in k for part in UNUSED):
            tensors["grad." + k] = g
    peft.save_pretrained(os.path.join(out, "adapter"))
    if name in IA3 and name not in UNMERGED:
        tensors.update(merged_weights(peft, out))
    with open(os.path.join(out, "case.json"), "w") as f:
        json.dump({"kind": "tune", "class": cls.__name__, "family": config.model_type}, f)
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()},
              os.path.join(out, "reference.safetensors"))


# name: family, kind of data, what --lora says, or --ia3 after "ia3:", or --prefix-tuning and --prompt-tuning after "prefix:" and "prompt:", class
WRITE = {
    "gpt2": ("gpt2", "lm", "r=4,alpha=8,targets=all-linear", t.AutoModelForCausalLM),
    "gpt2-dora": ("gpt2", "lm", "r=4,targets=c_attn,wpe,dora,rslora", t.AutoModelForCausalLM),
    "llama": ("llama", "lm", "r=4,targets=q_proj,down_proj,save=norm", t.AutoModelForCausalLM),
    "gpt2-tokens": ("gpt2", "lm", "r=4,targets=c_attn,tokens=5,9,40", t.AutoModelForCausalLM),
    "bert-tokens": ("bert", "classify", "r=4,tokens=5,9", t.AutoModelForSequenceClassification),
    "bert": ("bert", "classify", "r=4,targets=all-linear,bias=all", t.AutoModelForSequenceClassification),
    "distilbert": ("distilbert", "classify", "r=4", t.AutoModelForSequenceClassification),
    "vit": ("vit", "image-classify", "r=4", t.ViTForImageClassification),
    "vit-all": ("vit", "image-classify", "r=4,targets=all-linear,dora,bias=all", t.ViTForImageClassification),
    "vit-names-of-files": ("vit", "image-classify", "r=4,targets=query,output.dense,save=intermediate.dense,layers=1",
                           t.ViTForImageClassification),
    "vit-expression": ("vit", "image-classify",
                       r"r=4,targets=.*encoder\.layer\.\d\.(attention\.attention|intermediate)\..*",
                       t.ViTForImageClassification),
    "deit": ("deit", "image-classify", "r=4,targets=q_proj,fc2,bias=lora_only", t.DeiTForImageClassification),
    "deit-teacher": ("deit:tiny-distilled", "image-classify", "r=4,targets=all-linear",
                     t.DeiTForImageClassificationWithTeacher),
    "clip": ("clip", "contrast", "r=4,targets=all-linear", t.CLIPModel),
    "vit-captions": ("vision-encoder-decoder", "caption", "r=4,targets=all-linear", t.VisionEncoderDecoderModel),
    "ia3-gpt2": ("gpt2", "lm", "ia3:default", t.AutoModelForCausalLM),
    "ia3-gpt2-all": ("gpt2", "lm", "ia3:targets=all-linear,save=ln_f", t.AutoModelForCausalLM),
    "ia3-llama": ("llama", "lm", "ia3:targets=k_proj,v_proj,up_proj,feedforward=", t.AutoModelForCausalLM),
    "ia3-bert": ("bert", "classify", "ia3:default", t.AutoModelForSequenceClassification),
    "ia3-t5": ("t5", "seq2seq", "ia3:default", t.AutoModelForSeq2SeqLM),
    "ia3-vit-names-of-files": ("vit", "image-classify", "ia3:targets=query,output.dense,feedforward=output.dense",
                               t.ViTForImageClassification),
    "ia3-vit-captions": ("vision-encoder-decoder", "caption", "ia3:targets=all-linear,feedforward=c_proj",
                         t.VisionEncoderDecoderModel),
    "prefix-gpt2": ("gpt2", "lm", "prefix:5", t.AutoModelForCausalLM),
    "prefix-llama": ("llama", "lm", "prefix:3", t.AutoModelForCausalLM),
    "prompt-gpt2": ("gpt2", "lm", "prompt:5", t.AutoModelForCausalLM),
    "prompt-llama": ("llama", "lm", "prompt:3", t.AutoModelForCausalLM),
    "vit-captions-names-of-files": ("vision-encoder-decoder", "caption", "r=4,targets=query,c_attn,save=layernorm",
                                    t.VisionEncoderDecoderModel),
}
QUIET = dict(check=True, stdout=subprocess.DEVNULL)
IDX, PAIRS = "train-images-idx3-ubyte", "pairs.tsv"


def write_png(path, side, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[3 * side * y:3 * side * (y + 1)] for y in range(side))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_data(out):
    with open(out + "/text.txt", "w") as f:
        f.write("the cat sat . a dog ran . who did what .\n" * 60)
    with open(out + "/table.tsv", "w") as f:
        f.write("the cat sat\tyes\na dog ran\tno\n" * 40)
    with open(out + "/rows.tsv", "w") as f:
        f.write("source\ttarget\n" + "the cat sat\tsat the cat\na dog ran\tran a dog\n" * 40)
    random = torch.Generator().manual_seed(3)
    with open(f"{out}/{IDX}", "wb") as f:
        pixels = torch.randint(0, 256, (40 * 64,), generator=random)
        f.write(struct.pack(">4B3I", 0, 0, 8, 3, 40, 8, 8) + bytes(pixels.tolist()))
    with open(out + "/train-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">4BI", 0, 0, 8, 1, 40) + bytes(i % 2 for i in range(40)))
    texts = ("the cat sat", "a dog ran", "who did what")
    for i in range(len(texts)):
        write_png(f"{out}/{i}.png", 16, bytes(torch.randint(0, 256, (768,), generator=random).tolist()))
    with open(f"{out}/{PAIRS}", "w") as f:
        f.write("file\tcaption\n" + "".join(f"{i}.png\t{text}\n" for i, text in enumerate(texts)))


# kind of data: options of train, options of finetune
KINDS = {
    "lm": ("--data text.txt --tokenizer bpe:280 --context 48", "--task lm --data text.txt"),
    "classify": ("--data text.txt --objective mlm --tokenizer wordpiece:60 --context 48",
                 "--task classify --data table.tsv"),
    "seq2seq": ("--data text.txt --tokenizer unigram:130 --context 32", "--task seq2seq --data rows.tsv"),
    "image-classify": (f"--data {IDX} --classes left,top --patch 2", f"--task image-classify --data {IDX}"),
    "contrast": (f"--data {PAIRS} --image-size 16 --patch 4", f"--data {PAIRS}"),
    "caption": (f"--data {PAIRS} --image-size 16 --patch 4 --decoder-layers 2", f"--data {PAIRS}"),
}


def inputs_of(model, kind):
    random = torch.Generator().manual_seed(1)
    if kind in ("lm", "classify"):
        return dict(input_ids=torch.randint(5, 40, (2, 9), generator=random))
    ids = torch.randint(3, 9, (2, 9), generator=random)
    if kind == "seq2seq":
        return dict(input_ids=ids, decoder_input_ids=ids[:, :6])
    vision = getattr(model.config, "vision_config", getattr(model.config, "encoder", model.config))
    shape = (2, vision.num_channels, vision.image_size, vision.image_size)
    pixels = dict(pixel_values=torch.randn(shape, generator=random))
    return pixels | dict(contrast=dict(input_ids=ids), caption=dict(decoder_input_ids=ids)).get(kind, {})


def logits_of(model, inputs):
    with torch.no_grad():
        result = model(**inputs)
    return result.logits_per_image if "logits_per_image" in result else result.logits


# The mean loss of a text, and what is written after its beginning.
def text_apart(banyan, model, run, out):
    text = "the cat sat . a dog ran . who"
    with open(out + "/short.txt", "w") as f:
        f.write(text)
    said = subprocess.run([banyan, "eval", run, "--data", out + "/short.txt", "--threads", "1", "--json"],
                          check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    written = subprocess.run([banyan, "generate", run, "--prompt", "the cat", "-n", "9", "--greedy", "--threads", "1"],
                             check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    tokenizer = t.AutoTokenizer.from_pretrained(run)
    ids, begin = (tokenizer(part, return_tensors="pt").input_ids for part in (text, "the cat"))
    with torch.no_grad():
        labels = ids.clone()
        labels[:, 0] = -100  # with a prompt PEFT would count the first token too
        loss = model(input_ids=ids, labels=labels).loss.item()
        with model.disable_adapter():
            plain = model(input_ids=ids, labels=labels).loss.item()
    full = model.generate(input_ids=begin, attention_mask=torch.ones_like(begin), do_sample=False, max_new_tokens=9,
                          pad_token_id=0)
    same = tokenizer.decode(full[0]).strip() == written.stdout.decode().strip()
    return abs(json.loads(said.stdout)["loss"] - loss) if same and abs(loss - plain) > 1e-4 else float("nan")


def write(banyan, name, out):
    family, kind, words, cls = WRITE[name]
    option, _, value = words.rpartition(":") if words.startswith(("ia3:", "prefix:", "prompt:")) else ("lora", "", words)
    adapter = [f"--{option}-tuning" if option in ("prefix", "prompt") else "--" + option, value]
    family, _, preset = family.partition(":")
    write_data(out)
    options, tune = KINDS[kind]
    rows = [] if kind == "seq2seq" else ["--batch-size", "3"]  # batches of tokens
    options += f" --preset {preset}" if preset else ""
    subprocess.run([banyan, "train", "--model", family, *options.split(), "--layers", "2", "--heads", "2", "--width", "32",
                    "--max-steps", "2", "--batch-size", "2", "--quiet", "--threads", "1", "--out", "base"], cwd=out, **QUIET)
    base, run, merged = (os.path.realpath(f"{out}/{part}") for part in ("base/last", "run", "merged"))
    subprocess.run([banyan, "finetune", base, *tune.split(), *adapter, "--max-steps", "12", *rows,
                    "--learning-rate", "1e-2", "--quiet", "--threads", "1", "--out", run], cwd=out, **QUIET)
    head = dict(num_labels=2) if kind == "classify" else {}
    model = PeftModel.from_pretrained(cls.from_pretrained(base, **head), run).eval()
    if option in ("prefix", "prompt"):
        return text_apart(banyan, model, run, out)
    inputs = inputs_of(model, kind)
    here = logits_of(model, inputs)
    subprocess.run([banyan, "convert", run, merged], **QUIET)
    there = logits_of(cls.from_pretrained(merged).eval(), inputs)
    with model.disable_adapter():
        changes = (here - logits_of(model, inputs)).abs().max() > 1e-4
    return (here - there).abs().max().item() if changes else float("nan")


def main():
    banyan, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    failed = 0
    for name in READ | IA3 | BEFORE:
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as out:
            record(name, out)
            r = subprocess.run([banyan, "verify", out], capture_output=True, text=True, check=False)
            lines = (r.stdout + r.stderr).strip().split("\n")
            failed += r.returncode != 0
            print(f"read  {name:28}", lines[-1] if r.returncode == 0 else "FAILED")
            for line in lines if r.returncode else []:
                if not line.endswith(" ok"):
                    print("   ", line)
    for name in WRITE:
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as out:
            error = write(banyan, name, out)
            failed += not error < 1e-4
            print(f"write {name:28} logits {error:.1e} apart", "" if error < 1e-4 else "FAILED")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
