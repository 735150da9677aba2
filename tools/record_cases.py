#!/usr/bin/env python3
"""Record the cases of tests/data/verify: tiny random models, with the outputs, gradients and generated tokens that
PyTorch and transformers compute for them. `banyan verify DIR` compares. Needs torch, transformers, peft and safetensors;
neither the build nor the tests run this.

usage: tools/record_cases.py [OUT]     (OUT: tests/data/verify)
"""
import copy
import json
import os
import shutil
import sys
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, CLIPConfig, CLIPForImageClassification
from transformers import CLIPTextConfig, CLIPTextModelWithProjection, CLIPVisionConfig, CLIPVisionModel, DeiTConfig
from transformers import DeiTForImageClassification
from transformers import DeiTForImageClassificationWithTeacher
from transformers import GPT2Config, GPT2LMHeadModel, GPTJConfig, GPTJForCausalLM, ImageGPTConfig
from transformers import ImageGPTForImageClassification, LlamaConfig
from transformers import LlamaForCausalLM, RobertaConfig, T5Config
from transformers import T5ForConditionalGeneration, ViTConfig, ViTForImageClassification, VisionEncoderDecoderConfig
from transformers import VisionEncoderDecoderModel, XLNetConfig
from transformers import XLNetForQuestionAnswering

VOCAB = 40
GREEDY = {"do_sample": False, "max_new_tokens": 9, "eos_token_id": None, "pad_token_id": 0}
BEAM = {"do_sample": False, "num_beams": 4, "max_new_tokens": 9, "pad_token_id": 0, "length_penalty": 0.8,
        "early_stopping": True}


