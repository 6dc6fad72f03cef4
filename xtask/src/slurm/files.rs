//! The files of a cluster: settings, scripts of slurmd, and the job.

use super::cluster::{DIR, NODE};
use std::path::Path;

/// The device files in Slurm's order, by minor number: the index is not the number.
pub(super) const ORDER: [u32; 4] = [3, 1, 2, 0];

pub(super) fn slurm_conf(library: &Path, ports: (u32, u32)) -> String {
    let (controller, node) = ports;
    format!(
        "\
ClusterName=gpuws
SlurmctldHost={NODE}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={DIR}/munge/socket
PluginDir={}/slurm-wlm
StateSaveLocation={DIR}/state
SlurmdSpoolDir={DIR}/spool
SlurmctldPidFile={DIR}/slurmctld.pid
SlurmdPidFile={DIR}/slurmd.pid
SlurmctldLogFile={DIR}/slurmctld.log
SlurmdLogFile={DIR}/slurmd.log
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=1
JobRequeue=0
KillWait=1
PrologEpilogTimeout=60
Prolog={DIR}/bin/prolog
Epilog={DIR}/bin/epilog
GresTypes=gpu,shard
NodeName={NODE} NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000 Gres=gpu:p100:4,shard:8
PartitionName=main Nodes={NODE} Default=YES MaxTime=INFINITE State=UP
",
        library.display()
    )
}

pub(super) fn gres_conf() -> String {
    let gpu = |minor: &u32| format!("Name=gpu Type=p100 File={DIR}/dev/nvidia{minor}\n");
    ORDER.iter().map(gpu).collect::<String>() + "Name=shard Count=8\n"
}

/// A script of slurmd: it runs the tested command, then checks that the leftovers have ended.
pub(super) fn script(name: &str, library: &str) -> String {
    format!(
        "\
#!/bin/sh
export LD_LIBRARY_PATH={library}
{DIR}/bin/gpuws slurm {name} --slurm {DIR}/usr --grace 1s --limit 40s >> {DIR}/log/{name}.$SLURM_JOB_ID 2>&1
code=$?
export PATH=/usr/bin:/bin
[ {name} = epilog ] && [ -e {DIR}/left/$SLURM_JOB_ID ] && while read -r kind pid start; do
    if [ \"$start\" = \"$(cut -d ' ' -f 22 /proc/$pid/stat 2>&1)\" ]; then
        echo \"$kind $pid of job $SLURM_JOB_ID is left\" >> {DIR}/violations
    fi
done < {DIR}/left/$SLURM_JOB_ID
echo \"$SLURM_JOB_ID $code\" >> {DIR}/{name}s
exit $code
"
    )
}

/// A process that a job leaves behind in one of several ways. `stay KIND LIST` adds itself to the
/// list.
pub(super) const STAY: &str = r#"#!/bin/sh
echo "$1 $$ $(cut -d ' ' -f 22 /proc/$$/stat)" >> "$2"
case $1 in
ignoring-term) trap '' TERM; while :; do sleep 1; done ;;
respawning) trap 'setsid "$0" respawned "$2" & exit' TERM; while :; do sleep 1 & wait; done ;;
loader) for i in 1 2 3 4; do "$0" worker "$2" & done; kill -9 $$ ;;
stopped) kill -STOP $$ ;;
setuid*) exec "${0%/*}/$1" 1000 ;;
*) exec sleep 1000 ;;
esac
"#;

/// The job: it leaves a process behind at its start, works, and checks that all leftovers survive
/// until its end. A process that leads no session opens the redirections of a background command,
/// so the stand-in for a device (a console) does not become its terminal.
pub(super) const JOB: &str = r#"#!/bin/sh
export PATH=/usr/bin:/bin
kind=$1 dir=/run/gpuws-slurm
list=$dir/left/$SLURM_JOB_ID
position=${SLURM_JOB_GPUS%%[,-]*}
set -- ORDER
shift "$position"
device=$dir/dev/nvidia$1 uvm=$dir/dev/nvidia-uvm
stay=$dir/bin/stay
case $kind in
setsid | stopped | ignoring-term | respawning | loader | setuid*)
    setsid "$stay" "$kind" "$list" 9<>"$device" 8<>"$uvm" & ;;
double-fork) ( ( setsid "$stay" "$kind" "$list" 9<>"$device" 8<>"$uvm" & ) & ) & ;;
without-device) setsid "$stay" "$kind" "$list" & ;;
without-mark) setsid env -i PATH=$PATH "$stay" "$kind" "$list" 9<>"$device" 8<>"$uvm" & ;;
esac
setsid "$stay" witness "$list" 9<>"$device" 8<>"$uvm" &
until grep -q witness "$list" 2>/dev/null; do sleep 0.1; done
echo "$device" > "$dir/running/$SLURM_JOB_ID.new"
mv "$dir/running/$SLURM_JOB_ID.new" "$dir/running/$SLURM_JOB_ID"
sleep "$SECONDS_OF_WORK"
while read -r kind pid start; do
    [ "$kind" = loader ] && continue
    user=
    case $kind in setuid) user=STRANGER ;; setuid-root) user=0 ;; esac
    if [ -n "$user" ] && [ "$user" != "$(stat -c %u /proc/$pid 2>&1)" ]; then
        echo "$kind $pid of job $SLURM_JOB_ID has not the rights of user $user" >> $dir/violations
    fi
    if [ "$start" != "$(cut -d ' ' -f 22 /proc/$pid/stat 2>&1)" ]; then
        echo "$kind $pid of job $SLURM_JOB_ID was ended before the job" >> $dir/violations
    fi
done < "$list"
"#;
