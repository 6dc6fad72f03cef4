//! Takes a lease on a device of a simulated machine and releases it. The leases are real: locked
//! files in a temporary directory. If all users of a machine share leases, this directory is
//! `/run/gpuws`.

use gpu_core::{Claim, ProcessTable};
use gpu_host::{FileLeaseStore, LeaseLocation, Roots, SafeGpuFiles};
use gpu_sim::Simulation;
use gpu_steward::{Ports, Request, Wait, Waiting, listing, take};
use std::ops::ControlFlow;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Simulation::embedded("hgx-h100-x8")?;
    let dir = tempfile::tempdir()?;
    let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
    let safe_gpu = SafeGpuFiles::below(dir.path());
    let locks = FileLeaseStore::new(LeaseLocation::dir(dir.path()), safe_gpu, roots);
    let ports = Ports {
        backend: &machine,
        host: &machine,
        clock: &machine,
        journal: &machine,
        locks: &locks,
    };
    // The caller and its descendants may use the devices.
    let root = *machine.own_ancestry()?.first().ok_or("the caller has no process")?;
    let request = Request {
        claim: Claim::whole(1),
        wait: Wait::No,
        pace: Duration::from_secs(1),
        needs_topology: false,
        command: "example".to_owned(),
        root,
    };
    let mut watch = |_: &Waiting<'_>| ControlFlow::Continue(());

    let grant = take(&request, &ports, &mut watch)?;
    for (device, uuid) in grant.devices.iter().zip(&grant.entry.devices) {
        println!("leased {device}: {uuid}");
    }
    // Another claim on the same device is refused in the meantime, or waits for it.
    let same = Claim { required: grant.entry.devices.clone(), ..Claim::whole(1) };
    let second = Request { claim: same, ..request };
    match take(&second, &ports, &mut watch) {
        Ok(_) => return Err("a device was leased twice".into()),
        Err(refused) => println!("second claim: {refused}"),
    }

    drop(grant);
    println!("leases after the release: {}", listing(&ports)?.leases.len());
    let again = take(&second, &ports, &mut watch)?;
    println!("second claim: leased {}", again.devices[0]);
    Ok(())
}
