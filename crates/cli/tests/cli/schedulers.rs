//! `gpuws run` and `claim` under schedulers and launchers that allocate devices: each with the
//! variables that it sets, on real processes in sessions of the simulated NVML.
//!
//! The tests check the environment of the job itself.

use crate::live::{out, reported, script};
use std::process::Output;

/// The variables of a Slurm step (manuals of `srun` and `sbatch`, environment variables).
const SLURM: &str = "export SLURM_JOB_ID=4711 SLURM_JOBID=4711 SLURM_STEP_ID=0 SLURM_NODEID=0 \
                     SLURM_LOCALID=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_GPUS_ON_NODE=2\n";

/// The variables of a Grid Engine job that is not an array (manual of `qsub`).
const GRID_ENGINE: &str = "export SGE_ROOT=/opt/sge SGE_CELL=default SGE_TASK_ID=undefined \
                           JOB_ID=4711 JOB_NAME=train QUEUE=gpu.q NSLOTS=1 NHOSTS=1\n";

/// The variables of a Ray worker.
const RAY: &str = "export RAY_JOB_ID=01000000 RAY_RAYLET_PID=1\n";

/// The variables of torchrun for each of four processes (`torch.distributed.run`, environment
/// variables).
const TORCHRUN: &str = "RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=4 GROUP_RANK=0 \
                        GROUP_WORLD_SIZE=1 ROLE_RANK=$rank ROLE_WORLD_SIZE=4 ROLE_NAME=default \
                        MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=0 \
                        TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_RUN_ID=none OMP_NUM_THREADS=1";

/// The variables of Horovod's own launcher.
const HOROVOD: &str = "HOROVOD_RANK=$rank HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=$rank \
                       HOROVOD_LOCAL_SIZE=4 HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1 \
                       HOROVOD_HOSTNAME=localhost HOROVOD_CONTROLLER=gloo";

/// The variables of Open MPI, which can also launch Horovod.
const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=4 \
                        OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_LOCAL_SIZE=4 \
                        OMPI_COMM_WORLD_NODE_RANK=$rank OMPI_UNIVERSE_SIZE=4 PMIX_RANK=$rank";

/// `sees WORDS…` claims with these arguments and prints what the job sees; `shared SET COMMAND…`
/// runs a command four times at once, with a rank each, and `meet` waits until all four are there.
const BEGIN: &str = r#"
sees() { "$0" run --visible index "$@" -- sh -c 'echo ${CUDA_VISIBLE_DEVICES-unset}'; }
shared() {
  set="$1"; shift; pids=
  for rank in 0 1 2 3; do eval "$set \"\$@\"" > rank-$rank & pids="$pids $!"; done
  for pid in $pids; do wait $pid || echo ended with $?; done; cat rank-?
}
cat > meet << 'END'
echo "$CUDA_VISIBLE_DEVICES"; mkdir -p here; touch here/$$
n=0; until [ $(ls here | wc -l) = 4 ]; do n=$((n+1)); [ $n -lt 4800 ] || exit 99; sleep 0.05; done
END
"#;

/// A part of a machine as a device cgroup leaves it to a job: the driver shows two devices and
/// counts them from 0, but their device files keep their numbers.
const FENCED: &str = r#"
description = "made: two of eight devices, in a job that Slurm fenced in"
hostname = "node7"
clock = 2025-03-03T10:00:00Z

[driver]
version = "535.261.03"
cuda = "12.2"

[[gpu]]
index = 0
minor = 2
name = "NVIDIA A100-SXM4-40GB"
memory_total_mib = 40960
driver_reserve_mib = 4

[[gpu]]
index = 1
minor = 5
name = "NVIDIA A100-SXM4-40GB"
memory_total_mib = 40960
driver_reserve_mib = 4
"#;

/// Runs a script on the machine with this description.
fn script_on(machine: &str, text: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("machine.toml"), machine).unwrap();
    script(dir.path().to_str().unwrap(), text)
}

/// Runs a script with the functions of [`BEGIN`] on twelve devices, with these variables.
fn under(variables: &str, text: &str) -> Output {
    script("twelve-gpus", &format!("{BEGIN}{variables}{text}"))
}

