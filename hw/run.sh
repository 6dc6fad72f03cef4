#!/usr/bin/env bash
# Looks at the GPUs of this machine with what is packed beside this script, and writes report.md
# and the directory raw/ with all that was printed.
#
# Without GPUWS_HW_GPU it only looks. With the UUID of one GPU in it, it also makes processes that
# keep 512 MiB of that GPU, has gpuws find and end them, ends what is left of them, and runs jobs of
# PyTorch through gpuws. It signals nobody else and changes no setting of any GPU. It ends by itself
# within nine minutes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

readonly WHOLE=520
readonly RAW=raw
REPORT="$RAW/report.part"
STEPS="$RAW/steps.part"
CURRENT=

rm -rf "$RAW" report.md
mkdir -p "$RAW" || exit 1

say() { printf 'hw: %s\n' "$*"; }
left() { printf '%s' "$((WHOLE - SECONDS))"; }
# Keeps what other programs say on its line and in its cell.
cell() { tr -d '\000-\010\013-\037\177' | tr '|\n\t' '/  ' | sed 's/ *$//' | cut -c 1-160; }

# A step that hangs in the driver after SIGTERM is left behind, not waited for.
end_current() {
    if [[ -n "$CURRENT" ]]; then
        kill -TERM "$CURRENT" 2>/dev/null
        CURRENT=
    fi
}
trap end_current EXIT
trap 'exit 1' INT TERM HUP

# step NAME SECONDS COMMAND...: runs a command, keeps its words in raw/NAME.txt, and its end in the
# table. Returns its code; 124 when it was out of time.
step() {
    local name="$1" most="$2" begun="$SECONDS" code why=
    shift 2
    (("$(left)" < most)) && most="$(left)"
    if ((most < 5)); then
        printf '| %s | not run: out of time | | |\n' "$name" >>"$STEPS"
        return 125
    fi
    say "$name: $*"
    timeout --kill-after=20 "$most" "$@" >"$RAW/$name.txt" 2>&1 </dev/null &
    CURRENT=$!
    while kill -0 "$CURRENT" 2>/dev/null && ((SECONDS - begun < most + 23)); do sleep 0.1; done
    if kill -0 "$CURRENT" 2>/dev/null; then
        code=124 why='does not end, not even by SIGKILL'
    else
        wait "$CURRENT"
        code=$?
        ((code == 124 || code == 137)) && why='out of time'
    fi
    CURRENT=
    [[ -n "$why" ]] || why="$(grep -v '^[[:space:]]*$' "$RAW/$name.txt" | tail -n 1 | cell)"
    printf '| %s | %s | %s | %s |\n' "$name" "$code" "$((SECONDS - begun))" "$why" >>"$STEPS"
    return "$code"
}

about() { printf '%s: %s\n\n' "$1" "$(printf '%s' "$2" | cell)" >>"$REPORT"; }

export PATH="$PWD/bin:$PATH"
export GPUWS_NVML_HELPER="$PWD/bin/nvml-helper"
export CRITERION_HOME="$PWD/$RAW/criterion"
PERMITTED="${GPUWS_HW_GPU:-}"

gpus="$(timeout 60 nvidia-smi --query-gpu=uuid,name,driver_version,memory.total --format=csv,noheader 2>&1 </dev/null)"
has_gpu=$(($? == 0))
[[ "$gpus" == GPU-* ]] || has_gpu=0

printf '# gpuws on hardware, %s\n\n' "$(date -u +'%Y-%m-%d %H:%M UTC')" >"$REPORT"
if ((has_gpu)); then
    printf '%s\n' "$gpus" >"$RAW/gpus.txt"
    while IFS= read -r gpu; do about GPU "$gpu"; done <<<"$gpus"
else
    printf '**No GPU: nvidia-smi is missing or fails.** What needs none was run all the same.\n\n' >>"$REPORT"
    about 'nvidia-smi says' "$(printf '%s' "$gpus" | tail -n 1)"
