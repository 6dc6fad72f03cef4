#!/usr/bin/env bash
# What it costs to wait, and to be granted a device, with many claims in the queue: real processes
# on a simulated machine.
#
#   gpuws sim dgx1-v100 --live -- benches/queue.sh GPUWS [N ...]
#
# For each N: all devices are leased, N `gpuws run -- true` queue, and the devices come free.
# Prints, per waiting claim: memory (Pss of its two processes), processor time in one second of
# waiting; per grant: processor time of the whole run from start to end, and the system calls of
# the first in the queue from the moment at which the devices come free (strace; left out where it
# is not installed).
set -euo pipefail
gpuws="${1:?usage: gpuws sim dgx1-v100 --live -- benches/queue.sh GPUWS [N ...]}"
shift
[[ $# -gt 0 ]] || set -- 10 100 1000
ticks="$(getconf CLK_TCK)"

# The processes of a run: the one that was started and the one that works for it.
both() {
    local pid children
    for pid in "$@"; do
        children=''
        read -r children 2>/dev/null <"/proc/$pid/task/$pid/children" || true
        printf '%s\n' "$pid" $children
    done
}

# Of all processes with one `cat`: with thousands of them a fork for each takes minutes.
pss_kib() { # of these processes
    cat "${@/%//smaps_rollup}" 2>/dev/null | awk '/^Pss:/ {sum += $2} END {print sum + 0}'
}

cpu_ticks() { # of these processes
    cat "${@/%//stat}" 2>/dev/null | sed 's/.*) //' | awk '{sum += $12 + $13} END {print sum + 0}'
}

children_ms() { # processor time of all that was waited for
    sed 's/.*) //' "/proc/$$/stat" | awk -v ticks="$ticks" '{print ($14 + $15) * 1000 / ticks}'
}

printf '%6s %14s %18s %16s %14s %10s\n' N 'KiB a waiter' 'µs of CPU a s' 'ms CPU a run' 'calls, first' 'all in s'
for n in "$@"; do
    dir="$(mktemp -d)"
    mkdir "$dir/claims"
    export GPUWS_CLAIMS="$dir/claims"
    mkfifo "$dir/go"
    "$gpuws" run -n 8 -- sh -c 'cat "$1"' sh "$dir/go" >/dev/null 2>&1 &
    blocker=$!
    until compgen -G "$dir/claims/u*/lease-*" >/dev/null; do sleep 0.05; done
    before="$(children_ms)"
    fronts=()
    for ((i = 0; i < n; i++)); do
        "$gpuws" run -- sh -c 'echo "$1" >> "$2"' sh "$i" "$dir/order" >/dev/null 2>>"$dir/errors" &
        fronts+=($!)
        # The first is to be the first.
        while ((i == 0)) && ! compgen -G "$dir/claims/u*/queue/place-*" >/dev/null; do sleep 0.05; done
    done
    until (("$(ls "$dir"/claims/u*/queue | grep -c '^place-')" == n)); do sleep 0.2; done
    sleep 3
    readarray -t all < <(both "${fronts[@]}")
    all=("${all[@]/#//proc/}")
    memory="$(pss_kib "${all[@]}")"
    cpu="$(cpu_ticks "${all[@]}")"
    sleep 20
    cpu=$(("$(cpu_ticks "${all[@]}")" - cpu))
    calls='-'
    if command -v strace >/dev/null; then
        readarray -t first < <(both "${fronts[0]}")
        strace -f -c -o "$dir/calls" $(printf -- '-p %s ' "${first[@]}") 2>/dev/null &
        tracer=$!
        sleep 1
    fi
    start="$(date +%s%N)"
    : >"$dir/go"
    failed=0
    for pid in "${fronts[@]}"; do wait "$pid" || failed=$((failed + 1)); done
    end="$(date +%s%N)"
    wait "$blocker" || true
    if [[ -n "${tracer:-}" ]]; then
        wait "$tracer" || true
        calls="$(awk '$NF == "total" {print $4}' "$dir/calls")"
        unset tracer
    fi
    after="$(children_ms)"
    awk -v n="$n" -v memory="$memory" -v cpu="$cpu" -v ticks="$ticks" -v calls="$calls" \
        -v before="$before" -v after="$after" -v time=$((end - start)) 'BEGIN {
        printf "%6d %14.0f %18.0f %16.1f %14s %10.1f\n", n, memory / n, cpu / ticks / 20 / n * 1e6,
            (after - before) / n, calls, time / 1e9
    }'
    served="$(wc -l <"$dir/order")"
    if ((failed > 0 || served != n)); then
        echo "queue.sh: $failed of $n failed, $served served" >&2
        sort "$dir/errors" | uniq -c | sort -rn | head -3 >&2
        exit 1
    fi
    rm -r "$dir"
done
