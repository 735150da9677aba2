#!/usr/bin/env python3
"""Figures of `banyan score` against those of sacreBLEU and rouge_score, which this needs from PyPI.

    tools/score_equal.py [--banyan build/banyan] [--data ../shared/data/tasks/multi30k]
    tools/score_equal.py --record tests/data/score

Hypotheses are made from 1,000 real references by dropping, swapping, doubling, recasing and spoiling words, and from
lines that are hard to cut into words; the same each time. Every metric and option, with one to three references, for
the whole and for each line: what is printed must be equal, and with --json every number to 1e-12. Exit status 1 when
anything differs.

--record writes texts of its own and the reference's figures for tests/test_score.c.
"""
import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU, CHRF

HARD = [
    "", " ", ".", "...", "?!", "-", "'", "\u3000", "\u00a0x\u00a0", "a", "a.", ".a", "1.", ".1", "1,000.50", "1,000.50.", "3.14, 2.72",
    "10-20", "10 - 20", "a-b", "1-", "-1", "x-\u00e91-2", "&quot;quoted&quot; &amp; &lt;tag&gt;", "&amp;lt;", "&amp;quot;x&amp;quot;", "&apos;s",
    "<skipped>", "a<skipped>b", "U.S. a.b.c", "e.g., this", "don't 'quote' rock'n'roll", "(hi) [there] {you}", "((x))", "100% $5 #1 @me",
    "a,b,c 1,2,3 ,,", "..a..1..", ",,1,,a,,", "A/B C\\D ~tilde~ `tick`", "http://a.b/c?d=e&f=g", "tab\there", "\x1ca\x1db\x1ec\x1fd", "a\x85b\u2028c\u2029d",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u65e5\u672c\u8a9e\u306e\u6587\u3067\u3059\u30022024\u5e74\u3002", "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 ok\U0001f44d", "cafe\u0301 e\u0301. \u00e9.", "\u0130stanbul \u212aelvin \u212bngstr\u00f6m",
    "\u039f\u0394\u039f\u03a3 \u03a3\u0391\u03a3. \u03a3 A\u03a3\u0301 \u03a3'\u03a3", "\u0391\u03a3\u2019\u0391 x\u03a3:", "Stra\u00dfe STRASSE \u1e9e", "\u00ab guillemets \u00bb, \u201equoted\u201c \u2026 \u2013 \u2014",
    "\u20ac5.00 \u00a35 1\u00bd 2\u00b2 \u2160", "\u0661\u0662\u0663\u060c \u0664", "\u0645\u0631\u062d\u0628\u0627\u060c \u0643\u064a\u0641 \u0627\u0644\u062d\u0627\u0644\u061f", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964",
    "\u1b4e\u20c1\U00010d40\U0001cc00 new", "x.\u00e9,y", "1.\u00e9", "\u00e9.1", "a\u200bb\ufeffc", "x" * 300, "the the the the", "the cat the cat on the mat",
    "Sentence one.<n>Sentence two is here.<n><n>Three!", "two is here<n>one sentence<n>three", "running runs ran easily flies dying news", "!a b! (c d) 'e f'",
    "generalizations relational conditional vietnamization happy sky enjoyed spied", "yyyy yyying syzygy", "1990. ", "end 1990.  ", "a  b   c", "\u00b5\u00df\u0149\u01f0",
]
NOISE = ["\u00e9", "e\u0301", "\u00df", "\u4e2d", "\U0001f600", "&amp;", "&quot;", "1,000.5", "--", "\u2014", "\u00a0", "<n>", "\u03a3", "\u0130", ".", ",", "'", "\"", "%"]


def spoil(rng, line):
    words = line.split(" ")
    for _ in range(rng.randrange(0, 6)):
        if not words:
            break
        i, kind = rng.randrange(len(words)), rng.randrange(8)
        if kind == 0:
            del words[i]
        elif kind == 1:
            j = rng.randrange(len(words))
            words[i], words[j] = words[j], words[i]
        elif kind == 2:
            words.insert(i, words[i])
        elif kind == 3:
            words[i] = rng.choice([str.upper, str.lower, str.swapcase, str.capitalize])(words[i])
        elif kind == 4:
            at = rng.randrange(len(words[i]) + 1)
            words[i] = words[i][:at] + rng.choice(NOISE) + words[i][at:]
        elif kind == 5:
            words[i] += rng.choice([".", ",", "!", "-", ")", "'s", "s", "ing", "ed"])
        elif kind == 6:
            words.insert(i, rng.choice(NOISE))
        else:
            words[i] = words[i][:-1]
    return rng.choice([" ", " ", " ", "  ", "\t"]).join(words)


def make(real, rng):
    """Hypotheses and three files of references."""
    lines = real + HARD
    other = HARD[1:] + HARD[:1]
    hypotheses = [spoil(rng, x) for x in real] + [spoil(rng, x) if i % 3 == 0 else x for i, x in enumerate(HARD)]
    seconds = [spoil(rng, x) for x in real] + [rng.choice([x, y, spoil(rng, y)]) for x, y in zip(HARD, other)]
    thirds = [spoil(rng, spoil(rng, x)) for x in real] + [spoil(rng, x) for x in other]
    hypotheses[3 % len(real)] = ""
    seconds[5 % len(real)] = ""
    return [[x.replace("\n", " ").replace("\r", " ") for x in f] for f in (hypotheses, lines, seconds, thirds)]


