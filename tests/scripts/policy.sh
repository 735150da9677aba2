#!/bin/bash
# Reinforcement learning for text from the command line: a reward that can be checked is learned, commands that misbehave do no harm,
# and runs that are killed end with the same bytes.
. "$(dirname "$0")/lib/common.sh"
own_folder
cd "$tmp" || exit 1

# A model of characters that has seen digits in order.
awk 'BEGIN { for (i = 0; i < 600; i++) print (i * 7919) % 100 "=" int(i / 7) % 10 }' >text
awk 'BEGIN { for (i = 0; i < 40; i++) printf "{\"prompt\": \"%d=\", \"answer\": \"%d\"}\n", (i * 7919) % 100, i % 10 }' >prompts.jsonl
"$BANYAN" train --data text --tokenizer char --out base --layers 1 --heads 2 --width 32 --context 16 --batch-size 8 --max-steps 40 \
    --warmup-steps 5 --threads 1 --quiet >log 2>&1 || {
    echo "not ok a model to start from"
    cat log >&2
    exit 1
}

# align METHOD OUT OPTIONS...
align() {
    local method=$1 out=$2
    shift 2
    run align base/last --method "$method" --data prompts.jsonl --out "$out" --stop '\n' --max-new-tokens 6 --batch-size 4 \
        --learning-rate 3e-3 --lr-scheduler constant --warmup-steps 0 --threads 1 --quiet "$@"
}
# measure NAME RUN: a measure of the last step.
measure() { tail -n 1 "$2/metrics.jsonl" | sed -n "s|.*\"$1\": \\([-0-9.e]*\\).*|\\1|p"; }
above() { awk "BEGIN { exit !(${1:-0} > $2) }"; }

for method in grpo ppo rloo reinforce; do
    align $method $method --reward 'regex:^7+$' --num-generations 8 --max-steps 40 --temperature 1 --beta 0.01
    check "$method learns" works 'model:'
    check "$method: answers are as wanted in the end" above "$(measure reward $method)" 0.6
    check "$method: the divergence is measured" above "$(measure kl $method)" 0
done
check "measures have the names that people know" grep -q '"frac_reward_zero_std": .*"rewards/regex/mean": .*"entropy": .*"clip_ratio/region_mean": .*"completions/mean_length": ' grpo/metrics.jsonl
check "PPO's, too" grep -q '"objective/kl": .*"objective/scores": .*"policy/approxkl_avg": .*"loss/value_avg": .*"val/ratio": ' ppo/metrics.jsonl
check "answers are written down" grep -q '"step": 40, "prompt": "[0-9]*=", "answer": "7*", "expected": "[0-9]", "tokens": [2-7], "ended": ' grpo/samples.jsonl
check "the reward is drawn" grep -q 'mean reward' grpo/loss.svg

# ---- commands ----
printf '#!/bin/sh\nwhile read -r line; do case $line in *7*) echo 1;; *) echo 0;; esac; done\n' >good
printf '#!/bin/sh\nwhile read -r line; do [ -e crashed ] || { : >crashed; exit 1; }; echo 0.5; done\n' >once
printf '#!/bin/sh\nsleep 1000\n' >hangs
printf '#!/bin/sh\nwhile read -r line; do echo "reward: 1"; done\n' >talks
chmod +x good once hangs talks
align grpo c1 --reward command:./good --reward-format text --max-steps 30
check "a command rewards" above "$(measure reward c1)" 0.8
align grpo c2 --reward command:./once --reward-processes 1 --max-steps 2
check "a crash is survived" works 'model:'
check "and counted" [ "$(measure reward_failures/crashes c2)" = 1 ]
align grpo c3 --reward command:./hangs --reward-timeout 0.1 --reward-retries 0 --max-steps 2
check "a command that hangs is named" fails 1 './hangs" gave no number for answer .* in 1 attempts: no line within 0.1 s'
check "a run that did not begin leaves nothing" [ ! -e c3 ]
align grpo c4 --reward command:./talks --max-steps 2
check "so is one that prints nonsense" fails 1 'in 3 attempts: it printed no number but "reward: 1"'
align grpo c5 --reward command:./talks --reward-retries 0 --reward-fallback -1 --max-steps 2
check "a fallback takes its place" works 'model:'
check "and is counted" [ "$(measure reward_failures/fallbacks c5)" = 64 ]
# A command fails in the middle of a run: what was learned is kept.
printf '#!/bin/sh\nwhile read -r line; do [ -e broken ] && exit 1; echo 0.5; done\n' >breaks
chmod +x breaks
align grpo c6 --reward command:./breaks --max-steps 4 --save-steps 2
sha256sum <c6/last/model.safetensors >before
: >broken
align grpo c6 --reward command:./breaks --max-steps 8 --save-steps 2
check "a command that breaks later ends the run" fails 1 'ended with status 1'
check "whose last checkpoint stays" cmp before <(sha256sum <c6/last/model.safetensors)
rm broken
align grpo c6 --reward command:./breaks --max-steps 8 --save-steps 2
check "and goes on when it works again" works '^4 steps'
for name in hangs good once talks breaks; do
    check "no process of ./$name is left" [ -z "$(pgrep -f "^/bin/sh ./$name\$")" ]
