#!/usr/bin/env python3
"""vectors.py BANYAN XQUAD SENTENCES MODEL... - how well the cosines of an embedder rank pairs of texts. XQUAD is XQuAD's or SQuAD's JSON:
every question stands beside its own paragraph (2), another one of the same article (1) and one of another article (0), and
Spearman's correlation of cosines with these grades is printed for each model. SENTENCES has a sentence on each line; the cosines of all
pairs are compared with those of the first model, the teacher. Needs numpy."""
import json
import random
import subprocess
import sys
import tempfile

import numpy as np


def ranks(x):
    """Ranks from 0 on; equal values share the mean of theirs."""
    order = np.argsort(x, kind="stable")
    sorted_x = x[order]
    first = np.searchsorted(sorted_x, sorted_x, side="left")
    last = np.searchsorted(sorted_x, sorted_x, side="right") - 1
    out = np.empty(len(x))
    out[order] = (first + last) / 2
    return out


def spearman(a, b):
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def embed(banyan, model, texts):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
        f.writelines(" ".join(t.split()) + "\n" for t in texts)
        f.flush()
        raw = subprocess.run([banyan, "embed", model, "-f", f.name, "--format", "f32", "--normalize"], check=True, capture_output=True).stdout
    return np.frombuffer(raw, dtype="<f4").reshape(len(texts), -1)


def graded(path):
    """Questions, paragraphs, and triples of question, paragraph and grade."""
    with open(path, encoding="utf-8") as f:
        articles = json.load(f)["data"]
    draw, questions, paragraphs, triples = random.Random(1), [], [], []
    of = []  # the paragraphs of each article
    for a in articles:
        of.append(range(len(paragraphs), len(paragraphs) + len(a["paragraphs"])))
        paragraphs += [p["context"] for p in a["paragraphs"]]
    for i, a in enumerate(articles):
        for j, p in enumerate(a["paragraphs"]):
            for q in p["qas"]:
                own = of[i][j]
                near = draw.choice([x for x in of[i] if x != own])
                far = draw.choice([x for x in range(len(paragraphs)) if x not in of[i]])
                triples += [(len(questions), own, 2), (len(questions), near, 1), (len(questions), far, 0)]
                questions.append(q["question"])
    return questions, paragraphs, triples


def main():
    banyan, xquad, sentences, models = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    questions, paragraphs, triples = graded(xquad)
    with open(sentences, encoding="utf-8") as f:
        lines = [line.strip() for line in f if line.strip()]
    upper = np.triu_indices(len(lines), 1)
    teacher = first = None
    print("| model | correlation with grades | of the first model's | correlation with its cosines |")
    print("|---|---|---|---|")
    for model in models:
        q, p = embed(banyan, model, questions), embed(banyan, model, paragraphs)
        cosines = np.array([q[i] @ p[j] for i, j, _ in triples])
        rho = spearman(cosines, np.array([g for _, _, g in triples], dtype=float))
        v = embed(banyan, model, lines)
        pairs = (v @ v.T)[upper]
        if teacher is None:
            teacher, first = pairs, rho
        print(f"| {model} | {rho:.4f} | {100 * rho / first:.1f} % | {spearman(pairs, teacher):.4f} |")


if __name__ == "__main__":
    main()