def with_values(model, seed, spread=0.15):
    """Large enough for the likeliest token to be clear, small enough for 16 bits. T5 does not scale its scores, so
    its queries are smaller."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            embedding = "embed" in name or "shared" in name or "wte" in name or "wpe" in name
            if p.dim() == 1:
                p.copy_(noise * 0.05 + (1 if name.endswith("weight") else 0))
            else:
                p.copy_(noise * (0.5 if embedding else 0.05 if ".q." in name else spread))
    return model.eval()


def tokens(generator, *shape):
    return torch.randint(4, VOCAB, shape, generator=generator)


def flatten(outputs):
    """Every tensor of the outputs by name; of tuples of them, by name and number."""
    for name, value in outputs.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif name != "past_key_values":
            for i, part in enumerate(value):
                yield f"{name}.{i}", part


def gradients(model):
    """By the names that the parameters have in files: those in memory are others for some classes."""
    values = {}
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for name, p in model.named_parameters():
            values[name] = p.detach().clone()
            p.copy_(p.grad if p.grad is not None else torch.full_like(p, float("nan")))
        model.save_pretrained(folder)
        for name, p in model.named_parameters():
            p.copy_(values[name])
        saved = load_file(os.path.join(folder, "model.safetensors"))
    return {f"grad.{k}": v for k, v in saved.items() if not v.isnan().any()}


def record(out, name, family, model, inputs, prompt, generate, labels=(), settings=None):
    """prompt: the inputs of generation, which verify takes from input_ids alone. labels: inputs without which the model
    returns other outputs, which are recorded too. settings: of the call, which verify needs not know."""
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    outputs = model(**inputs, **(settings or {}), output_hidden_states=True, output_attentions=True)
    if "loss" in outputs:
        outputs.loss.backward()
    tensors = {f"input.{k}": v for k, v in inputs.items()}
    tensors |= {f"output.{k}": v.detach() for k, v in flatten(outputs)}
    if labels:
        more = model(**{k: v for k, v in inputs.items() if k not in labels})
        tensors |= {f"output.{k}": v.detach() for k, v in flatten(more) if k != "mems"}
    tensors |= gradients(model)
    for setting, values in generate.items():
        tensors[f"generate.{setting}"] = model.generate(**prompt, **values)
    model.save_pretrained(folder)
    save_file({k: v.clone().contiguous() for k, v in tensors.items()}, os.path.join(folder, "reference.safetensors"))
    case = {"class": type(model).__name__, "family": family, "scalar_inputs": {}, "generate": generate, "note": "",
            "made_with": f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"}
    with open(os.path.join(folder, "case.json"), "w", encoding="utf-8") as f:
        json.dump(case, f, indent=1)
        f.write("\n")
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"{folder}: {len(tensors)} tensors, {size / 1000:.0f} kB")


def record_gpt2(out):
    config = GPT2Config(vocab_size=VOCAB, n_positions=20, n_embd=16, n_layer=2, n_head=2, n_inner=32, bos_token_id=0,
                        eos_token_id=1, attn_implementation="eager")
    ids = tokens(torch.Generator().manual_seed(1), 2, 9)
    labels = ids.clone()
    labels[1, -3:] = -100
    settings = {"greedy": GREEDY, "beam4": BEAM,
                "greedy_repetition_penalty": GREEDY | {"repetition_penalty": 1.3},
                "greedy_no_repeat_3gram": GREEDY | {"no_repeat_ngram_size": 3}}
    record(out, "gpt2", "gpt2", with_values(GPT2LMHeadModel(config), 2), {"input_ids": ids, "labels": labels},
           {"input_ids": ids[:1, :5]}, settings)


def record_bert(out):
    config = BertConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=20, num_labels=3, attn_implementation="eager")
    ids = tokens(torch.Generator().manual_seed(3), 2, 9)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    ids[1, 6:] = 0
    types = torch.zeros_like(ids)
    types[:, 4:] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "labels": torch.tensor([2, 0])}
    record(out, "bert", "bert", with_values(BertForSequenceClassification(config), 4), inputs, {}, {})


def record_t5(out):
    config = T5Config(vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu",
                      relative_attention_num_buckets=8, relative_attention_max_distance=16, decoder_start_token_id=0,
                      attn_implementation="eager")
    generator = torch.Generator().manual_seed(5)
    ids, labels = tokens(generator, 2, 9), tokens(generator, 2, 6)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    labels[1, 4:] = -100
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    record(out, "t5", "t5", with_values(T5ForConditionalGeneration(config), 6, 0.2), inputs,
           {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, {"greedy": {k: v for k, v in GREEDY.items() if v is not None},
                                                        "beam4": BEAM})


def record_xlnet_answers(out):
    config = XLNetConfig(vocab_size=VOCAB, d_model=16, n_layer=2, n_head=2, d_inner=32, start_n_top=3, end_n_top=2, mem_len=0)
    generator = torch.Generator().manual_seed(7)
    ids = tokens(generator, 3, 9)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    ids[1, :3] = 5
    types = torch.zeros_like(ids)
    types[:, 5:8] = 1
    types[:, 8] = 2
    hidden = torch.zeros(3, 9)
    hidden[:, 0] = hidden[:, 7] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "p_mask": hidden,
              "cls_index": torch.tensor([8, 8, 8]), "start_positions": torch.tensor([2, 8, 4]),
              "end_positions": torch.tensor([3, 8, 4]), "is_impossible": torch.tensor([0.0, 1.0, 0.0])}
    record(out, "xlnet-answers", "xlnet", with_values(XLNetForQuestionAnswering(config), 8), inputs, {}, {},
           ("start_positions", "end_positions", "is_impossible"))


def record_imagegpt(out):
    """Heads of 8: the root is no whole number."""
    config = ImageGPTConfig(vocab_size=17, n_positions=16, n_embd=16, n_layer=2, n_head=2, n_inner=32, num_labels=3,
                            attn_implementation="eager")
    ids = torch.randint(0, 17, (2, 16), generator=torch.Generator().manual_seed(9))
    record(out, "imagegpt-classify", "imagegpt", with_values(ImageGPTForImageClassification(config), 10),
           {"input_ids": ids, "labels": torch.tensor([2, 0])}, {}, {})


def record_vit(out):
    """Pictures of another size than the model's: positions are interpolated."""
    config = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=12,
                       patch_size=4, num_channels=2, num_labels=3, attn_implementation="eager")
    generator = torch.Generator().manual_seed(9)
    inputs = {"pixel_values": torch.randn(2, 2, 16, 20, generator=generator), "labels": torch.tensor([2, 0])}
    record(out, "vit-other-size", "vit", with_values(ViTForImageClassification(config), 10), inputs, {}, {},
           settings={"interpolate_pos_encoding": True})


