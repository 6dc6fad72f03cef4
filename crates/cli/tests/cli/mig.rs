//! `gpuws run`, `claim` and `leases` with MIG devices, on real processes in sessions of the
//! simulated NVML.

use std::process::{Command, Output, Stdio};

const GPUWS: &str = env!("CARGO_BIN_EXE_gpuws");

/// The first device has MIG instances, the second has MIG off.
const DIVIDED: &str = r#"
description = "made: one device in MIG instances beside a whole one"
hostname = "lab2"
clock = 2025-03-03T10:00:00Z

[driver]
version = "535.261.03"
cuda = "12.2"

[[gpu]]
index = 0
name = "NVIDIA A100-SXM4-40GB"
memory_total_mib = 40960
driver_reserve_mib = 49
mig_enabled = true
mig = [
    { index = 0, uuid = "MIG-a", gpu_instance = 1, compute_instance = 0, memory_total_mib = 19968, driver_reserve_mib = 25 },
    { index = 1, uuid = "MIG-b", gpu_instance = 5, compute_instance = 0, memory_total_mib = 9856, driver_reserve_mib = 12 },
]

[[gpu]]
index = 1
name = "NVIDIA A100-SXM4-40GB"
uuid = "GPU-whole"
memory_total_mib = 40960
driver_reserve_mib = 49
mig_enabled = false
"#;

/// Runs a shell script in a live session, with gpuws as `$0`. `use_gpu MIB` is a program that uses
/// this much memory of every visible device; `until_so COMMAND` waits for it to succeed.
fn script(machine: &str, script: &str) -> Output {
    script_with(&[machine], script)
}

