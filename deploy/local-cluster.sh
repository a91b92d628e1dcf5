# Sourced by scripts that need a coordinator and one CPU worker on free loopback ports of this machine.
#
#   source deploy/local-cluster.sh
#   start_cluster BIN FOLDER [WORKER ARGUMENT...]   sets OCTAVO_SERVER (exported) and METRICS_ADDRESS
#   stop_cluster                                    also runs when the script ends, fails or is interrupted
#
# Logs: FOLDER/octavod.log and FOLDER/worker.log.

cluster_processes=()

stop_cluster() {
  local process
  # The worker, started last, goes first: it stops its trainer and leaves no child behind.
  for process in "${cluster_processes[@]}"; do kill -TERM "$process" 2>/dev/null || true; done
  for process in "${cluster_processes[@]}"; do
    for _ in $(seq 150); do kill -0 "$process" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
  cluster_processes=()
}

cluster_fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

start_cluster() {
  local bin=$1 folder=$2 addresses=$2/coordinator/addresses.json
  shift 2
  trap stop_cluster EXIT
  trap 'stop_cluster; trap - EXIT; exit 130' INT
  trap 'stop_cluster; trap - EXIT; exit 143' TERM

  mkdir -p "$folder"
  "$bin/octavod" --data-dir "$folder/coordinator" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 \
    2>"$folder/octavod.log" &
  cluster_processes=($!)
  for _ in $(seq 100); do
    [ -s "$addresses" ] && break
    kill -0 "${cluster_processes[0]}" 2>/dev/null ||
      { tail -n 5 "$folder/octavod.log" >&2; cluster_fail "octavod did not start"; }
    sleep 0.1
  done
  [ -s "$addresses" ] || cluster_fail "octavod did not say where it listens within 10 s; see $folder/octavod.log"
  OCTAVO_SERVER=$(sed -n 's/.*"grpc": *"\([^"]*\)".*/\1/p' "$addresses")
  METRICS_ADDRESS=$(sed -n 's/.*"metrics": *"\([^"]*\)".*/\1/p' "$addresses")
  export OCTAVO_SERVER
  "$bin/octavo-worker" --server "$OCTAVO_SERVER" --work-dir "$folder/worker" --worker-id local "$@" \
    2>"$folder/worker.log" &
  cluster_processes=($! "${cluster_processes[@]}")
  for _ in $(seq 100); do
    "$bin/octavo" workers 2>/dev/null | grep -q ' connected ' && return
    kill -0 "${cluster_processes[0]}" 2>/dev/null ||
      { tail -n 5 "$folder/worker.log" >&2; cluster_fail "octavo-worker did not start"; }
    sleep 0.1
  done
  cluster_fail "octavo-worker did not connect within 10 s; see $folder/worker.log"
}

# json_field NAME: the first string or number under that key in a JSON document printed by `octavo -o json`, on standard input.
json_field() {
  sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" | head -n 1
}