def rouge(stem, hypothesis, references):
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=stem)
    each = [scorer.score_multi([r.replace("<n>", "\n") for r in rs], h.replace("<n>", "\n")) for h, rs in zip(hypothesis, zip(*references))]
    return each


ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def mean(each):
    n = len(each)
    return {k: [sum(e[k][i] for e in each) / n for i in range(3)] for k in ROUGE}


def same(a, b):
    return a == b or abs(a - b) <= 1e-12 * max(abs(a), abs(b))


class Check:
    def __init__(self, banyan, files):
        self.banyan, self.files, self.bad, self.compared = banyan, files, 0, 0
        self.dir = tempfile.TemporaryDirectory()
        self.paths = []
        for i, lines in enumerate(files):
            self.paths.append(os.path.join(self.dir.name, str(i)))
            with open(self.paths[-1], "w", encoding="utf-8", newline="") as f:
                f.write("".join(line + "\n" for line in lines))

    def run(self, references, *options):
        out = subprocess.run([self.banyan, "score", *options, *self.paths[:references + 1]], capture_output=True, text=True)
        if out.returncode:
            sys.exit(out.stderr)
        return out.stdout.split("\n")[:-1]

    def text(self, what, got, want):
        self.compared += 1
        if got != want:
            self.bad += 1
            print(f"{what}\n  banyan    {got}\n  reference {want}")

    def number(self, what, got, want):
        self.compared += 1
        if not same(got, want):
            self.bad += 1
            print(f"{what}: {got!r}, not {want!r}")

    def sacre(self, metric, name, references, options, width):
        hyp, refs = self.files[0], self.files[1:references + 1]
        what = " ".join(options) + f" {references} references"

        def line(score, signature):
            return score.format(width, False, signature.split("|version:")[0], False).replace(" = ", "|version:banyan = ", 1)

        def own(text):
            head, tail = text.split(" = ", 1)
            return head.split("|version:")[0] + "|version:banyan = " + tail

        score = metric(False).corpus_score(hyp, refs)
        m = metric(False)
        m.corpus_score(hyp, refs)
        signature = str(m.get_signature())
        got = self.run(references, *options, "--width", str(width))
        self.text(what, own(got[0]), line(score, signature))
        self.json(what, name, json.loads(self.run(references, *options, "--json")[0]), score)
        m = metric(True)
        texts = self.run(references, *options, "--width", str(width), "--sentence")
        objects = self.run(references, *options, "--json", "--sentence")
        assert len(texts) == len(objects) == len(hyp)
        for i, (h, *r) in enumerate(zip(hyp, *refs)):
            score = m.sentence_score(h, r)
            signature = str(m.get_signature())
            self.text(f"{what} line {i + 1} {h!r} {r!r}", own(texts[i]), line(score, signature))
            self.json(f"{what} line {i + 1} {h!r} {r!r}", name, json.loads(objects[i]), score)

    def json(self, what, name, got, score):
        self.number(what, got[name]["score"], score.score)
        if name == "bleu":
            for a, b in zip(got["bleu"]["precisions"], score.precisions):
                self.number(what + " precision", a, b)
            self.number(what + " bp", got["bleu"]["bp"], score.bp)
            self.number(what + " lengths", got["bleu"]["hyp_len"], score.sys_len)
            self.number(what + " lengths", got["bleu"]["ref_len"], score.ref_len)

    def rouge(self, references, stem):
        hyp, refs = self.files[0], self.files[1:references + 1]
        options = ["--metric", "rouge", "--line-break", "<n>"] + (["--stem"] if stem else [])
        what = " ".join(options) + f" {references} references"
        each = rouge(stem, hyp, refs)
        total = mean(each)
        got = json.loads(self.run(references, *options, "--json")[0])["rouge"]
        texts = self.run(references, *options)
        for k, text in zip(ROUGE, texts):
            p, r, f = total[k]
            self.text(what, text.split("|")[0] + " =" + text.split(" =", 1)[1], f"{k} = {100 * f:.2f} (P = {100 * p:.2f} R = {100 * r:.2f})")
            for key, value in zip(("precision", "recall", "f1"), total[k]):
                self.number(f"{what} {k} {key}", got[k][key], value)
        for i, line in enumerate(self.run(references, *options, "--json", "--sentence")):
            got = json.loads(line)["rouge"]
            for k in ROUGE:
                for key, value in zip(("precision", "recall", "f1"), each[i][k]):
                    self.number(f"{what} line {i + 1} {hyp[i]!r} {[r[i] for r in refs]} {k} {key}", got[k][key], value)


