use crate::stage::{Stage, session};
use gpu_sim::{Placeholder, Session};
use nvml_wrapper_sys::bindings::{nvmlMemory_t, nvmlProcessInfo_v1_t};
use std::process::{Child, Command};

/// A real process that does nothing until it is killed.
fn idle() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

fn placeholder(child: &Child) -> Placeholder {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let start = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    Placeholder { simulated: 21044, pid: child.id(), start_ticks: start.parse().unwrap() }
}

/// Returns the processes that are listed on the first GPU, and the memory that is used.
fn shown(stage: &Stage) -> (Vec<u32>, u64) {
    let device = stage.device(0);
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
fn a_process_ends_with_the_real_one_and_gives_its_memory_back() {
    let mut child = idle();
    let stands = Session {
        placeholders: vec![placeholder(&child)],
        frozen_at_ms: Some(1000),
        ..session("labbox")
    };
    let stage = Stage::begun(stands.clone());
    assert_eq!(shown(&stage), (vec![child.id()], 72708));
    child.kill().unwrap();
    child.wait().unwrap();
    // It is looked for at most every 20 ms.
    let gone = (0..1000).any(|_| {
        let _ =
            rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 5_000_000 });
        shown(&stage).0.is_empty()
    });
    assert!(gone, "a process that has ended is still listed");
    drop(stage);
    // Who opens the session later finds the memory free.
    let stage = Stage::begun(stands);
    assert_eq!(shown(&stage), (vec![], 4));
}
