#!/usr/bin/env bash
# train.sh [flags of train_sql_agent.py]: the production launch against a running `agl store`.
#
# Reads .env (what is already in the environment wins), waits for the store, then trains. Flags are passed on and win.
#   STORE_ADDRESS   the store                        (default http://localhost:9999; start: agl store --host 127.0.0.1)
#   BASE_MODEL      model folder or hub name         (default: Qwen/Qwen3-0.6B; the tiny policy without a GPU)
#   N_GPUS          GPUs to train on                 (default: all that the driver shows, else 1)
#   RECIPE          folder of recipes/ or TOML file  (default: qwen3_0_6b; smoke_cpu without a GPU)
#   STORE_WAIT_S    how long to wait for the store   (default 60)
# Example:  BASE_MODEL=/models/Qwen2.5-7B-Instruct N_GPUS=8 bash sql_agent/train.sh --lora
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
python=$root/.venv/bin/python
[ -x "$python" ] || { echo "error: $python is missing: run \`bash utils/setup.sh\`" >&2; exit 2; }

# python-dotenv reads .env here as in train_sql_agent.py; the shell would run what stands in it.
read_env='import sys, dotenv
for name, value in dotenv.dotenv_values(sys.argv[1]).items():
    if value: print(f"{name}={value}", end="\0")'
if [ -f "$root/.env" ]; then
  while IFS= read -r -d '' pair; do
    [[ -v ${pair%%=*} ]] || export "${pair?}"
  done < <("$python" -c "$read_env" "$root/.env")
fi

store=${STORE_ADDRESS:-http://localhost:9999}
store=${store%/}
wait_s=${STORE_WAIT_S:-60}
# Arithmetic would run what stands in it.
[[ $wait_s =~ ^[0-9]{1,6}$ ]] || { echo "error: STORE_WAIT_S=$wait_s: must be a whole number of seconds" >&2; exit 2; }
gpus=$( (nvidia-smi -L 2>/dev/null || true) | grep -c '^GPU ' || true)
n_gpus=${N_GPUS:-$((gpus > 0 ? gpus : 1))}

store_answers() {
  "$python" -c 'import sys, httpx; sys.exit(not httpx.get(sys.argv[1], timeout=5, trust_env=False).is_success)' \
    "$store/v1/agl/health" 2>/dev/null
}

start=$SECONDS
until store_answers; do
  if ((SECONDS - start >= 10#$wait_s)); then
    echo "error: STORE_ADDRESS=$store: no agent-lightning store answers there after $wait_s s. Start one with" \
      "\`$root/.venv/bin/agl store --host 127.0.0.1 --port 9999\`, or correct the address" >&2
    exit 2
  fi
  ((SECONDS == start)) && echo "waiting for the store at $store"
  sleep 1
done

args=(--llm-proxy --external-store-address "$store" --n-gpus "$n_gpus")
[ -z "${BASE_MODEL:-}" ] || args+=(--model "$BASE_MODEL")
[ -z "${RECIPE:-}" ] || args+=(--recipe "$RECIPE")
export AGL_MANAGED_STORE=0
exec "$python" "$here/train_sql_agent.py" "${args[@]}" "$@"
