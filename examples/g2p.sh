#!/bin/sh
# g2p.sh - makes a model directory of the trained GRU encoder-decoder in the Python package g2p_en 2.1.0 (Park and Kim 2019), which
# spells English words in ARPAbet phonemes:
#
#   pip download --no-deps g2p_en==2.1.0 && unzip g2p_en-*.whl
#   sh examples/g2p.sh g2p_en g2p
#   banyan translate g2p bicycle                    # B AY1 S IH0 K AH0 L
#
# Environment: BANYAN (banyan).
set -eu
[ $# -eq 2 ] || { echo "usage: g2p.sh PACKAGE-FOLDER OUT" >&2; exit 2; }
weights=$1/checkpoint20.npz out=$2

# The arrays have PyTorch's layout; only their names differ.
layer() { # OLD NEW
    for part in w_ih:weight_ih w_hh:weight_hh b_ih:bias_ih b_hh:bias_hh; do
        echo "--rename=$1_${part%:*}=$2.rnn.${part#*:}_l0"
    done
}
# shellcheck disable=SC2046 # several arguments
"${BANYAN:-banyan}" convert "$weights" "$out" $(layer enc encoder) $(layer dec decoder) --rename enc_emb=encoder.embedding.weight \
    --rename dec_emb=decoder.embedding.weight --rename fc_w=output.weight --rename fc_b=output.bias

# Logits are read off the state itself: no attention, no readout. Texts begin with <s> and end with </s>.
cat >"$out/config.json" <<JSON
{"architectures": ["RNNForConditionalGeneration"], "model_type": "rnn-seq2seq", "cell": "gru", "attention": "none",
 "bidirectional": false, "readout": false, "hidden_size": 256, "embedding_size": 256, "num_layers": 1, "dropout": 0.0,
 "vocab_size": 29, "decoder_vocab_size": 74, "share_encoder_decoder_embeddings": false, "tie_word_embeddings": false,
 "is_encoder_decoder": true, "pad_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 3}
JSON
cat >"$out/generation_config.json" <<JSON
{"num_beams": 1, "max_new_tokens": 20, "decoder_start_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
JSON

# vocabulary SPLITTER TOKEN...: a tokenizer.json of whole tokens that closes a text with </s>.
vocabulary() {
    splitter=$1
    shift
    printf '%s\n' "$@" | awk -v splitter="$splitter" '
        { vocab = vocab (NR > 1 ? ", " : "") "\"" $0 "\": " NR - 1 }
        /^</ { added = added (added ? ", " : "") "{\"id\": " NR - 1 ", \"content\": \"" $0 "\", \"single_word\": false, \"lstrip\": false, " \
                   "\"rstrip\": false, \"normalized\": false, \"special\": true}" }
        $0 == "</s>" { end = NR - 1 }
        END {
            close_ = "{\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}"
            text = "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
            pair = "{\"Sequence\": {\"id\": \"B\", \"type_id\": 0}}"
            print "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [" added "], \"normalizer\": null,"
            print " \"pre_tokenizer\": " splitter ","
            print " \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [" text ", " close_ "], \"pair\": [" text ", " close_ ", " pair ", " close_ "],"
            print "  \"special_tokens\": {\"</s>\": {\"id\": \"</s>\", \"ids\": [" end "], \"tokens\": [\"</s>\"]}}},"
            print " \"decoder\": null, \"model\": {\"type\": \"WordLevel\", \"vocab\": {" vocab "}, \"unk_token\": \"<unk>\"}}"
        }'
}
every='{"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false}'
vocabulary "$every" '<pad>' '<unk>' '</s>' a b c d e f g h i j k l m n o p q r s t u v w x y z >"$out/tokenizer.json"
vocabulary '{"type": "WhitespaceSplit"}' '<pad>' '<unk>' '<s>' '</s>' AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 \
    AY0 AY1 AY2 B CH D DH EH0 EH1 EH2 ER0 ER1 ER2 EY0 EY1 EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0 OY1 OY2 \
    P R S SH T TH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH >"$out/target_tokenizer.json"
