#!/usr/bin/env bash
# train_with_store.sh PORT [flags of train_sql_agent.py]
# Builds the data, starts a store that lasts on 127.0.0.1:PORT (runs/store-PORT.db), trains against it, and stops it again.
set -euo pipefail
cd "$(dirname "$0")/.."
port=$1
shift
bin=$PWD/.venv/bin
mkdir -p .cache

if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
  echo "error: port $port is in use. Stop what listens there, or choose another port: make train PORT=9998" >&2
  exit 2
fi

"$bin/python" -m agl_plugin.store --port "$port" --path "runs/store-$port.db" >.cache/store.log 2>&1 &
store=$!
trap 'kill "$store" 2>/dev/null; wait "$store" 2>/dev/null || true' EXIT

"$bin/python" -m sql_agent.data.build

echo "waiting for the store on port $port"
for _ in $(seq 120); do
  kill -0 "$store" 2>/dev/null || { echo "error: the store ended; see .cache/store.log" >&2; exit 1; }
  (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
  sleep 0.5
done

# The store outlives the trainer, whichever way that ends: Ctrl-C reaches it by itself, a TERM is passed on.
trap : INT
trap 'kill -TERM "$trainer" 2>/dev/null || true' TERM
(
  trap - INT TERM
  cd sql_agent
  AGL_MANAGED_STORE=0 exec "$bin/python" train_sql_agent.py --llm-proxy --external-store-address "http://localhost:$port" "$@"
) &
trainer=$!
while kill -0 "$trainer" 2>/dev/null; do wait "$trainer" || true; done
wait "$trainer"