def record_vit_rectangle(out):
    """Sides as lists of two."""
    config = ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12, image_size=[8, 12],
                       patch_size=[4, 4], num_channels=1, num_labels=3, attn_implementation="eager")
    inputs = {"pixel_values": torch.randn(2, 1, 8, 12, generator=torch.Generator().manual_seed(35)),
              "labels": torch.tensor([2, 0])}
    record(os.path.join(out, "../cases"), "vit-rectangle", "vit", with_values(ViTForImageClassification(config), 36), inputs, {}, {})


def record_deit(out):
    config = DeiTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=8,
                        patch_size=4, num_channels=1, num_labels=3, attn_implementation="eager")
    generator = torch.Generator().manual_seed(11)
    inputs = {"pixel_values": torch.randn(2, 1, 8, 8, generator=generator)}
    record(out, "deit-teacher", "deit", with_values(DeiTForImageClassificationWithTeacher(config), 12), inputs, {}, {})


def record_clip(out):
    """Towers alone, and a classifier. The largest token ends a text where the end token is 2."""
    out = os.path.join(out, "../cases")
    text = CLIPTextConfig(vocab_size=VOCAB, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                          max_position_embeddings=10, projection_dim=6, eos_token_id=2, hidden_act="gelu",
                          attn_implementation="eager")
    vision = CLIPVisionConfig(hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, image_size=8,
                              patch_size=4, projection_dim=6, attn_implementation="eager")
    both = CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), num_labels=3, attn_implementation="eager")
    generator = torch.Generator().manual_seed(31)
    ids = tokens(generator, 2, 7)
    mask = torch.ones_like(ids)
    ids[0, 4] = VOCAB - 1
    ids[1, 3], ids[1, 4:], mask[1, 4:] = VOCAB - 1, 0, 0
    seen = {"pixel_values": torch.randn(2, 3, 8, 8, generator=generator)}
    record(out, "clip-text", "clip_text_model", with_values(CLIPTextModelWithProjection(text), 32),
           {"input_ids": ids, "attention_mask": mask}, {}, {})
    record(out, "clip-vision", "clip_vision_model", with_values(CLIPVisionModel(vision), 33), seen, {}, {})
    record(out, "clip-classify", "clip", with_values(CLIPForImageClassification(both), 34),
           seen | {"labels": torch.tensor([2, 0])}, {}, {})


def record_caption(out):
    """DeiT and GPT-2 of different widths."""
    encoder = DeiTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=8,
                         patch_size=4, num_channels=1)
    decoder = GPT2Config(vocab_size=VOCAB, n_positions=20, n_embd=12, n_layer=2, n_head=2, n_inner=16, bos_token_id=0,
                         eos_token_id=1)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 0, 2, 1
    config._attn_implementation = "eager"
    model = with_values(VisionEncoderDecoderModel(config), 14, 0.3)
    generator = torch.Generator().manual_seed(13)
    pixels, labels = torch.randn(2, 1, 8, 8, generator=generator), tokens(generator, 2, 6)
    labels[1, 4:] = -100
    greedy = {k: v for k, v in GREEDY.items() if v is not None}
    record(out, "caption", "vision-encoder-decoder", model, {"pixel_values": pixels, "labels": labels},
           {"pixel_values": pixels}, {"greedy": greedy, "beam4": BEAM})


