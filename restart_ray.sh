#!/usr/bin/env bash
# restart_ray.sh: stop the Ray of this machine, if any runs, and start it anew. Safe to run again at any time.
#
# Needed only to train on several GPUs or nodes with a Ray that outlives the run: without it train_sql_agent.py starts
# and stops its own. `ray stop` ends every Ray process of this user, so no run may be going on.
#
#   RAY_HEAD       ADDRESS:PORT of a head node elsewhere, which this machine joins (default: this machine is the head)
#   RAY_PORT       port of the head node           (default 6379)
#   RAY_NODE_IP    interface it listens on         (default 127.0.0.1: reachable from this machine alone; at any other Ray
#                  listens on all addresses, who has its token runs code, and nothing is encrypted: close its ports)
#   RAY_AUTH_MODE  token or disabled               (default token: the one of ~/.ray/auth_token, made where it is missing)
#   RAY_NUM_GPUS   GPUs it may use                 (default: all that Ray finds; 1 pretended one to train on CPUs)
#   RAY_BLOCK      1: stay, and stop Ray when this is stopped, as batch systems want it (default 0)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
port=${RAY_PORT:-6379}
node_ip=${RAY_NODE_IP:-127.0.0.1}
num_gpus=${RAY_NUM_GPUS:-}
head=${RAY_HEAD:-}

fail() {
  echo "error: $1" >&2
  exit "${2:-1}"
}

ray=$root/.venv/bin/ray
[ -x "$ray" ] || ray=$(command -v ray) || fail "no ray in .venv or PATH: run \`bash utils/setup.sh\`" 2
[[ $port =~ ^[0-9]{1,5}$ ]] && ((10#$port >= 1 && 10#$port <= 65535)) || fail "RAY_PORT=$port: must be 1 to 65535" 2
[[ -z $num_gpus || $num_gpus =~ ^[0-9]+$ ]] || fail "RAY_NUM_GPUS=$num_gpus: must be a whole number" 2

unset RAY_ADDRESS # it would send `ray start --head` to another cluster
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
export RAY_worker_niceness=0 # else its workers, which are the training, wait for every other program of the machine
if [ -n "$head" ]; then
  [ "$node_ip" != 127.0.0.1 ] || fail "RAY_HEAD=$head needs RAY_NODE_IP, this machine's address in their network" 2
  [ "$RAY_AUTH_MODE" = disabled ] || [ -n "${RAY_AUTH_TOKEN:-}" ] || [ -s ~/.ray/auth_token ] ||
    fail "no ~/.ray/auth_token: copy the one of $head, readable by you alone" 2
fi
# Else Ray turns 127.0.0.1 into the machine's address and listens on all of them.
[ "$node_ip" != 127.0.0.1 ] || export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
log=$(mktemp -t restart_ray.XXXXXX)
trap 'rm -f "$log"' EXIT

quietly() {
  "$@" >"$log" 2>&1 && return
  cat "$log" >&2
  return 1
}

echo "stopping Ray"
quietly "$ray" stop || quietly "$ray" stop --force || fail "Ray does not stop; see above"

args=("--node-ip-address=$node_ip" --disable-usage-stats)
[ -z "$num_gpus" ] || args+=("--num-gpus=$num_gpus")
if [ -n "$head" ]; then
  args+=("--address=$head")
else
  if (exec 3<>"/dev/tcp/$node_ip/$port") 2>/dev/null; then
    fail "port $port is used by something else than Ray. End it, or choose another: RAY_PORT=6380 bash restart_ray.sh" 2
  fi
  [ "$RAY_AUTH_MODE" = disabled ] || (umask 077 && quietly "$ray" get-auth-token --generate) || fail "Ray has no token; see above"
  args+=(--head "--port=$port" --include-dashboard=false)
fi
echo "starting Ray: ray start ${args[*]}"
[ "${RAY_BLOCK:-0}" != 1 ] || exec "$ray" start "${args[@]}" --block
quietly "$ray" start "${args[@]}" || fail "Ray does not start; see above"

if [ -n "$head" ]; then
  echo "this machine is one of $head now"
else
  echo "Ray runs at $node_ip:$port. Training on this machine finds it by itself. Another one joins it with ~/.ray/auth_token"
  echo "of here by RAY_HEAD=$node_ip:$port RAY_NODE_IP=ITS_ADDRESS bash restart_ray.sh, if RAY_NODE_IP here is not 127.0.0.1"
fi
echo "stop it with: $ray stop"
