#!/usr/bin/env python3
"""Checkpoints both ways beside transformers: what it saves loads here, what is saved here loads there, same logits.

    python3 bench/checkpoints.py BANYAN     (needs torch, transformers, safetensors)

Models are tiny and random. Each is saved in every way that transformers and torch.save have had, and `banyan verify`
compares logits and loss; then `banyan convert` and `banyan train` write directories which transformers opens."""
import collections, json, os, re, shutil, subprocess, sys, tempfile
import torch, transformers
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel, GPT2Model,
                          GPT2ForSequenceClassification, OpenAIGPTConfig, OpenAIGPTLMHeadModel, OpenAIGPTModel)

banyan = os.path.abspath(sys.argv[1])
work = tempfile.mkdtemp()
failed = 0
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def report(name, ok, why=""):
    global failed
    failed += not ok
    print(("ok      " if ok else "NOT OK  ") + name, why if not ok else "", flush=True)


def run(*args):
    return subprocess.run([banyan, *args], capture_output=True, text=True)


def reference(model, folder, classify=False):
    """The logits of a model in f32 on fixed tokens, as `banyan verify` reads them."""
    torch.manual_seed(5)
    ids = torch.randint(3, model.config.vocab_size, (2, 11))
    labels = torch.tensor([0, 1]) if classify else ids.clone()
    with torch.no_grad():
        out = model.eval()(input_ids=ids, labels=labels)
    save_file({"input.input_ids": ids, "input.labels": labels, "output.logits": out.logits.contiguous(), "output.loss": out.loss},
              f"{folder}/reference.safetensors")
    json.dump({"class": type(model).__name__, "family": model.config.model_type, "scalar_inputs": {}, "generate": {}, "note": ""},
              open(f"{folder}/case.json", "w"))
    return ids, out.logits


def loads_here(name, folder, model, classify=False):
    reference(model, folder, classify)
    r = run("verify", folder)
    report("there -> here: " + name, r.returncode == 0 and "verify: ok 2 tensors" in r.stdout, r.stdout + r.stderr)


def fresh(folder, config):
    path = f"{work}/{folder}"
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    config.save_pretrained(path)
    return path


def shake(model):
    """Norms away from one and zero, or a mix-up of weight and bias would go unnoticed."""
    torch.manual_seed(1)
    for p in model.parameters():
        if p.dim() == 1:
            p.data += 0.1 * torch.randn_like(p)
    return model


def index_of(state, folder, name, parts):
    """A sharded .bin, as transformers wrote it before safetensors."""
    keys, weight_map = list(state), {}
    for i in range(parts):
        file = f"{name}-{i + 1:05d}-of-{parts:05d}.bin"
        part = {k: state[k] for k in keys[i::parts]}
        torch.save(part, f"{folder}/{file}")
        weight_map.update({k: file for k in part})
    total = sum(t.numel() * t.element_size() for t in state.values())
    json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, open(f"{folder}/{name}.bin.index.json", "w"))


