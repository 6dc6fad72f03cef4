//! Finds the ghost of a machine, ends it, and prints the memory that was verifiably freed.
//!
//! The machine is simulated. On a live machine, the ports are `gpu_nvidia::Nvml`,
//! `gpu_host::LinuxHost`, `gpu_host::SystemClock` and `gpu_host::FileJournal`.

use gpu_core::{ActToken, observe};
use gpu_reaper::{Evidence, Guard, Ports, Request, diagnose, execute, plan};
use gpu_sim::Simulation;
use std::ops::ControlFlow;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Simulation::embedded("p100-ghost")?;
    let ports = Ports { backend: &machine, host: &machine, clock: &machine, journal: &machine };
    let first = observe(ports.backend, ports.host, ports.clock);
    ports.clock.sleep(Duration::from_secs(1));
    let snapshots = [first, observe(ports.backend, ports.host, ports.clock)];

    let diagnosis = diagnose(&snapshots);
    for finding in &diagnosis.findings {
        let evidence = Evidence::texts(&finding.evidence).join("; ");
        println!("{:?}, {:?}: {evidence}", finding.kind, finding.confidence);
    }
    let guard = Guard::new(ports.host, Vec::new())?;
    let plan = plan(&snapshots, &diagnosis, &guard, &Request::default());
    for target in &plan.targets {
        println!("end {} {:?}: {}", target.key, target.process.name, target.why);
    }

    let token = ActToken::user_confirmed();
    let report = execute(&plan, &guard, ports, &token, &mut |_| ControlFlow::Continue(()));
    for memory in &report.memory {
        match memory.freed {
            Some(freed) => println!("{}: {} MiB proven freed", memory.device, freed.mib()),
            None => println!("{}: nothing proven freed", memory.device),
        }
    }
    Ok(())
}