TINY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12, "image_size": 4,
        "patch_size": 2, "num_channels": 1}


def record_captions(out, name, encoder, decoder, tokens_of, seed):
    """tokens_of: the start, padding and end tokens. Both texts of a batch are shorter than their row, so that padding is read."""
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = tokens_of
    config._attn_implementation = "eager"
    model = with_values(VisionEncoderDecoderModel(config), seed, 0.4)
    generator = torch.Generator().manual_seed(seed + 1)
    pixels, labels = torch.randn(2, 1, 4, 4, generator=generator), tokens(generator, 2, 6)
    labels[0, 5:] = -100
    labels[1, 3:] = -100
    greedy = {k: v for k, v in GREEDY.items() if k in ("do_sample", "max_new_tokens")}
    beam = BEAM | {"pad_token_id": tokens_of[1]}
    record(out, name, "vision-encoder-decoder", model, {"pixel_values": pixels, "labels": labels},
           {"pixel_values": pixels}, {"greedy": greedy, "beam4": beam})


def record_caption_bert(out):
    """ViT and BERT of different widths. Two segments, though the decoder reads one."""
    decoder = BertConfig(vocab_size=VOCAB, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16,
                         max_position_embeddings=16)
    record_captions(out, "caption-bert", ViTConfig(**TINY | {"num_hidden_layers": 1}), decoder, (2, 0, 3), 21)


def record_caption_roberta(out):
    """DeiT and RoBERTa of one width, with a head of the decoder's own. Positions are counted from the padding token."""
    decoder = RobertaConfig(vocab_size=VOCAB, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
                            max_position_embeddings=16, type_vocab_size=1, tie_word_embeddings=False)
    record_captions(out, "caption-roberta", DeiTConfig(**TINY | {"num_hidden_layers": 1}), decoder, (0, 1, 2), 23)


def record_caption_roberta_padding(out):
    """The padding token is so likely that captions have it in the middle. It has a position of its own and is counted all the same."""
    decoder = RobertaConfig(vocab_size=VOCAB, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
                            max_position_embeddings=16, type_vocab_size=1, tie_word_embeddings=False)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(DeiTConfig(**TINY | {"num_hidden_layers": 1}), decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 0, 1, 2
    config._attn_implementation = "eager"
    model = with_values(VisionEncoderDecoderModel(config), 31, 0.4)
    with torch.no_grad():
        model.decoder.roberta.embeddings.position_embeddings.weight.mul_(3)
        model.decoder.lm_head.decoder.bias[1] += 3.0
    generator = torch.Generator().manual_seed(32)
    pixels = torch.randn(4, 1, 4, 4, generator=generator)
    labels = tokens(generator, 4, 6)
    greedy = {"do_sample": False, "max_new_tokens": 9}
    record(out, "caption-roberta-padding", "vision-encoder-decoder", model, {"pixel_values": pixels, "labels": labels},
           {"pixel_values": pixels}, {"greedy": greedy})


# What transformers 4 called the modules of ViT and DeiT.
OLD_NAMES = {"layers.": "encoder.layer.", "attention.q_proj": "attention.attention.query",
             "attention.k_proj": "attention.attention.key", "attention.v_proj": "attention.attention.value",
             "attention.o_proj": "attention.output.dense", "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}


UNUSED = "encoder.pooler."  # of captioners, whose decoders read what is before it


def old_name(name):
    for new, old in OLD_NAMES.items():
        name = name.replace(new, old)
    return name


# What `banyan verify` reads in the member "train" of case.json.
TRAIN = {"optimizer": "AdamW", "lr": 0.02, "betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0.01,
         "decay": "all trainable tensors", "clip_grad_norm": 1.0, "schedule": "constant", "steps": 10, "dropout": 0}


def train(adapted, batches):
    """Steps from the present values: losses, norms before clipping, and the adapter afterwards."""
    tensors = {f"step{i}.{k}": v for i, batch in enumerate(batches) for k, v in batch.items()}
    learns = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learns, lr=TRAIN["lr"], betas=TRAIN["betas"], eps=TRAIN["eps"],
                                  weight_decay=TRAIN["weight_decay"])
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = adapted(**batch).loss
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(learns, TRAIN["clip_grad_norm"]))
        optimizer.step()
        losses.append(loss.detach())
    tensors |= {"losses": torch.stack(losses), "grad_norms": torch.stack(norms)}
    return tensors | {f"final.{k}": v for k, v in peft.get_peft_model_state_dict(adapted).items()}


