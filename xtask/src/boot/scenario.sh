# Boots a machine twice and checks the gpuws package on it.
set -eu
machine=$1 package=$2
say() { echo "boot: $*"; }
fail() { say "PROBLEM: $*"; exit 1; }

# A control group for the machine, which appears as the root group inside it.
groups=/sys/fs/cgroup
[ -e $groups/cgroup.controllers ] || groups=$groups/systemd
[ -e $groups/cgroup.procs ] || fail "no control groups in $groups"
group=$groups/gpuws-boot
mkdir -p "$group"

# Starts the machine in separate namespaces.
start() {
    sh -c 'echo $$ > "$0/cgroup.procs" && exec unshare --mount --propagation=private --pid --uts \
        --ipc --cgroup --net --fork --kill-child sh -c "$1" sh "$2"' \
        "$group" "$first" "$machine" > /dev/null 2>&1 &
    outside=$!
    for attempt in $(seq 300); do
        sleep 0.1
        [ -e "/proc/$outside/root/" ] || fail "it did not start"
        inside=
        read -r inside others 2> /dev/null < "/proc/$outside/task/$outside/children" || true
        # Before the machine changes its root, a command would run on the host.
        [ -n "$inside" ] && [ "/proc/$inside/root" -ef "$machine" ] || continue
        case $(on systemctl is-system-running 2> /dev/null) in
            running)
                # A group that has a process cannot have groups with limits below it.
                echo "$outside" > "$groups/cgroup.procs"
                return
                ;;
            degraded) on systemctl --no-pager --failed; fail "a unit failed" ;;
        esac
    done
    fail "it did not start within 30 s"
}

# The first process of the machine: it mounts what systemd expects, and becomes systemd.
first='set -eu
    cd "$1"
    mount --bind . . && cd "$1"
    mount -t proc proc proc
    # Some settings are shared with the host.
    for settings in proc/sys proc/sysrq-trigger; do
        [ -e $settings ] || continue
        mount --bind $settings $settings
        mount -o remount,bind,ro $settings
    done
    mount -t sysfs -o ro sysfs sys
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        mount -t cgroup2 cgroup2 sys/fs/cgroup
    else
        mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
        mkdir sys/fs/cgroup/systemd
        mount -t cgroup -o none,name=systemd,xattr cgroup sys/fs/cgroup/systemd
    fi
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=755 tmpfs dev
    for device in null zero full random urandom tty; do
        touch dev/$device
        mount --bind /dev/$device dev/$device
    done
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd'

# Runs a command on the machine.
on() {
    nsenter --target "$inside" --mount --pid --uts --ipc --net --cgroup --root --wd=/ \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"
}

# Shuts the machine down normally.
stop() {
    on systemctl poweroff 2> /dev/null || true
    for attempt in $(seq 600); do
        [ -e "/proc/$outside/root/" ] || break
        sleep 0.1
    done
    end
}

# Kills the machine if it is still running.
end() {
    [ -n "$outside" ] || return 0
    # unshare ignores SIGTERM; the machine ends with unshare.
    kill -KILL "$outside" 2> /dev/null || true
    wait "$outside" 2> /dev/null || true
    outside=
}

outside=
# The groups are empty once all processes of the machine have ended.
trap 'end
    for attempt in $(seq 50); do
        find "$group" -depth -type d -exec rmdir {} + 2> /dev/null && break
        sleep 0.1
    done' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Fails if a unit is not in this state.
state() {
    [ "$(on systemctl is-active "$1")" = "$2" ] || {
        on systemctl --no-pager --lines 5 status "$1" || true
        fail "$1 is not $2"
    }
}

# Returns whether the metrics contain this line.
serves() {
    on bash -c 'exec 3<> /dev/tcp/127.0.0.1/9836
        printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3' 2> /dev/null | grep -qx "$1"
}

# Retries a command for up to ten seconds.
soon() {
    for attempt in $(seq 100); do
        if "$@"; then return; fi
        sleep 0.1
    done
    fail "not within ten seconds: $*"
}

works() {
    state gpuws-export active
    state gpuws-watch active
    soon serves 'gpuws_up 1.0'
    soon serves 'gpuws_findings{kind="ghost"} 1.0'
    soon eval 'on journalctl --no-pager -b -u gpuws-watch -o cat | grep -q "\"event\":\"raised\""'
    say "$1: the exporter and the watcher run and report the held memory"
}

start
say "systemd $(on systemctl --version | sed -n 's/^systemd \([0-9]*\).*/\1/p') has started"
on mkdir -p /root/package
cp "$package" "$machine/root/package/gpuws.deb"
on dpkg --install /root/package/gpuws.deb > /dev/null
for unit in gpuws-export gpuws-watch run-gpuws.mount; do state $unit inactive; done
[ "$(on stat -c %a:%u /run/gpuws)" = 1777:0 ] || fail "/run/gpuws is not world-writable with the sticky bit"

# Without its policy, the watcher exits with the reason.
on systemctl start gpuws-watch
soon eval "on journalctl --no-pager -u gpuws-watch | grep -q \"read the policy '/etc/gpuws/watch\""

# The machine has no GPU, so the services monitor a simulated one.
on mkdir -p /etc/gpuws
printf '[findings]\nafter = "0s"\n' > "$machine/etc/gpuws/watch.toml"
for service in export watch; do
    unit=gpuws-$service.service
    on mkdir -p "/etc/systemd/system/$unit.d"
    command=$(sed -n 's|^ExecStart=/usr/bin/gpuws|/usr/bin/gpuws --sim p100-ghost|p' \
        "$machine/lib/systemd/system/$unit")
    printf '[Service]\nExecStart=\nExecStart=%s\n' "$command" \
        > "$machine/etc/systemd/system/$unit.d/simulated.conf"
done
on systemctl daemon-reload
on systemctl --quiet enable --now gpuws-export gpuws-watch 2> /dev/null
works "after the installation"
[ "$(on stat -c %a:%U /var/log/gpuws)" = 700:root ] || fail "/var/log/gpuws is not owned by root"

stop
start
works "after the next start of the machine"
on findmnt --noheadings --output OPTIONS /run/gpuws | grep -q nosuid.*size=65536k \
    || fail "/run/gpuws is not a separate file system"
on setpriv --reuid 65534 --clear-groups sh -c 'head -c 100M /dev/zero > /run/gpuws/large' \
    2> /dev/null && fail "a user can write 100 MiB of leases"
full=$(on df --output=pcent /run | tail -n 1 | tr -d ' %')
[ "$full" -lt 50 ] || fail "a user can fill /run"
on rm /run/gpuws/large
say "a user can fill /run/gpuws but not /run"

on dpkg --remove gpuws > /dev/null 2>&1
state gpuws-export inactive
[ -d "$machine/var/log/gpuws" ] || fail "removing the package deleted the audit log"
say "package removed; the audit log is kept"
stop
say "no problem"
