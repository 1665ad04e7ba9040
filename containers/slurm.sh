#!/bin/bash
#SBATCH --job-name=agentgrpo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --mem=0
#SBATCH --time=1-00:00:00
# A run over the nodes of a Slurm job (docs/70-scale.md), from a checkout that all nodes see at the same path, set up by
# `make setup` before:    sbatch containers/slurm.sh --recipe qwen2_5_7b
# The run itself (loop, gateway, store, runners) is on the first node. Ray listens on the nodes' addresses, with a token
# that is this job's alone.
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
gpus=${SLURM_GPUS_ON_NODE:?this job has no GPUs}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --all-ip-addresses | cut -d ' ' -f 1)
RAY_AUTH_TOKEN=$(openssl rand -hex 32)
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_BLOCK=1

RAY_NODE_IP=$address srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" bash restart_ray.sh &
for _ in $(seq 60); do
  srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" .venv/bin/ray health-check --address "$address:6379" && break
  sleep 2
done
if ((SLURM_NNODES > 1)); then
  # shellcheck disable=SC2016  # each node has an address of its own
  RAY_HEAD=$address:6379 srun --overlap --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" \
    bash -c 'RAY_NODE_IP=$(hostname --all-ip-addresses | cut -d " " -f 1) bash restart_ray.sh' &
fi
# Nodes that are still joining: the run says what Ray has if they are too few.
sleep 20
RAY_ADDRESS=$address:6379 srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" .venv/bin/agentgrpo train \
  --n-gpus "$gpus" --set trainer.n_nodes="$SLURM_NNODES" "$@"
