//! Shell scripts on real processes, in sessions of the simulated NVML.

use std::process::{Command, Output, Stdio};

pub(crate) const GPUWS: &str = env!("CARGO_BIN_EXE_gpuws");

/// Exits with 0 when users of safe-gpu may continue, which is after the job's devices are in use.
const LET_GO: &str = "import fcntl, glob, os
names = glob.glob(os.environ['GPUWS_SIM_SESSION'] + '/**/gpu-lock-magic*', recursive=True)
for name in names:
    fcntl.lockf(open(name, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)
raise SystemExit(not names)
";

/// Variables that would affect gpuws if they were set for these tests.
pub(crate) const HEEDED: [&str; 16] = [
    "LD_LIBRARY_PATH",
    "GPUWS_SIM_SESSION",
    "GPUWS_CLAIMS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "SLURM_JOB_ID",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "SGE_ROOT",
    "SGE_TASK_ID",
    "SGE_HGR_gpu",
    "RAY_JOB_ID",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
];

/// Runs a check for each case, all at once.
pub(crate) fn each_at_once<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let check = &check;
            scope.spawn(move || check(case));
        }
    });
}

/// Returns a command of gpuws that does not ignore SIGHUP and SIGINT, as the tests may under nohup.
pub(crate) fn by_signals() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT", GPUWS]);
    command
}

/// Runs a shell script in a live session, with gpuws as `$0`. `use_gpu MIB [SECONDS]` is a program
/// that uses this much memory of every visible device; `until_so COMMAND` waits for it to succeed;
/// `python3 let-go.py` succeeds after the devices of a run are in use.
pub(crate) fn script(machine: &str, script: &str) -> Output {
    let begin = "use_gpu() { exec \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:$1 \
                 ${2:+--seconds $2}; }\n\
                 until_so() { n=0; until \"$@\"; do n=$((n+1)); [ $n -lt 4800 ] || exit 99; \
                 sleep 0.05; done; }\n\
                 leases() { \"$0\" leases --json | tr -d ' \\n'; }\n";
    let mut command = by_signals();
    command.args(["sim", machine, "--live", "--", "sh", "-c"]);
    command.arg(format!("{begin}{script}")).arg(GPUWS);
    for name in HEEDED {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("let-go.py"), LET_GO).unwrap();
    let output = command.current_dir(dir.path()).output().unwrap();
    assert!(output.status.code().is_some(), "ended by a signal: {output:?}");
    assert_ne!(output.status.code(), Some(99), "it never came to be: {output:?}");
    output
}

/// Returns its output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns its standard output.
pub(crate) fn out(output: &Output) -> String {
    text(&output.stdout)
}

/// Returns its standard error.
pub(crate) fn reported(output: &Output) -> String {
    text(&output.stderr)
}
