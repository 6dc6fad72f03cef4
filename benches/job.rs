//! One claim without waiting, from start to exit of a process: gpuws compared with safe-gpu 2.0.0.
//!
//! Both take and release a device of a simulated machine of twelve idle GPUs, on an NVML without
//! latency. safe-gpu runs nvidia-smi three times, which is a shell script around `gpuws query`
//! here, and starts no placeholder. The peer must be installed by `cargo xtask peers
//! --install-only`.
#![expect(clippy::print_stderr, reason = "a peer that is not installed is skipped visibly")]

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use gpuws_benches::{IdleMachine, SAFE_GPU_USER, built, peer};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs a program until it exits, with a pipe as standard input that is closed at once, and returns
/// its output.
fn run(command: &mut Command) -> String {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("an installed program runs");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("the program exits");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn jobs(criterion: &mut Criterion) {
    let (Some(gpuws), Some(library)) = (built("gpuws"), built("libnvml_sim.so")) else {
        eprintln!(
            "skipped: there is no gpuws: cargo build --release -p gpuws -p gpu-nvml-sim --features full"
        );
        return;
    };
    let machine = IdleMachine::new(&library, gpuws.clone());
    let claim = || run(machine.on(Command::new(&gpuws).args(["claim", "--hold"])));
    let job = || run(machine.on(Command::new(&gpuws).args(["run", "--", "true"])));
    assert!(claim().contains("CUDA_VISIBLE_DEVICES=GPU-"));
    let mut group = criterion.benchmark_group("job");
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    group.measurement_time(Duration::from_secs(4)).warm_up_time(Duration::from_millis(500));
    group.bench_function("gpuws claim", |bencher| bencher.iter(claim));
    group.bench_function("gpuws run", |bencher| bencher.iter(job));
    match (peer("venv/bin/python"), peer("safe-gpu-2.0.0")) {
        (Some(python), Some(package)) => {
            let safe_gpu = || {
                let mut command = Command::new(&python);
                run(machine.on(command.args(["-c", SAFE_GPU_USER]).env("PYTHONPATH", &package)))
            };
            assert_eq!(safe_gpu().trim(), "0");
            group.bench_function("safe-gpu", |bencher| bencher.iter(safe_gpu));
        }
        _ => eprintln!("skipped: safe-gpu 2.0.0 is not there: cargo xtask peers --install-only"),
    }
    group.finish();
}

criterion_group!(benches, jobs);
criterion_main!(benches);