def lora(**settings):
    return peft.LoraConfig(r=2, lora_alpha=3, **settings)


def merged_weights(adapted):
    with tempfile.TemporaryDirectory() as merged:
        copy.deepcopy(adapted).merge_and_unload().save_pretrained(merged)
        weights = load_file(os.path.join(merged, "model.safetensors"))
        return {f"merged.{k}": v for k, v in weights.items() if UNUSED not in k}


def record_tune(out, name, family, model, inputs, config, old=None, batches=(), tied_head=False):
    """A model with an adapter of PEFT. old: what adapter_config.json says in the names of transformers 4; then the
    adapter's tensors have such names too. batches: of steps of training. tied_head: it is adapted, so nothing can be merged."""
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tensors = {f"input.{k}": v for k, v in inputs.items()}
    tensors |= {f"base.output.{k}": v for k, v in model(**inputs).items() if k in ("loss", "logits")}
    torch.manual_seed(15)
    adapted = peft.get_peft_model(model, config).eval()
    before = config.peft_type in (peft.PeftType.PREFIX_TUNING, peft.PeftType.PROMPT_TUNING)
    with torch.no_grad():
        for k, p in adapted.named_parameters():
            if p.requires_grad and "magnitude" not in k:
                p.add_(torch.randn_like(p) * 0.2)
    result = adapted(**inputs)
    result.loss.backward()
    # A prompt has logits too, before those of the text.
    tensors |= {f"output.{k}": v[:, -inputs["input_ids"].shape[1]:] if k == "logits" and before else v
                for k, v in result.items() if k in ("loss", "logits")}
    grads = {k: p.grad if p.grad is not None else torch.zeros_like(p) for k, p in adapted.named_parameters()}
    state = {"prompt_embeddings": grads["prompt_encoder.default.embedding.weight"]} if before else \
        peft.get_peft_model_state_dict(adapted, state_dict=grads, save_embedding_layers=False)
    tensors |= {f"grad.{k}": v for k, v in state.items() if UNUSED not in k}
    own = os.path.join(folder, "adapter")
    adapted.save_pretrained(own)
    os.remove(os.path.join(own, "README.md"))
    if old:
        weights, config = os.path.join(own, "adapter_model.safetensors"), os.path.join(own, "adapter_config.json")
        save_file({old_name(k): v for k, v in load_file(weights).items()}, weights)
        with open(config, encoding="utf-8") as f:
            settings = json.load(f) | old
        with open(config, "w", encoding="utf-8") as f:
            json.dump(settings, f, indent=1)
    if not before and not tied_head:
        tensors |= merged_weights(adapted)
    tensors |= train(adapted, batches) if batches else {}
    tensors = {k: v.detach().clone().contiguous() for k, v in tensors.items()}
    save_file(tensors, os.path.join(folder, "reference.safetensors"))
    versions = ", ".join(f"{m.__name__} {m.__version__}" for m in (torch, transformers, peft))
    with open(os.path.join(folder, "case.json"), "w", encoding="utf-8") as f:
        case = {"kind": "tune", "class": type(model).__name__, "family": family, "made_with": versions}
        json.dump(case | ({"train": TRAIN} if batches else {}), f, indent=1)


