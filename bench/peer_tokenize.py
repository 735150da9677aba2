"""The peers of bench/tokenize.c: the same lines through tokenizers or SentencePiece. Prints MB/s and tokens."""
import os
import sys
import time

path, text, threads, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.environ["RAYON_NUM_THREADS"] = sys.argv[3]
os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
data = open(text, "rb").read()
lines = data.decode().split("\n")
lines = lines[:-1] if lines and not lines[-1] else lines
if os.path.isdir(path):
    import transformers

    transformers.logging.set_verbosity_error()
    fast = transformers.AutoTokenizer.from_pretrained(path)._tokenizer
    encode = lambda: sum(len(e) for e in fast.encode_batch_fast(lines))
else:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=path)
    encode = lambda: sum(map(len, model.encode(lines, num_threads=threads)))
clock = time.process_time if threads == 1 else time.perf_counter
best = 1e300
for _ in range(rounds):
    start = clock()
    tokens = encode()
    best = min(best, clock() - start)
print(f"{len(data) / best / 1e6:.2f} {tokens}")