fi
about Kernel "$(uname -srm)"
about Run "by uid $(id -u), $(python3 --version 2>&1), $(getconf GNU_LIBC_VERSION 2>&1)"
about gpuws "$(gpuws --version 2>&1)"

# What only looks.
step status 60 gpuws status
step status-json 60 gpuws status --json
step doctor 60 gpuws doctor
step doctor-json 60 gpuws doctor --json
step holders 60 gpuws holders
if ((has_gpu)); then
    step nvidia-smi 60 nvidia-smi
    step nvidia-smi-q 60 nvidia-smi -q
    step details 60 gpuws status -i 0 -q
    step gpustat-json 60 gpuws status --format gpustat-json
    step query 60 gpuws query --query-gpu=index,uuid,name,memory.used,power.draw --format=csv
    step compare 60 python3 compare.py "$RAW"
    step record 60 gpuws record "$RAW/machine.gpuws"
    step contract 60 bin/nvml-test --exact contract::real_machine_meets_contract
    GPUWS_BENCH_LIVE=1 step bench 100 bin/status-bench --bench this-machine
fi

# What is simulated, with the NVML that is packed.
step sim-status 30 gpuws sim labbox -- gpuws status
step sim-doctor 30 gpuws sim p100-ghost --live -- gpuws doctor
step demo 30 gpuws demo

# What makes processes, on the GPU that was named and on no other.
ghosts='**No processes were made**: GPUWS_HW_GPU names no GPU.'
jobs=
if [[ -n "$PERMITTED" ]]; then
    if ! ((has_gpu)); then
        ghosts='**No processes were made**: there is no GPU.'
    elif ! grep -q "^$PERMITTED, " "$RAW/gpus.txt"; then
        ghosts='**No processes were made**: GPUWS_HW_GPU names no GPU of this machine.'
    else
        step ghosts 200 python3 ghosts.py "$RAW" 70
        ghosts="$(cat "$RAW/rows.md" 2>/dev/null || echo '**ghosts.py wrote no table**: see raw/ghosts.txt.')"
        step jobs "$(($(left) - 90))" python3 jobs.py "$RAW" "$(($(left) - 180))"
        jobs="$(cat "$RAW/jobs.md" 2>/dev/null || echo '**jobs.py wrote no table**: see raw/jobs.txt.')"
        step status-after 30 gpuws status
        # PyTorch's wheels bring NVRTC, where the loader does not look.
        nvrtc="$(timeout 20 python3 -c 'import glob, sysconfig
print(*glob.glob(sysconfig.get_path("purelib") + "/nvidia/cuda_nvrtc/lib"))' 2>/dev/null)"
        step cuda 80 env LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$nvrtc" \
            bin/cuda-bench --bench --warm-up-time 0.5 --measurement-time 2
    fi
fi

# The report is kept in public, with its UUIDs cut.
{
    cat "$REPORT"
    printf '## Processes that keep memory\n\n%s\n\n' "$ghosts"
    [[ -z "$jobs" ]] || printf '## Jobs\n\n%s\n\n' "$jobs"
    [[ ! -s "$RAW/compare.md" ]] || printf '## Fields that differ from nvidia-smi\n\n%s\n\n' "$(<"$RAW/compare.md")"
    printf '## Steps\n\n| step | exit | seconds | its last line |\n|---|---|---|---|\n'
    cat "$STEPS"
    if [[ -s "$RAW/bench.txt" ]]; then
        printf '\n## Time of one query\n\n'
        grep -v '^Benchmarking' "$RAW/bench.txt" | sed 's/^/    /' | tr -d '\000-\010\013-\037\177' | head -n 60
    fi
} | sed -E 's/GPU-([0-9a-f]{8})-[0-9a-f-]{27}/GPU-\1…/g' >report.md
rm -f "$REPORT" "$STEPS"
if ((has_gpu)); then
    say "report.md is written, after $SECONDS s"
else
    say "no GPU here: report.md says what was run without one, after $SECONDS s"
fi