def record_tune_tokens(out):
    """Embeddings of some tokens, which the tied head has too."""
    config = LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=1, max_position_embeddings=16, tie_word_embeddings=True)
    first, *rest = batches_of(29, 20)
    record_tune(out, "tune-llama-tokens", "llama", with_values(LlamaForCausalLM(config), 29, 0.4), first,
                lora(target_modules=["q_proj"], trainable_token_indices=[19, 0, 5]), batches=rest)


def record_tune_shifts(out):
    """B has a bias, which joins that of the layer."""
    config = GPT2Config(vocab_size=20, n_positions=10, n_embd=8, n_layer=1, n_head=2, n_inner=12, resid_pdrop=0.0, embd_pdrop=0.0,
                        attn_pdrop=0.0)
    first, *rest = batches_of(30, 20)
    record_tune(out, "tune-gpt2-shifts", "gpt2", with_values(GPT2LMHeadModel(config), 30, 0.4), first,
                lora(target_modules=["c_fc", "c_proj"], lora_bias=True, use_rslora=True), batches=rest)


def tiny_pictures(**more):
    return {"pixel_values": torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(16)), **more}


def record_tune_deit(out):
    model = with_values(DeiTForImageClassification(DeiTConfig(num_labels=3, **TINY)), 17, 0.4)
    record_tune(out, "tune-deit", "deit", model, tiny_pictures(labels=torch.tensor([2, 0])),
                lora(target_modules=["q_proj", "fc2"], bias="lora_only", use_dora=True,
                     modules_to_save=["layers.0.mlp.fc1", "classifier"]))


def record_tune_old(out):
    """An adapter with the names of transformers 4. `output.dense` names two layers of a block."""
    model = with_values(ViTForImageClassification(ViTConfig(num_labels=3, **TINY)), 18, 0.4)
    record_tune(out, "tune-vit-old", "vit", model, tiny_pictures(labels=torch.tensor([1, 0])),
                lora(target_modules=["layers.1.attention.q_proj", "layers.1.attention.o_proj", "layers.1.mlp.fc2"],
                     modules_to_save=["layers.0.mlp.fc1", "classifier"], bias="lora_only",
                     rank_pattern={"mlp.fc2": 1}, alpha_pattern={"attention.o_proj": 5}),
                {"target_modules": ["query", "value", "output.dense"], "exclude_modules": ".*attention\\.value",
                 "layers_to_transform": [1], "layers_pattern": "layer",
                 "rank_pattern": {r"\d\.output.dense": 1}, "alpha_pattern": {"attention.output.dense": 5},
                 "modules_to_save": ["layer.0.intermediate", "classifier"]})


def record_tune_caption(out):
    encoder = ViTConfig(**TINY | {"num_hidden_layers": 1})
    decoder = GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, n_inner=12, bos_token_id=0,
                         eos_token_id=1)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 0, 2, 1
    labels = torch.randint(4, 20, (2, 5), generator=torch.Generator().manual_seed(19))
    record_tune(out, "tune-caption", "vision-encoder-decoder", with_values(VisionEncoderDecoderModel(config), 20, 0.4),
                tiny_pictures(labels=labels), lora(target_modules="all-linear"))