def spellings(model):
    """State dictionaries of other times and other hands."""
    state = model.state_dict()
    yield "as it is", state
    yield "without lm_head", {k: v for k, v in state.items() if k != "lm_head.weight"}
    table = "wte" if "transformer.wte.weight" in state else "tokens_embed"
    yield "lm_head in place of the table", {k: v for k, v in state.items() if k != f"transformer.{table}.weight"}
    yield "without transformer.", {k.removeprefix("transformer."): v for k, v in state.items() if k != "lm_head.weight"}
    yield "module. in front", {"module." + k: v for k, v in state.items()}
    yield "model. in front", {"model." + k.removeprefix("transformer."): v for k, v in state.items() if k != "lm_head.weight"}
    gamma = lambda k: k.replace(".weight", ".gamma").replace(".bias", ".beta") if ".ln_" in k else k
    yield "gamma and beta", {gamma(k): v for k, v in state.items()}
    n = model.config.n_positions
    buffers = {f"transformer.h.{i}.attn.bias": torch.tril(torch.ones(n, n, dtype=torch.uint8)).view(1, 1, n, n)
               for i in range(model.config.n_layer)}
    buffers |= {f"transformer.h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(model.config.n_layer)}
    yield "with causal masks and position_ids", state | buffers | {"transformer.position_ids": torch.arange(n)}
    strided = {k: v.t().contiguous().t() if v.dim() == 2 else v for k, v in state.items()}
    yield "transposed in memory", strided
    yield "parameters", collections.OrderedDict((k, torch.nn.Parameter(v)) for k, v in state.items())
    flat, at, shared = torch.cat([v.flatten() for v in state.values()]), 0, {}
    for k, v in state.items():
        shared[k] = flat[at:at + v.numel()].view(v.shape)
        at += v.numel()
    yield "views of one storage", shared


def there_to_here(label, model, body):
    config = model.config
    for shard in (None, "30KB"):
        path = fresh("a", config)
        model.save_pretrained(path, **({"max_shard_size": shard} if shard else {}))
        loads_here(f"{label}, save_pretrained{', sharded' if shard else ''}", path, model)
    path = fresh("a", config)
    inner = body(config)
    inner.load_state_dict(model.transformer.state_dict())
    inner.save_pretrained(path)
    loads_here(f"{label}, bare body ({body.__name__})", path, model)
    for name, state in spellings(model):
        for zipped in (True, False):
            path = fresh("a", config)
            torch.save(state, f"{path}/pytorch_model.bin", _use_new_zipfile_serialization=zipped)
            loads_here(f"{label}, torch.save {'zip' if zipped else 'stream'}, {name}", path, model)
    for zipped in (True, False):
        path = fresh("a", config)
        momenta = {"exp_avg": torch.randn(7, dtype=torch.float64)}
        torch.save({"state_dict": model.state_dict(), "optimizer": momenta, "epoch": 3}, f"{path}/pytorch_model.bin",
                   _use_new_zipfile_serialization=zipped)
        loads_here(f"{label}, under state_dict, {'zip' if zipped else 'stream'}", path, model)
    path = fresh("a", config)
    torch.save(model.state_dict(), f"{path}/pytorch_model.bin", pickle_protocol=4)
    loads_here(f"{label}, pickle protocol 4", path, model)
    path = fresh("a", config)
    index_of(model.state_dict(), path, "pytorch_model", 3)
    loads_here(f"{label}, sharded .bin", path, model)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        path = fresh("a", config)
        low = type(model)(config)
        low.load_state_dict(model.state_dict())
        low.to(dtype).save_pretrained(path)
        loads_here(f"{label}, saved as {dtype}", path, low.float())


def loads_there(name, folder, auto, wanted, ids, tolerance=0.0):
    model, info = auto.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    clean = not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    with torch.no_grad():
        got = model.eval()(input_ids=ids).logits
    error = (got - wanted).abs().max().item()
    report("here -> there: " + name, clean and error <= tolerance, f"{info} error {error}")
    return model


def here_to_there(label, model, auto, classify=False):
    path = fresh("b", model.config)
    torch.save(model.state_dict(), f"{path}/pytorch_model.bin")
    ids, wanted = reference(model, path, classify)
    os.remove(f"{path}/reference.safetensors")
    for name, args in (("one file", []), ("shards", ["--shard-size", "20kB"])):
        out = f"{work}/out"
        shutil.rmtree(out, ignore_errors=True)
        r = run("convert", path, out, "-q", *args)
        if r.returncode:
            report(name, False, r.stderr)
            continue
        loads_there(f"{label}, .bin converted, {name}", out, auto, wanted, ids)
    for dtype, torch_type in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f64", torch.float64)):
        out = f"{work}/out"
        shutil.rmtree(out, ignore_errors=True)
        run("convert", path, out, "-q", "--dtype", dtype)
        low = type(model)(model.config)
        low.load_state_dict({k: v.to(torch_type).float() for k, v in model.state_dict().items()})
        with torch.no_grad():
            expected = low.eval()(input_ids=ids).logits
        loads_there(f"{label}, converted to {dtype}", out, auto, expected, ids)
        named = json.load(open(f"{out}/config.json"))
        report(f"{label}, config.json says {dtype}", str(torch_type).endswith(named.get("dtype") or named["torch_dtype"]), named)


def encoder(model, auto):
    """An encoder with the head it is pretrained with: both formats, TensorFlow's norms, wrapped, sharded, and back."""
    label, config = type(model).__name__, model.config
    for shard in (None, "30KB"):
        path = fresh("a", config)
        model.save_pretrained(path, **({"max_shard_size": shard} if shard else {}))
        loads_here(f"{label}, save_pretrained{', sharded' if shard else ''}", path, model)
    state = model.state_dict()
    norms = lambda k: k.replace(".weight", ".gamma").replace(".bias", ".beta") if re.search("[lL]ayer_?[nN]orm", k) else k
    heads = ("predictions.decoder.", "lm_head.decoder.", "vocab_projector.weight", "pred_layer.proj.weight")
    ways = {"as it is": state, "gamma and beta": {norms(k): v for k, v in state.items()},
            "module. in front": {"module." + k: v for k, v in state.items()},
            "without the tied head": {k: v for k, v in state.items() if not any(h in k for h in heads)}}
    for name, spelled in ways.items():
        for zipped in (True, False):
            path = fresh("a", config)
            config.architectures = [label]
            config.save_pretrained(path)
            torch.save(spelled, f"{path}/pytorch_model.bin", _use_new_zipfile_serialization=zipped)
            loads_here(f"{label}, torch.save {'zip' if zipped else 'stream'}, {name}", path, model)
    here_to_there(label, model, auto)


def trained_here(family):
    text = f"{work}/text"
    open(text, "w").write("the quick brown fox jumps over the lazy dog\n" * 100)
    out = f"{work}/run-{family}"
    r = run("train", "--model", family, "--data", text, "--tokenizer", "byte", "--out", out, "--layers", "2", "--heads", "2", "--width", "32",
            "--context", "32", "--max-steps", "5", "--threads", "1", "--quiet")
    if r.returncode:
        return report("train " + family, False, r.stderr)
    folder = f"{out}/last"
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    clean = not info["missing_keys"] and not info["unexpected_keys"]
    report(f"here -> there: {family} trained here opens", clean, info)
    loads_here(f"{family} trained here, logits of transformers", folder, model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("the quick")["input_ids"]
    ours = [int(t) for t in run("tokenize", folder, "the quick").stdout.split()]
    report(f"{family} trained here, tokenizer", ids == ours, f"{ids} {ours}")
    report(f"{family} trained here, generation_config", model.generation_config is not None and os.path.exists(f"{folder}/generation_config.json"))


def pair(label, model):
    """An encoder-decoder: its own way to save, torch.save, and back through convert. Labels are the second text."""
    config, ids = model.config, None
    config.architectures = [type(model).__name__]
    for shard in (None, "30KB"):
        path = fresh("a", config)
        model.save_pretrained(path, **({"max_shard_size": shard} if shard else {}))
        loads_here(f"{label}, save_pretrained{', sharded' if shard else ''}", path, model)
    path = fresh("a", config)
    torch.save(model.state_dict(), f"{path}/pytorch_model.bin")
    loads_here(f"{label}, torch.save", path, model)
    ids, wanted = reference(model, path)
    os.remove(f"{path}/reference.safetensors")
    out = f"{work}/out"
    shutil.rmtree(out, ignore_errors=True)
    run("convert", path, out, "-q")
    back, info = type(model).from_pretrained(out, output_loading_info=True, dtype=torch.float32)
    with torch.no_grad():
        error = (back.eval()(input_ids=ids, labels=ids).logits - wanted).abs().max().item()
    report(f"here -> there: {label}, converted", not info["missing_keys"] and not info["unexpected_keys"] and error == 0, f"{info} {error}")


def untied(model):
    """A head of its own, as T5 1.1 is published."""
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.shared.weight))
    return model


