# Claims devices of a simulated machine for podman containers.
set -eu
tree=$1 gpuws=$2
mount -t tmpfs -o mode=755 tmpfs /run
dir=/run/scenario
# crun refuses a mixture of both cgroup versions.
umount -q /sys/fs/cgroup/unified || true

# A root directory for containers.
mkdir -p /run/cdi "$dir/bin" "$dir/root/bin" "$dir/root/dev" "$dir/root/proc" "$dir/root/sys"
cp "$tree/bin/busybox" "$dir/root/bin/sh"
ln -s sh "$dir/root/bin/sleep"

# podman and crun with the unpacked libraries.
libraries=$tree/usr/lib/$(uname -m)-linux-gnu
cat > "$dir/bin/crun" <<END
#!/bin/sh
export LD_LIBRARY_PATH=$libraries
exec $tree/usr/bin/crun "\$@"
END
cat > "$dir/bin/podman" <<END
#!/bin/sh
export LD_LIBRARY_PATH=$libraries
command=\$1
shift
exec $tree/usr/bin/podman --root $dir/storage --runroot /run/podman --storage-driver vfs \\
    --cgroup-manager cgroupfs --events-backend none --runtime $dir/bin/crun \\
    --conmon $tree/usr/bin/conmon "\$command" --rm --network none --cgroups disabled \\
    --security-opt seccomp=unconfined --ulimit nofile=512:512 --ulimit nproc=512:512 "\$@"
END
chmod +x "$dir/bin/crun" "$dir/bin/podman"

cat > "$dir/session" <<'END'
set -eu
say() { echo "podman: $*"; }
fail() { say "PROBLEM: $*"; exit 1; }

# The device names, in the form of nvidia-ctk.
"$gpuws" query --query-gpu=index,uuid --format=csv,noheader | tr -d , > "$dir/devices"
{
    printf '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": ['
    comma=
    while read -r index uuid; do
        from=$GPUWS_SIM_SESSION/dev/nvidia$index to=/dev/nvidia$index
        printf '%s{"name": "%s", "containerEdits": {"mounts": [' "$comma" "$uuid"
        printf '{"hostPath": "%s", "containerPath": "%s", "options": ["rw", "bind"]}]}}' "$from" "$to"
        comma=,
    done < "$dir/devices"
    echo ']}'
} > /run/cdi/nvidia.json

# A container left behind on a device ends with the run that claimed the device.
"$gpuws" run --quiet --gpu 3 --grace 1s -- sh -c '
    podman run --detach --device "nvidia.com/gpu=$CUDA_VISIBLE_DEVICES" --rootfs "$dir/root" \
        sh -c "exec 9<> /dev/nvidia3; exec sleep 1234" > "$dir/container"
    until pgrep -x sleep -a | grep -q 1234; do sleep 0.1; done'
[ -s "$dir/container" ] || fail "no container was started"
! pgrep -x sleep -a | grep 1234 || fail "the container that held GPU 3 still runs"
say "the container that held GPU 3 exited with its run"

# Each container sees only the devices claimed for it.
for gpus in 5,2 7; do
    count=$(echo "$gpus" | tr , '\n' | wc -l)
    names=$("$gpuws" claim -n "$count" --gpu "$gpus" --export --format cdi)
    seen=$(podman run $(printf -- '--device %s ' $names) --rootfs "$dir/root" sh -c 'echo /dev/nvidia*')
    expected=$(echo "$gpus" | tr , '\n' | sort | sed 's,^,/dev/nvidia,' | paste -s -d ' ')
    [ "$seen" = "$expected" ] || fail "claimed GPUs $gpus but the container sees $seen"
    say "claimed GPUs $gpus: the container sees $seen"
done
END
export gpuws dir
export PATH=$dir/bin:$PATH
"$gpuws" sim hgx-h100-x8 --live -- sh "$dir/session"