def batches_of(seed, vocab, label=None, target=0):
    """Eleven batches: one to compare, ten to train with. Labels are those of the tokens, of a text or of another text."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(11):
        ids = torch.randint(3, vocab, (2, 7), generator=generator)
        labels = torch.randint(0, label, (2,), generator=generator) if label else \
            torch.randint(3, vocab, (2, target), generator=generator) if target else ids.clone()
        yield {"input_ids": ids, "labels": labels}


def record_tune_prefix(out):
    """Keys of Llama stand before the text as they are, without a rotation."""
    record_before(out, "prefix", peft.PrefixTuningConfig, 25)


def record_tune_prompt(out):
    """PEFT would learn the first token too, from the last position of the prompt."""
    record_before(out, "prompt", peft.PromptTuningConfig, 27)


def record_before(out, kind, settings, first_seed):
    gpt2 = GPT2Config(vocab_size=20, n_positions=12, n_embd=8, n_layer=2, n_head=2, n_inner=12, bos_token_id=0,
                      eos_token_id=1)
    llama = LlamaConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                        intermediate_size=12, max_position_embeddings=12, bos_token_id=0, eos_token_id=1)
    for name, model, seed in (("gpt2", GPT2LMHeadModel(gpt2), first_seed),
                              ("llama", LlamaForCausalLM(llama), first_seed + 1)):
        first, *rest = batches_of(seed, 20)
        first["attention_mask"] = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
        first["labels"][1, 5:] = -100
        for batch in (first, *rest) if kind == "prompt" else ():
            batch["labels"][:, 0] = -100
        record_tune(out, f"tune-{name}-{kind}", name, with_values(model, seed, 0.4), first,
                    settings(num_virtual_tokens=4, task_type=peft.TaskType.CAUSAL_LM), batches=rest)


def record_ia3(out, name, family, model, seed, label=None, target=0, **settings):
    """PEFT knows the layers that are usual for the family. The adapter changes what the model computes by a fifth or so."""
    first, *rest = batches_of(seed, 20, label, target)
    record_tune(out, name, family, with_values(model, seed, 0.4), first, peft.IA3Config(**settings), batches=rest)


def record_tune_ia3(out):
    small = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 12, "max_position_embeddings": 10}
    gpt2 = GPT2Config(vocab_size=20, n_positions=10, n_embd=8, n_layer=2, n_head=2, n_inner=12, bos_token_id=0,
                      eos_token_id=1)
    bert = BertConfig(num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **small)
    t5 = T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2, dropout_rate=0.0,
                  decoder_start_token_id=0, pad_token_id=0)
    llama = LlamaConfig(num_key_value_heads=1, bos_token_id=0, eos_token_id=1, **small)
    record_ia3(out, "tune-gpt2-ia3", "gpt2", GPT2LMHeadModel(gpt2), 21)
    record_ia3(out, "tune-bert-ia3", "bert", BertForSequenceClassification(bert), 22, label=3,
               task_type=peft.TaskType.SEQ_CLS)
    record_ia3(out, "tune-t5-ia3", "t5", T5ForConditionalGeneration(t5), 23, target=5)
    record_ia3(out, "tune-llama-ia3", "llama", LlamaForCausalLM(llama), 24)


def record_tune_heads(out):
    """PEFT stores the weights and the bias of an adapted head with the adapter. BERT's head has one bias under two names."""
    gptj = GPTJConfig(vocab_size=20, n_positions=10, n_embd=8, n_layer=1, n_head=2, rotary_dim=2, n_inner=12, bos_token_id=0,
                      eos_token_id=1)
    bert = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
                      max_position_embeddings=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    first, *rest = batches_of(27, 20)
    record_tune(out, "tune-gptj-head", "gptj", with_values(GPTJForCausalLM(gptj), 27, 0.4), first,
                lora(target_modules=["lm_head", "fc_in"]), batches=rest)
    record_tune(out, "tune-bert-head", "bert", with_values(BertForMaskedLM(bert), 28, 0.4), first,
                lora(target_modules=["decoder", "query"], bias="lora_only"), batches=rest, tied_head=True)


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/data/verify")
    for each in (record_gpt2, record_bert, record_t5, record_xlnet_answers, record_imagegpt, record_vit, record_vit_rectangle,
                 record_deit, record_clip, record_caption, record_caption_bert, record_caption_roberta,
                 record_caption_roberta_padding, record_tune_deit, record_tune_old, record_tune_caption, record_tune_ia3,
                 record_tune_prefix, record_tune_prompt, record_tune_heads, record_tune_tokens, record_tune_shifts):
        each(target)
