#!/usr/bin/env bash
# Makes the small reward model on this machine's processor: pairs from the bundled questions, training from the tiny
# policy, the scale, and the accuracy on the entities of the test split. Usage: train_reward_model.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."

OUT=${1:-.cache/reward_model}
PY=.venv/bin/python
[ -x "$PY" ] || PY=python3

"$PY" -m sql_agent.data.build
BASE=$("$PY" -m sql_agent.tiny_policy.build)
"$PY" -m reward_model.bundled_pairs --out "$OUT/pairs"
"$PY" -m reward_model.reward_modeling --dataset_name "$OUT/pairs/train.jsonl" --eval_dataset "$OUT/pairs/val.jsonl" \
  --model_name_or_path "$BASE" --output_dir "$OUT/model" --overwrite_output_dir true --max_steps 300 \
  --per_device_train_batch_size 16 --learning_rate 1e-3 --lr_scheduler_type cosine --warmup_ratio 0.05 \
  --eval_strategy steps --eval_steps 100 --save_strategy no
"$PY" utils/reward_scale.py --model_path "$OUT/model" --labelled "$OUT/pairs/labelled.jsonl"
"$PY" -m reward_model.inference --model_path "$OUT/model" --pairs "$OUT/pairs/test.jsonl" | tee "$OUT/test_metrics.json"