gpt2 = shake(GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=40, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2, pad_token_id=0)))
gpt = shake(OpenAIGPTLMHeadModel(OpenAIGPTConfig(vocab_size=97, n_positions=40, n_embd=32, n_layer=2, n_head=4)))
there_to_here("GPT-2", gpt2, GPT2Model)
there_to_here("GPT", gpt, OpenAIGPTModel)
score = shake(GPT2ForSequenceClassification(gpt2.config))
path = fresh("c", score.config)
score.save_pretrained(path)
loads_here("GPT-2 classifier", path, score, True)
here_to_there("GPT-2", gpt2, AutoModelForCausalLM)
here_to_there("GPT", gpt, AutoModelForCausalLM)
here_to_there("GPT-2 classifier", score, AutoModelForSequenceClassification, True)
tiny = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=40)
masked = transformers.AutoModelForMaskedLM
encoder(shake(transformers.BertForMaskedLM(transformers.BertConfig(**tiny))), masked)
encoder(shake(transformers.RobertaForMaskedLM(transformers.RobertaConfig(**tiny))), masked)
encoder(shake(transformers.XLMRobertaForMaskedLM(transformers.XLMRobertaConfig(**tiny))), masked)
encoder(shake(transformers.AlbertForMaskedLM(transformers.AlbertConfig(embedding_size=16, **tiny))), masked)
encoder(shake(transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(vocab_size=97, dim=32, n_layers=2, n_heads=4, hidden_dim=64,
                                                                              max_position_embeddings=40))), masked)
encoder(shake(transformers.XLMWithLMHeadModel(transformers.XLMConfig(vocab_size=97, emb_dim=32, n_layers=2, n_heads=4,
                                                                     max_position_embeddings=40))), transformers.AutoModelForMaskedLM)
sizes = dict(vocab_size=97, d_model=32, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
t5 = dict(d_kv=8, d_ff=64, num_layers=2, num_heads=4, **sizes)
pair("T5", shake(transformers.T5ForConditionalGeneration(transformers.T5Config(**t5))))
pair("T5 1.1", untied(shake(transformers.T5ForConditionalGeneration(
    transformers.T5Config(feed_forward_proj="gated-gelu", tie_word_embeddings=False, **t5)))))
both = dict(encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=2, encoder_ffn_dim=64,
            decoder_ffn_dim=48, max_position_embeddings=40, **sizes)
pair("BART", shake(transformers.BartForConditionalGeneration(transformers.BartConfig(**both))))
pair("Marian", shake(transformers.MarianMTModel(transformers.MarianConfig(**both))))
pair("Marian, two vocabularies", shake(transformers.MarianMTModel(
    transformers.MarianConfig(decoder_vocab_size=97, share_encoder_decoder_embeddings=False, **both))))
trained_here("gpt2")
trained_here("openai-gpt")
shutil.rmtree(work)
print(f"checkpoints: {'ok' if not failed else f'{failed} FAILED'}, torch {torch.__version__}, transformers {transformers.__version__}")
sys.exit(failed > 0)