/// Like [`script`], in a session with these arguments.
fn script_with(session: &[&str], script: &str) -> Output {
    let begin = "use_gpu() { exec \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:$1; }\n\
                 until_so() { n=0; until \"$@\"; do n=$((n+1)); [ $n -lt 4800 ] || exit 99; \
                 sleep 0.05; done; }\n\
                 visible() { \"$0\" run \"$@\" -- sh -c 'echo $CUDA_VISIBLE_DEVICES'; }\n\
                 shows() { \"$0\" status --json | tr -d ' \\n' | grep -q \"$1\"; }\n";
    let mut command = Command::new(GPUWS);
    command.arg("sim").args(session).args(["--live", "--", "sh", "-c"]);
    command.arg(format!("{begin}{script}")).arg(GPUWS);
    for name in ["LD_LIBRARY_PATH", "GPUWS_SIM_SESSION", "CUDA_VISIBLE_DEVICES", "GPUWS_CLAIMS"] {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    let dir = tempfile::tempdir().unwrap();
    let output = command.current_dir(dir.path()).output().unwrap();
    assert!(output.status.code().is_some(), "ended by a signal: {output:?}");
    assert_ne!(output.status.code(), Some(99), "it never came to be: {output:?}");
    output
}

/// Like [`script`], on the machine with one MIG-enabled device.
fn script_divided(text: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let machine = dir.path().join("divided");
    std::fs::create_dir(&machine).unwrap();
    std::fs::write(machine.join("machine.toml"), DIVIDED).unwrap();
    script(machine.to_str().unwrap(), text)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn reported(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn whole_devices_are_preferred_unless_mig_is_requested() {
    let output = script_divided(
        "visible; visible --mig; visible --mig --not MIG-b; visible --gpu MIG-a\n\
         CUDA_VISIBLE_DEVICES=MIG-a,MIG-b; export CUDA_VISIBLE_DEVICES; visible\n\
         visible -n 2; echo $?",
    );
    // By default, the smaller one suffices and leaves the larger one to others.
    assert_eq!(out(&output), "GPU-whole\nMIG-b\nMIG-a\nMIG-a\nMIG-a\n2\n", "{output:?}");
}

#[test]
fn lease_covers_single_mig_device() {
    let output = script_divided(
        "\"$0\" run --gpu MIG-a -- sh -c '\n\
         \"$0\" leases --json | tr -d \" \\n\" | grep -o \"MIG-[ab]\" | sort -u\n\
         \"$0\" run -- sh -c \"echo within: \\$CUDA_VISIBLE_DEVICES\"\n\
         ' \"$0\"\n\
         \"$0\" run --gpu MIG-a -- sh -c 'echo > runs; sleep 300' & held=$!\n\
         until_so test -e runs\n\
         visible --mig\n\
         \"$0\" run --gpu MIG-a --no-wait -- true; echo $?\n\
         visible --gpu 0; echo $?\n\
         kill $held; wait $held",
    );
    let output_text = out(&output);
    assert_eq!(output_text, "MIG-a\nwithin: MIG-a\nMIG-b\n75\n2\n", "{output:?}");
    let reported = reported(&output);
    assert!(reported.contains("MIG-a of GPU 0: leased by"), "{reported}");
    assert!(
        reported.contains("GPU 0: MIG is enabled; claim a MIG device with --mig"),
        "{reported}"
    );
}

#[test]
fn mig_device_is_selected_by_uuid_prefix_or_legacy_name() {
    let output = script(
        "mig-a100",
        "\"$0\" status --json | tr -d ' \\n' > all\n\
         mig=$(grep -o 'MIG-[0-9a-f-]*' all | tail -1); visible --gpu \"${mig%-*}\"; echo $mig\n\
         visible --gpu MIG-; echo $?; visible --gpu MIG-zz; echo $?",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [taken, named, several, none] = lines[..] else { panic!("{output:?}") };
    assert!(named.starts_with("MIG-") && taken == named, "{output:?}");
    assert_eq!((several, none), ("2", "2"), "{output:?}");
    assert!(reported(&output).contains("the prefix matches 3 MIG devices"), "{output:?}");
    let old = "MIG-GPU-whole/1/0";
    let output = script_divided(&format!("visible --gpu {old}; echo $?"));
    assert_eq!(out(&output), "2\n", "it has no parts: {output:?}");
}

#[test]
fn device_with_unknown_mig_mode_is_refused_with_leased_instance() {
    let dir = tempfile::tempdir().unwrap();
    let machine = dir.path().join("divided");
    std::fs::create_dir(&machine).unwrap();
    std::fs::write(machine.join("machine.toml"), DIVIDED).unwrap();
    let machine = machine.to_str().unwrap();
    let fault = "\"$0\" sim --fault nvmlDeviceGetMigMode=999 --live \"$MACHINE\" --";
    let output = script(
        machine,
        &format!(
            "MACHINE={machine}; GPUWS_CLAIMS=$PWD; export GPUWS_CLAIMS\n\
             \"$0\" run --gpu MIG-a -- sh -c 'echo > runs; sleep 300' & held=$!\n\
             until_so test -e runs; grep -o '\"parts_of\":\\[\"GPU-[^]]*' u*/lease-* | wc -l\n\
             {fault} \"$0\" run --no-wait --accept-used -- true; echo $?\n\
             {fault} \"$0\" run --no-wait --gpu 0 --mem 1GiB -- true; echo $?\n\
             kill $held; wait $held",
        ),
    );
    assert_eq!(out(&output), "1\n2\n2\n", "{output:?}");
    assert!(reported(&output).contains("read its MIG mode"), "{output:?}");
}

#[test]
fn several_mig_devices_for_one_job_are_refused() {
    let output = script_divided("visible --mig -n 2; echo $?");
    assert_eq!(out(&output), "2\n", "{output:?}");
    assert!(reported(&output).contains("CUDA exposes one MIG device"), "{output:?}");
}

#[test]
fn job_on_mig_device_is_listed_and_its_memory_is_freed() {
    let output = script_divided(
        "\"$0\" run --mig -- sh -c '\n\
         \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:3000 --seconds 3'\n\
         \"$0\" run --mig -- sh -c '\n\
         setsid \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:2000 &\n\
         until \"$0\" status --json | grep -q nvml-sim; do sleep 0.05; done; sleep 0.6' \"$0\"\n\
         shows nvml-sim || echo gone",
    );
    let reported = reported(&output);
    assert!(reported.contains("MIG-b of GPU 0"), "{reported}");
    assert!(reported.contains("peak 2.9 GiB"), "{reported}");
    assert!(reported.contains("1 process left behind was ended, memory freed"), "{reported}");
    assert_eq!(out(&output), "gone\n", "{output:?}");
}

#[test]
fn unleased_use_blocks_only_its_mig_device() {
    let output = script_divided(
        "(CUDA_VISIBLE_DEVICES=MIG-b; export CUDA_VISIBLE_DEVICES; use_gpu 1000) & user=$!\n\
         until_so shows nvml-sim\n\
         visible --mig; \"$0\" run --gpu MIG-b --no-wait -- true; echo $?; visible\n\
         kill $user; wait $user",
    );
    assert_eq!(out(&output), "MIG-a\n75\nGPU-whole\n", "{output:?}");
    assert!(reported(&output).contains("MIG-b of GPU 0: in use without a lease by"), "{output:?}");
}

#[test]
fn free_mig_device_of_recorded_machine_is_chosen() {
    let output = script(
        "mig-a100",
        "visible --mig; \"$0\" status --json | tr -d ' \\n' | grep -o 'MIG-[0-9a-f-]*' | tail -1",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [taken, last] = lines[..] else { panic!("{output:?}") };
    assert!(taken.starts_with("MIG-") && taken == last, "{output_text}");
}