/// Runs four ranks of a job with this command, in a run that has four devices.
fn launched(ranks: &str, command: &str) -> Output {
    under(
        "",
        &format!(
            "cat > launcher << 'LAUNCHER'\n{BEGIN}shared '{ranks}' {command}\nLAUNCHER\n\
             \"$0\" run -n 4 --gpu 3,5,8,11 --visible index -- sh -c '. ./launcher' \"$0\""
        ),
    )
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn slurm_without_device_cgroup_uses_machine_indexes() {
    let output = under(
        &format!("{SLURM}export SLURM_STEP_GPUS=2,5 CUDA_VISIBLE_DEVICES=2,5\n"),
        "sees -n 2; sees --gpu 5\n\
         sees -n 3; echo $?; sees --gpu 3; echo $?; sees --gpu 2,3 -n 2; echo $?\n\
         eval \"$(\"$0\" claim -n 2 --visible index --export)\"; echo $CUDA_VISIBLE_DEVICES\n\
         sees; sees -n 3; echo $?",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [both, one, refused @ .., exported, within, wide] = &lines[..] else {
        panic!("{output:?}")
    };
    assert_eq!((*both, *one, refused), ("2,5", "5", &["2", "2", "2"][..]), "{output:?}");
    // A claim of a shell narrows the devices of its runs, and they stay within it.
    assert_eq!((*exported, *wide), ("2,5", "2"), "{output:?}");
    assert!(["2", "5"].contains(within), "{output:?}");
}

#[test]
fn slurm_with_device_cgroup_counts_from_zero() {
    for given in ["CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=2,5", "SLURM_JOB_GPUS=2,5"] {
        let output = script_on(
            FENCED,
            &format!("{BEGIN}{SLURM}export {given}\nsees -n 2; sees --gpu 1; sees -n 3; echo $?"),
        );
        assert_eq!(out(&output), "0,1\n1\n2\n", "{given}: {output:?}");
    }
    for (given, seen) in [
        ("CUDA_VISIBLE_DEVICES=1 SLURM_STEP_GPUS=5 SLURM_JOB_GPUS=2,5", "1\n2\n"),
        // Since Slurm 21.08 the numbers are positions in a list that is unknown here.
        ("SLURM_STEP_GPUS=5 SLURM_JOB_GPUS=2,5", "2\n2\n"),
        ("SLURM_JOB_GPUS=0", "2\n2\n"),
    ] {
        let script = format!("{BEGIN}{SLURM}export {given}\n sees || echo $?; sees -n 2; echo $?");
        let output = script_on(FENCED, &script);
        assert_eq!(out(&output), seen, "{given}: {output:?}");
    }
}

#[test]
fn slurm_list_is_used_if_cuda_order_differs() {
    let two_kinds = FENCED.replacen("A100-SXM4-40GB", "A100-PCIE-40GB", 1);
    let output = script_on(
        &two_kinds,
        &format!(
            "{BEGIN}{SLURM}export CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=2,5\nsees -n 2\n\
             unset SLURM_STEP_GPUS; sees; echo $?\n\
             export CUDA_DEVICE_ORDER=PCI_BUS_ID; sees"
        ),
    );
    assert_eq!(out(&output), "0,1\n2\n0\n", "{output:?}");
    assert!(reported(&output).contains("using Slurm's list"), "{output:?}");
}

#[test]
fn job_without_allocated_device_gets_none() {
    for (who, variables) in [
        (SLURM, "export CUDA_VISIBLE_DEVICES=\n"),
        (SLURM, "export CUDA_VISIBLE_DEVICES=NoDevFiles\n"),
        (GRID_ENGINE, "export SGE_HGR_gpu=none\n"),
        (RAY, "export CUDA_VISIBLE_DEVICES=\n"),
    ] {
        let output = under(
            who,
            &format!(
                "{variables}\"$0\" run -- touch ran; echo $?; \"$0\" claim --export; test -e ran"
            ),
        );
        assert_eq!(out(&output), "2\n(exit 2)\n", "{who}{variables}: {output:?}");
        assert_eq!(output.status.code(), Some(1), "{who}{variables}: {output:?}");
    }
}

#[test]
fn grid_engine_jobs_without_device_list_get_different_devices() {
    let output =
        under(GRID_ENGINE, "shared 'JOB_ID=471$rank' \"$0\" run --visible index -- sh meet");
    let output_text = out(&output);
    let devices = sorted(&output_text);
    let mut different = devices.clone();
    different.dedup();
    assert_eq!((devices.len(), different.len()), (4, 4), "{output:?}");
    assert!(
        devices.iter().all(|index| index.parse::<u32>().is_ok_and(|n| n < 12)),
        "{output_text}"
    );
    let note = "Grid Engine sets no device list; pass the allocated count with -n";
    assert_eq!(reported(&output).matches(note).count(), 4, "{output:?}");
}

#[test]
fn missing_scheduler_device_list_is_noted() {
    for (variables, name) in [(SLURM, "Slurm"), (GRID_ENGINE, "Grid Engine"), (RAY, "Ray")] {
        let output = under(variables, "sees --gpu 4");
        assert_eq!(out(&output), "4\n", "{output:?}");
        let note = format!("gpuws: {name} sets no device list; pass the allocated count with -n");
        assert!(reported(&output).contains(&note), "{output:?}");
    }
}

#[test]
fn grid_engine_device_list_is_respected() {
    for (given, seen) in [
        ("export SGE_HGR_gpu='gpu4 gpu9'\n", "4,9\n9\n2\n2\n"),
        ("export SGE_HGR_gpu='4 9'\n", "4,9\n9\n2\n2\n"),
        // The variable of a prolog has priority.
        ("export SGE_HGR_gpu='1 2' CUDA_VISIBLE_DEVICES=4,9\n", "4,9\n9\n2\n2\n"),
    ] {
        let script =
            format!("{given}sees -n 2; sees --gpu 9; sees -n 3; echo $?; sees --gpu 5; echo $?");
        let output = under(GRID_ENGINE, &script);
        assert_eq!(out(&output), seen, "{given}: {output:?}");
        assert!(!reported(&output).contains("sets no device list"), "{output:?}");
    }
}

#[test]
fn ray_workers_share_fractional_device() {
    let output = under(
        &format!("{RAY}export CUDA_VISIBLE_DEVICES=7\n"),
        "sees; sees -n 2; echo $?; sees --gpu 6; echo $?\n\
         shared '' \"$0\" run --visible index --mem 4GiB -- sh meet",
    );
    assert_eq!(out(&output), "7\n2\n2\n7\n7\n7\n7\n", "{output:?}");
}

#[test]
fn ranks_under_one_claim_select_device_by_local_rank() {
    for ranks in [TORCHRUN, HOROVOD, OPEN_MPI] {
        let output = launched(ranks, "sh meet");
        assert_eq!(out(&output), "3,5,8,11\n".repeat(4), "{ranks}: {output:?}");
    }
}

#[test]
fn self_claiming_ranks_get_different_allocated_devices() {
    let each = "\"$0\" run --visible index -- sh meet";
    for (ranks, name) in [(TORCHRUN, "torchrun"), (HOROVOD, "Horovod"), (OPEN_MPI, "Open MPI")] {
        let list = format!("{SLURM}export CUDA_VISIBLE_DEVICES=3,5,8,11\n");
        let within_a_list = under(&list, &format!("shared '{ranks}' {each}"));
        for output in [launched(ranks, each), within_a_list] {
            let output_text = out(&output);
            assert_eq!(sorted(&output_text), ["11", "3", "5", "8"], "{name}: {output:?}");
            for rank in 0..4 {
                let note = format!("{name} local rank {rank} claims its own GPUs");
                assert_eq!(reported(&output).matches(&note).count(), 1, "{name}: {output:?}");
            }
        }
    }
}

#[test]
fn ranks_with_too_few_devices_wait_for_each_other() {
    let output = under(
        &format!("{SLURM}export CUDA_VISIBLE_DEVICES=3,5\n"),
        &format!(
            "two_wait() {{ [ \"$(leases | grep -o ahead_count | wc -l)\" = 2 ]; }}\n\
             (until_so two_wait; touch go) &\n\
             shared '{TORCHRUN}' \"$0\" run --visible index -- sh -c '\n\
               echo $CUDA_VISIBLE_DEVICES; until [ -e go ]; do sleep 0.05; done'"
        ),
    );
    let output_text = out(&output);
    // The first two have one each while the others wait for the first free one.
    let [first, second, third, last] = sorted(&output_text)[..] else { panic!("{output:?}") };
    assert_eq!((first, last), ("3", "5"), "{output:?}");
    assert!([second, third].iter().all(|device| ["3", "5"].contains(device)), "{output:?}");
}

#[test]
fn scheduler_lists_are_ignored_outside_scheduler_job() {
    let output = under("", "export SLURM_JOB_GPUS=3 SGE_HGR_gpu=3\nsees -n 12");
    let all: Vec<String> = (0..12).map(|index| index.to_string()).collect();
    assert_eq!(out(&output).trim(), all.join(","), "{output:?}");
}