def compare(banyan, data):
    rng = random.Random(6)
    for language in ("de", "en"):
        real = open(f"{data}/test_2016_flickr.{language}", encoding="utf-8").read().split("\n")[:1000]
        check = Check(banyan, make(real, rng))
        for references, tokenize, lower in itertools.product((1, 3), ("13a", "none", "char", "intl"), (False, True)):
            options = ["--metric", "bleu", "--tokenize", tokenize] + (["--lowercase"] if lower else [])
            check.sacre(lambda eff: BLEU(tokenize=tokenize, lowercase=lower, effective_order=eff), "bleu", references, options, 2)
        for smooth in ("floor", "add-k", "none"):
            options = ["--metric", "bleu", "--smooth", smooth]
            check.sacre(lambda eff: BLEU(smooth_method=smooth, effective_order=eff), "bleu", 2, options, 4)
        for references, order, lower in itertools.product((1, 3), (0, 2), (False, True)):
            name = "chrf++" if order else "chrf"
            options = ["--metric", name] + (["--lowercase"] if lower else [])
            check.sacre(lambda eff: CHRF(word_order=order, lowercase=lower), name, references, options, 2)
        for references, stem in itertools.product((1, 3), (False, True)):
            check.rouge(references, stem)
        print(f"multi30k {language}: {len(real)} lines and {len(HARD)} hard ones, {check.compared} figures and lines, {check.bad} differ")
        if check.bad:
            return 1
    return 0


OWN = ["A tall man walks his old dog along the river.", "Two children are playing with a red ball in the garden.",
       "She was reading a book, and he was cooking dinner.", "The trains were delayed because of heavy snow.",
       "Ein gro\u00dfer Mann geht mit seinem Hund am Fluss spazieren.", "Zwei Kinder spielen im Garten mit einem roten Ball.",
       "Der Zug kam um 10:45 Uhr in K\u00f6ln an.", "The price rose by 3.5% to 1,250 dollars.", "\"Where are you going?\" asked the girl.",
       "Nobody knows why the bridges were closed yesterday."]


def values(*numbers):
    return " ".join(repr(float(x)) for x in numbers)


def record(folder):
    """The order of the fields is that of tests/test_score.c."""
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(7)
    files = make([spoil(rng, x) for x in OWN * 3], rng)
    for name, lines in zip(("hypotheses", "references1", "references2", "references3"), files):
        with open(f"{folder}/{name}.txt", "w", encoding="utf-8", newline="") as f:
            f.write("".join(x + "\n" for x in lines))
    hyp, refs = files[0], files[1:]
    out = []
    words, smooths = ("13a", "none", "char", "intl"), ("exp", "floor", "add-k", "none")

    def bleu(w, s, lower, eff, n, line):
        m = BLEU(tokenize=words[w], smooth_method=smooths[s], lowercase=bool(lower), effective_order=bool(eff))
        x = m.corpus_score(hyp, refs[:n]) if line < 0 else m.corpus_score([hyp[line]], [[r[line]] for r in refs[:n]])
        out.append(f"bleu {w} {s} {lower} {eff} {n} {line} " + values(x.score, *x.precisions, x.bp, x.sys_len, x.ref_len))

    def chrf(order, lower, space, eps, n, line):
        m = CHRF(word_order=order, lowercase=bool(lower), whitespace=bool(space), eps_smoothing=bool(eps))
        x = m.corpus_score(hyp, refs[:n]) if line < 0 else m.corpus_score([hyp[line]], [[r[line]] for r in refs[:n]])
        out.append(f"chrf {order} {lower} {space} {eps} {n} {line} " + values(x.score))

    for n in (1, 2, 3):
        for w, s, lower in itertools.product(range(4), range(4), (0, 1)):
            bleu(w, s, lower, 0, n, -1)
        for order, lower, space, eps in itertools.product((0, 1, 2), (0, 1), (0, 1), (0, 1)):
            chrf(order, lower, space, eps, n, -1)
        for stem in (0, 1):
            total = mean(rouge(bool(stem), hyp, refs[:n]))
            out.append(f"rouge {stem} {n} -1 " + values(*[x for k in ROUGE for x in total[k]]))
    for line in range(len(hyp)):
        n = 1 + line % 3
        bleu(line % 4, 0, line % 2, 1, n, line)
        bleu(3, 0, 0, 1, n, line)
        chrf(2, 0, 0, 0, n, line)
        for stem in (0, 1):
            each = rouge(bool(stem), [hyp[line]], [[r[line]] for r in refs[:n]])[0]
            out.append(f"rouge {stem} {n} {line} " + values(*[x for k in ROUGE for x in each[k]]))
    with open(f"{folder}/figures.txt", "w", encoding="utf-8") as f:
        f.write("".join(x + "\n" for x in out))
    print(f"{len(hyp)} texts, {len(out)} rows in {folder}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--banyan", default="build/banyan")
    parser.add_argument("--data", default="../shared/data/tasks/multi30k")
    parser.add_argument("--record", metavar="FOLDER")
    args = parser.parse_args()
    return record(args.record) if args.record else compare(args.banyan, args.data)


if __name__ == "__main__":
    sys.exit(main())
