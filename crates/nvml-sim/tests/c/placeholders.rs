use crate::fixture::{Stage, session};
use gpu_sim::{Placeholder, Session};
use nvml_sim::start_of;
use nvml_wrapper_sys::bindings::{nvmlMemory_t, nvmlProcessInfo_v1_t};
use std::process::{Child, Command};

/// A real process that sleeps until it is killed.
pub(crate) struct Idle(Child);

impl Idle {
    pub(crate) fn new() -> Self {
        Idle(Command::new("sleep").arg("600").spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn start_ticks(&self) -> u64 {
        start_of(self.pid()).unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn placeholder(idle: &Idle) -> Placeholder {
    Placeholder { simulated: 21044, pid: idle.pid(), start_ticks: idle.start_ticks() }
}

/// Queries until the answer matches; the library checks real processes at most every 20 ms.
pub(crate) fn soon(what: &str, is_so: impl Fn() -> bool) {
    let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    let waited = (0..48_000).any(|_| {
        let _ = rustix::thread::nanosleep(&pause);
        is_so()
    });
    assert!(waited, "{what}");
}

/// Returns the listed processes of a GPU, and its used memory in MiB.
pub(crate) fn shown(stage: &Stage, gpu: u32) -> (Vec<u32>, u64) {
    let device = stage.device(gpu);
    let mut infos = [nvmlProcessInfo_v1_t { pid: 0, usedGpuMemory: 0 }; 8];
    let mut count = 8;
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: the buffer has room for eight, and both live during the calls.
    unsafe {
        let infos = infos.as_mut_ptr();
        let nvml = stage.nvml;
        assert_eq!(nvml.nvmlDeviceGetComputeRunningProcesses(device, &mut count, infos), 0);
        assert_eq!(nvml.nvmlDeviceGetMemoryInfo(device, &mut memory), 0);
    }
    let listed = infos.iter().take(count as usize).map(|info| info.pid).collect();
    (listed, memory.used >> 20)
}

#[test]
fn simulated_process_ends_with_its_placeholder() {
    let mut idle = Idle::new();
    let stands = Session {
        placeholders: vec![placeholder(&idle)],
        frozen_at_ms: Some(1000),
        ..session("labbox")
    };
    let stage = Stage::begun(stands.clone());
    assert_eq!(shown(&stage, 0), (vec![idle.pid()], 72708));
    idle.kill();
    soon("a process that has ended is still listed", || shown(&stage, 0).0.is_empty());
    drop(stage);
    // A process that opens the session later sees the memory as free.
    let stage = Stage::begun(stands);
    assert_eq!(shown(&stage, 0), (vec![], 4));
}
