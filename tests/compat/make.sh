#!/bin/bash
# Writes a sample of every file that a version of gpuws writes, on simulated machines, and what its
# commands print about them. Run it from the root of the repository, as root or with user namespaces:
#
#     tests/compat/make.sh GPUWS DIR
#
# GPUWS is the program, with libnvml_sim.so and nvml-sim-process beside it, and DIR a new directory.
# The namespaces keep the host's name, cgroups and processes out of the samples.
set -euo pipefail
if [ -z "${MAKE_INSIDE-}" ]; then
    [ "$(id -u)" = 0 ] || map=--map-root-user
    exec env MAKE_INSIDE=1 unshare ${map-} --uts --cgroup --pid --fork --mount-proc --kill-child \
        setsid --wait bash "$0" "$@"
fi
hostname gpu01
export TZ=UTC PATH=$(dirname "$(realpath "$1")"):$PATH
unset GPUWS_SIM_SESSION GPUWS_CLAIMS CUDA_VISIBLE_DEVICES
commands=$(realpath tests/compat/commands)
golden=$(realpath crates/cli/tests/golden)
mkdir "$2"
cd "$2"
export DIR=$PWD
mkdir json session session/leases session/leases/queue session/leases-mig

# The input of some commands.
cp "$golden/oom/fragmented.log" "$golden/place/first.pbtxt" "$golden/place/llama/config.json" .
cp "$OLDPWD/sim-fixtures/machines/p100-ghost/nvidia-smi.txt" smi.txt

# A host that answers as this version does.
printf '#!/bin/sh\ncat "$DIR/json/status.json"\n' > ssh
chmod +x ssh

# Recordings of a machine, histories, and the memory of a job.
gpuws --sim labbox record --names --looks 2 labbox.gpuws
gpuws --sim p100-ghost record --names p100-ghost.gpuws
gpuws --sim mig-a100 record mig-a100.gpuws
gpuws --sim sick-gpus record --names sick-gpus.gpuws
gpuws --sim p100-ghost record --for 2m --every 10s --names history
gpuws --sim labbox record --for 20s --every 10s anonymous
gpuws mem convert "$golden/memory/step.jsonl" -o job.jsonl

# Leases in every state, the queue, the audit log, and what is printed about real processes.
cat > script <<'SCRIPT'
set -eu
cd "$DIR/session"
claims=$GPUWS_SIM_SESSION/claims
until_so() { n=0; until "$@" > /dev/null 2>&1; do n=$((n+1)); [ $n -lt 1200 ]; sleep 0.05; done; }
count() { [ "$(find "$claims" -name "$1-*" | wc -l)" = "$2" ]; }
json() { name=$1; shift; gpuws --json "$@" > "$name.json" || true; }
used() { gpuws --json leases | grep -q '"gpu_uuid"'; }
listed() { gpuws --json status -i 9 | grep -q "\"pid\": $job,"; }
use() { cd "$GPUWS_SIM_SESSION"; exec setsid ./nvml-sim-process --use "$@"; }
cp "$GPUWS_SIM_SESSION/session.json" .

json reset reset 0 --yes
# An ended lease, whose command leaves a process behind.
gpuws run --gpu 0 --report report -- bash -c "$(declare -f use); use visible:500 & sleep 1; exit 7" || true
tr -d '\n' < report > run.json; rm report
use 9:3000 & job=$!
until_so listed
json holders holders
json reap-plan reap --pid $job
json reap reap --pid $job --yes
# With another process of its group.
set -m
bash -c 'cd "$GPUWS_SIM_SESSION"; ./nvml-sim-process --use 9:3000 & echo $! > job; sleep 100; true' &
group=$!
set +m
until_so test -s "$GPUWS_SIM_SESSION/job"
job=$(cat "$GPUWS_SIM_SESSION/job")
until_so listed
json reap-group reap --pid $job --scope group --yes
kill -- -$group
cp "$GPUWS_SIM_SESSION/audit.jsonl" .

# A GPU that is named, two of any, a share of one that may be in use, a lease within a lease, and
# two places in the queue.
sleep 1000 & owner=$!
json claim-hold claim --gpu 6 --export --for $owner
gpuws run -n 2 --not 0,4-7 --min-free 1GiB --capability 6.0 -- sleep 1000 & jobs=$!
until_so count lease 2
(cd "$GPUWS_SIM_SESSION"; exec gpuws run --gpu 7 --mem 2GiB --accept-used -- ./nvml-sim-process --use visible:1000) &
jobs="$jobs $!"
until_so count lease 3
gpuws run -n 2 --gpu 4,5 -- gpuws run -n 1 -- sleep 1000 & jobs="$jobs $!"
until_so count lease 5
gpuws run -n 12 -- true & jobs="$jobs $!"
until_so count place 1
gpuws run --with 6 -n 2 --mem 1GiB -- true & jobs="$jobs $!"
until_so count place 2
until_so used
cp "$claims"/u*/*-* leases
cp "$claims"/u*/queue/place-* leases/queue
gpuws record --for 2s --every 1s --names leased
json leases leases
json claim claim -n 2
json status status -i 6,7
gpuws export --textfile metrics.prom
json claim-release claim --release "$(grep -o '"lease": "[^"]*' claim-hold.json | cut -d'"' -f4)"
kill $jobs $owner
wait || true
SCRIPT
gpuws sim twelve-gpus --live -- bash script
gpuws sim mig-a100 --live -- bash -c \
    'gpuws claim --mig --export > /dev/null; cp "$GPUWS_SIM_SESSION"/claims/u*/lease-* session/leases-mig'
rm script

# What is printed about recordings: the same at any time.
export PATH=$DIR:$PATH
while read -r name code _ words; do
    got=0
    gpuws --json $words > "json/$name.json" || got=$?
    [ $got = $code ] || { echo "gpuws $words: exit code $got, not $code" >&2; exit 1; }
done < "$commands"
rm -f written-*