done

# A run that is killed takes its commands along, and what they have started.
# living GROUPS: the processes in these groups, but for dead ones that nobody has waited for.
living() { ps -A -o pgid= -o stat= -o args= | awk -v groups=" $* " 'index(groups, " " $1 " ") && $2 !~ /^Z/'; }
# nothing_left COMMAND PROCESSES: the run is killed once so many processes of the command sleep in each of its two groups.
nothing_left() {
    local pid groups='' i
    "$BANYAN" align base/last --method grpo --data prompts.jsonl --out c7 --max-new-tokens 6 --batch-size 4 --reward "command:$1" \
        --reward-processes 2 --reward-timeout 600 --threads 1 --quiet >c7.log 2>&1 </dev/null &
    pid=$!
    for ((i = 0; i < 300; i++)); do
        groups=$(ps -A -o ppid= -o pgid= | awk -v pid=$pid '$1 == pid { print $2 }' | sort -u)
        [ "$(living $groups | grep -c ' sleep 1000$')" -ge $((2 * $2)) ] && break
        sleep 0.1
    done
    kill -9 $pid
    wait $pid 2>/dev/null
    [ $i -lt 300 ] && [ "$(wc -w <<<$groups)" = 2 ] || return 1
    for ((i = 0; i < 50; i++)); do
        [ -z "$(living $groups)" ] && return
        sleep 0.1
    done
    living $groups
    for i in $groups; do kill -9 -- "-$i"; done
    return 1
}
printf '#!/bin/sh\ntrap "" TERM HUP INT\nsleep 1000 &\n(sleep 1000; echo 1) &\nsleep 1000\n' >starts
chmod +x starts
check "a command that hangs ends with a run that is killed" nothing_left 'sleep 1000' 1
check "so does all that a script has started" nothing_left ./starts 3

# ---- resuming ----
# The measures without what the clock decides.
course() { sed 's/, "ms": [^,}]*//; s/, "tokens_per_s": [^,}]*//; s/, "speed[^,}]*//g' "$1/metrics.jsonl"; }
same() {
    local file
    for file in model.safetensors last/optimizer.safetensors last/policy_state.json samples.jsonl; do
        cmp "$1/$file" "$2/$file" || return 1
    done
    cmp <(course "$1") <(course "$2")
}
# killed OUT METHOD OPTIONS...: the run is killed again and again, and ends in the end.
killed() {
    local out=$1 method=$2 i pid
    shift 2
    for i in 1 2 3; do
        (exec "$BANYAN" align base/last --method "$method" --data prompts.jsonl --out "$out" --stop '\n' --max-new-tokens 6 --batch-size 4 \
            --learning-rate 3e-3 --lr-scheduler constant --warmup-steps 0 --threads 1 --quiet "$@" >killed.log 2>&1) &
        pid=$!
        sleep "0.$((RANDOM % 4 + 2))"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
    done
    align "$method" "$out" "$@"
}
options=(--reward sorted:partial --reward command:./good --max-steps 60 --save-steps 5 --sample-steps 1 --data pairs.jsonl)
awk 'BEGIN { for (i = 0; i < 40; i++) printf "{\"prompt\": \"%d=\"}\n", 1000 + (i * 7919) % 9000 }' >pairs.jsonl
for method in grpo ppo; do
    align $method whole-$method "${options[@]}"
    check "$method: a run for comparison" works 'model:'
    killed parts-$method $method "${options[@]}"
    check "$method: a run that was killed ends alike" same whole-$method parts-$method
done
check "with the critic" cmp whole-ppo/last/critic/model.safetensors parts-ppo/last/critic/model.safetensors

# ---- what a run keeps ----
echo '{{ messages[0].content }}=' >marked.jinja
printf '{"prompt": [{"role": "user", "content": "4"}]}\n' >said.jsonl
marked() { run align base/last --method grpo --data said.jsonl --reward json --out marked --max-new-tokens 2 --batch-size 1 --threads 1 "$@"; }
marked --chat-template marked.jinja --max-steps 1
check "one prompt" works 'model:'
echo '{{ messages[0].content }}' >other.jinja
marked --chat-template other.jinja --max-steps 2
check "a run does not go on with another template" fails 1 'another chat template'
align ppo kept --reward length:3 --max-steps 1
for option in '--value-clip 0.5' '--stop x' '--kl-estimator k3' '--whiten-rewards' '--optimizer sgd'; do
    # shellcheck disable=SC2086 # options and their values
    align ppo kept --reward length:3 --max-steps 2 $option
    check "a run does not go on with another ${option%% *}" fails 1 'was started with'
done
align ppo kept --reward length:3 --max-steps 2
check "and as it was" works '^1 step'

