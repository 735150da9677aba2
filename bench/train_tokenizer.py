"""train_tokenizer.py BANYAN WORK FILE... - see train_tokenizer.sh. Called with --peer KIND SIZE OUT FILE... it is the peer itself."""

import json
import os
import sys
import time

THREADS = os.environ.get("THREADS", "2")


def peer(kind, size, out, files):
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    if kind == "bpe":
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    elif kind == "wordpiece":
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer = normalizers.BertNormalizer()
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=size, min_frequency=2, show_progress=False,
                                            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    else:
        t = Tokenizer(models.Unigram())
        t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    t.train(files, trainer)
    t.save(out)


def measure(command):
    """Seconds, processor seconds and peak MiB of a command."""
    start = time.time()
    pid = os.posix_spawn(command[0], command, dict(os.environ, RAYON_NUM_THREADS=THREADS, TOKENIZERS_PARALLELISM="true"),
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit("failed: " + " ".join(command))
    return time.time() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def best(command):
    runs = [measure(command) for _ in range(int(os.environ.get("ROUNDS", "2")))]
    return min(runs)


def same(ours, theirs):
    a, b = (json.load(open(f))["model"] for f in (ours, theirs))
    if "merges" in a:
        a["merges"], b["merges"] = ([tuple(m) for m in x["merges"]] for x in (a, b))
        return "equal" if a["merges"] == b["merges"] and a["vocab"] == b["vocab"] else "DIFFERENT"
    shared = len(set(a["vocab"]) & set(b["vocab"]))
    return "%d of %d tokens shared" % (shared, len(b["vocab"]))


def quality(file, text):
    """Characters per token and nats per character of held-out text."""
    from tokenizers import Tokenizer

    t, vocab = Tokenizer.from_file(file), json.load(open(file))["model"]["vocab"]
    unknown = min(score for _, score in vocab) - 10
    ids = [i for e in t.encode_batch(text) for i in e.ids]
    chars = sum(map(len, text))
    loss = -sum(vocab[i][1] if i else unknown for i in ids)
    return "%.3f characters per token, %.4f nats per character" % (chars / len(ids), loss / chars)


def held_out(files, work, megabytes):
    """The beginning of the text to train on, every tenth line aside."""
    train, test, size = os.path.join(work, "train.txt"), [], 0
    with open(train, "w") as out:
        for file in files:
            for i, line in enumerate(open(file, newline="\n")):
                size += len(line)
                if size > megabytes * 1000000:
                    return train, test
                if i % 10 == 9:
                    test.append(line.rstrip("\n"))
                else:
                    out.write(line)
    return train, test


def row(name, ours, theirs, result):
    print("| %s | %.2f | %.2f | **%.1f** | %.2f | %.2f | %.0f | %.0f | %s |"
          % (name, ours[0], theirs[0], theirs[0] / ours[0], ours[1], theirs[1], ours[2], theirs[2], result), flush=True)


def main():
    banyan, work, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    size, python = os.environ.get("SIZE", "32000"), os.path.realpath(__file__)
    out, peer_out = os.path.join(work, "ours.json"), os.path.join(work, "theirs.json")
    megabytes = sum(map(os.path.getsize, files)) / 1e6
    train, test = held_out(files, work, float(os.environ.get("UNIGRAM_MB", "10")))
    print("%.0f MB, %s threads, load %.1f" % (megabytes, THREADS, os.getloadavg()[0]))
    print("| kind | Banyan s | peer s | ratio | Banyan CPU s | peer CPU s | Banyan MiB | peer MiB | result |\n|" + "---|" * 9)
    for kind, like, texts in (("bpe", ["--like", "gpt2"], files), ("wordpiece", ["--like", "bert"], files),
                              ("unigram", ["--kind", "unigram"], [train])):
        own = best([banyan, "train-tokenizer", "-q", *like, "--vocab-size", size, "--threads", THREADS, "--out", out, *texts])
        other = best([sys.executable, python, "--peer", kind, size, peer_out, *texts])
        name = "%s, %s tokens, %.0f MB" % (kind, size, sum(map(os.path.getsize, texts)) / 1e6)
        row(name, own, other, same(out, peer_out) if kind != "unigram" else
            "%s; peer: %s" % (quality(out, test), quality(peer_out, test)))


if sys.argv[1] == "--peer":
    peer(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5:])
else:
    main()