# ---- a reward model of conversations ----
echo '{% for m in messages %}{% if m.role == "user" %}9{{ m.content }}={% else %}{{ m.content ~ "\n" }}{% endif %}{% endfor %}' >own.jinja
awk 'BEGIN { for (i = 0; i < 12; i++) printf "{\"chosen\": [{\"role\": \"user\", \"content\": \"%d\"}, {\"role\": \"assistant\", \"content\": \"7\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"%d\"}, {\"role\": \"assistant\", \"content\": \"1\"}]}\n", i, i }' >judged.jsonl
run align base/last --method reward --data judged.jsonl --chat-template own.jinja --out judge --max-steps 9 --learning-rate 1e-2 --threads 1 --quiet
check "a reward model of conversations" works 'model:'
echo '{"prompt": [{"role": "user", "content": "42"}]}' >asked.jsonl
echo '{% for m in messages %}{{ m.content }}={% endfor %}' >plain.jinja
run align base/last --method grpo --data asked.jsonl --chat-template plain.jinja --out judged --reward model:judge --max-new-tokens 4 \
    --stop '\n' --max-steps 1 --sample-steps 1 --threads 1 --quiet --num-generations 8 --batch-size 1 --learning-rate 1e-3
check "it judges conversations" works 'model:'
check "the chat template is saved with the model" grep -q '"chat_template"' judged/tokenizer_config.json
answer=$(sed -n '1s/.*"answer": "\([0-9=]*\)".*/\1/p' judged/samples.jsonl)
reward=$(sed -n '1s/.*"reward": \([-0-9.e]*\).*/\1/p' judged/samples.jsonl)
value=$("$BANYAN" classify judge "942=$answer"$'\n' --json --threads 1 | sed -n 's/.*"value": *\([-0-9.e]*\).*/\1/p')
check "they are rendered with its template" awk "BEGIN { d = $reward - $value; exit !(d * d < 1e-10) }"

# ---- losses of GRPO ----
for loss in dapo grpo dr_grpo bnpo gspo cispo sapo; do
    align grpo of-$loss --reward 'regex:^7' --grpo-loss $loss --num-iterations 2 --num-generations 4 --max-steps 20 --temperature 1
    check "--grpo-loss $loss" works 'model:'
    check "--grpo-loss $loss learns" above "$(measure reward of-$loss)" 0.3
done
check "the measure of cispo" grep -q '"cispo_clip_ratio"' of-cispo/metrics.jsonl
align grpo sided --reward 'regex:^7' --num-iterations 2 --epsilon 0.1 --delta 1.5 --top-entropy-quantile 0.5 --max-steps 2
check "two-sided clipping, tokens of high entropy" works 'model:'
check "--epsilon holds for both ends" grep -q '"epsilon_high": 0.1,' sided/run.json
align rloo normal --reward 'regex:^7' --normalize-advantages --max-steps 2
check "--normalize-advantages" works 'model:'

# ---- refused ----
align grpo bad --reward json --epsilon 0.1
check "clipping where all ratios are 1" fails 2 'are all 1 with one update per step'
align reinforce bad --reward json --epsilon-high 0.1
check "the same of REINFORCE" fails 2 'are all 1 with one update per step'
align grpo bad --reward json --num-iterations 2 --grpo-loss sapo --epsilon 0.1
check "clipping of a loss that does not clip" fails 2 'sapo clips no ratios'
align grpo bad --reward json --num-iterations 2 --delta 1.1
check "a limit below the clipped ratios" fails 1 'delta is 1.1; it must be above 1 + epsilon_high, 1.2'
align reinforce bad --reward json --dropout 0.1 --epsilon 0.1 --max-steps 1
check "with dropout ratios differ" works 'model:'
rm -r bad
align grpo bad
check "no reward" fails 2 'no reward'
align grpo bad --reward nothing
check "an unknown reward" fails 1 'unknown reward "nothing"'
align grpo bad --reward json --reward-weights 1,2
check "weights that do not fit" fails 2 'not 1 numbers'
align grpo bad --reward model:base/last
check "a model that does not judge" fails 1 'a reward model classifies texts'
align grpo bad --reward json --num-generations 1
check "answers without another to compare with" fails 1 'needs 2 or more generations, not 1'
align grpo bad --reward json --vf-coef 0.5
check "an option of another method" fails 2 '--vf-coef is for ppo, not for grpo'
align grpo bad --reward json --reward-timeout 3
check "an option of another reward" fails 2 '--reward-timeout needs --reward command:'
align ppo grpo --reward json
check "a folder with a run of another method" fails 1 'was started with method grpo, but this command asks for ppo'
"$BANYAN" train --model lstm --data text --tokenizer char --out lstm --layers 1 --width 16 --seq 16 --max-steps 2 --threads 1 --quiet >log 2>&1
run align lstm --method ppo --data prompts.jsonl --out bad --reward json --max-new-tokens 4 --batch-size 4 --max-steps 2 --threads 1 --quiet
check "a critic without values of tokens" fails 1 'an LSTMForSequenceClassification has a number for a text'
check "nothing is left of all that" [ ! -e bad ]
exit $failed
