//! The contract of every backend, and a comparison of backends, field by field: each machine
//! through the ports of gpu-sim and through the real backend on the simulated NVML. The feature
//! `hw` also tests the contract on this machine's own NVML.

use crate::fixture::{Fixture, MOMENTS};
use gpu_core::visible::GRAMMARS;
use gpu_core::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(20);

/// Checks the contract of a backend on a machine with constant values.
fn keeps_the_contract(backend: &dyn GpuBackend, name: &str) {
    let inventory = backend.inventory(Groups::all());
    let json = serde_json::to_string(&inventory).unwrap();
    assert!(!json.contains("not-recorded"), "{name}: a driver records nothing: {json}");

    // A snapshot equals the individual queries, in any order and number.
    assert_eq!(kind_of(&inventory.driver), kind_of_error(&backend.driver()), "{name}");
    let Ok(infos) = backend.devices() else {
        assert!(inventory.devices.is_empty(), "{name}: no list, but devices");
        return;
    };
    let seen: Vec<&DeviceInfo> = inventory.devices.iter().map(|state| &state.info).collect();
    assert_eq!(seen, infos.iter().collect::<Vec<_>>(), "{name}");
    assert_eq!(backend.devices().unwrap(), infos, "{name}: second query");
    let indexes: Vec<u32> = infos.iter().map(|info| info.id.index).collect();
    assert_eq!(indexes, (0..infos.len() as u32).collect::<Vec<_>>(), "{name}: by index");
    let uuids: Vec<_> = infos.iter().filter_map(|info| info.id.uuid.as_ref().ok()).collect();
    let distinct: BTreeSet<_> = uuids.iter().collect();
    assert_eq!(distinct.len(), uuids.len(), "{name}: each device has a UUID of its own");
    let has_grammar =
        |info: &&DeviceInfo| GRAMMARS.iter().any(|grammar| grammar.visibility() == info.visibility);
    let unlisted = infos.iter().find(|info| !has_grammar(info));
    assert_eq!(unlisted, None, "{name}: no grammar of `GRAMMARS` writes its variable");

    for state in inventory.devices.iter().rev() {
        let what = format!("{name}, {}", state.id());
        keeps_its_word(backend, state, &what);
    }
    if let Ok(topology) = backend.topology() {
        is_square(&topology, infos.len(), name);
    }
    let unknown =
        DeviceId { uuid: Ok(DeviceUuid("GPU-nobody".into())), ..DeviceId::from_index(99) };
    assert!(backend.sample(&unknown).is_err(), "{name}: nonexistent device");
    assert!(backend.processes(&unknown).is_err(), "{name}: nonexistent device");
}

fn keeps_its_word(backend: &dyn GpuBackend, state: &DeviceState, what: &str) {
    let id = state.id();
    assert_eq!(kind_of(&state.sample), kind_of_error(&backend.sample(id)), "{what}");
    if let Ok(sample) = &state.sample
        && let (Ok(used), Ok(total)) = (sample.memory.used, sample.memory.total)
    {
        let reserved = sample.memory.reserved.unwrap_or_default();
        assert!(used + reserved <= total, "{what}: {used} and {reserved} of {total}");
    }
    assert_eq!(kind_of(&state.processes), kind_of_error(&backend.processes(id)), "{what}");
    if let Ok(processes) = &state.processes {
        let keys: Vec<_> =
            processes.iter().map(|p| (p.pid, p.gpu_instance, p.compute_instance)).collect();
        let sorted: Vec<_> = keys.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        assert_eq!(keys, sorted, "{what}: by number and instance, each once");
    }
    assert_eq!(kind_of(&state.partitions), kind_of_error(&backend.partitions(id)), "{what}");
    assert_eq!(kind_of(&state.details), kind_of_error(&backend.details(id, Groups::all())));
    if state.details.is_ok() {
        assert!(backend.details(id, Groups::NONE).unwrap().is_empty(), "{what}: not requested");
        for group in Group::ALL {
            let one: Groups = [group].into_iter().collect();
            let details = backend.details(id, one).unwrap();
            assert!(!details.is_empty(), "{what}: {group:?} was requested");
            assert_eq!(details.clone().only(one), details, "{what}: only {group:?} was requested");
        }
    }
}

fn is_square(topology: &Topology, devices: usize, name: &str) {
    let Topology { links, peers, paths } = topology;
    assert_eq!(links.len(), devices, "{name}");
    assert!(links.iter().all(|row| row.len() == devices), "{name}: {links:?}");
    assert!(peers.is_empty() || peers.len() == devices, "{name}");
    assert!(peers.iter().all(|row| row.len() == devices), "{name}: {peers:?}");
    assert!(paths.is_empty() || paths.len() == devices, "{name}");
    for (row, links) in paths.iter().zip(links) {
        assert_eq!(row.len(), devices, "{name}: {paths:?}");
        for (path, link) in row.iter().zip(links) {
            assert!(!matches!(path, Link::NvLink(_)), "{name}: no place in the PCI tree");
            let open = matches!(link, Link::NvLink(_) | Link::Unknown);
            assert!(path == link || open, "{name}: {link}, {path}");
        }
    }
    for (i, row) in links.iter().enumerate() {
        assert_eq!(row[i], Link::Itself, "{name}");
        for (j, link) in row.iter().enumerate() {
            assert_eq!(links[j][i], *link, "{name}: a path leads back as it came");
            assert_eq!(i == j, *link == Link::Itself, "{name}");
        }
    }
}

fn kind_of<T>(answer: &Result<T, Fault>) -> Option<ErrorKind> {
    answer.as_ref().err().map(|fault| fault.kind)
}

fn kind_of_error<T>(answer: &Result<T>) -> Option<ErrorKind> {
    answer.as_ref().err().map(Error::kind)
}

/// Reduces a fault to its kind, on which two backends must agree.
fn by_kind(mut snapshot: Snapshot) -> Snapshot {
    fn forget<T>(answer: &mut Result<T, Fault>) {
        if let Err(fault) = answer {
            fault.text.clear();
        }
    }
    forget(&mut snapshot.driver);
    for state in &mut snapshot.devices {
        forget(&mut state.sample);
        forget(&mut state.processes);
        forget(&mut state.partitions);
        forget(&mut state.details);
    }
    snapshot
}

fn machines() -> Vec<String> {
    let made = ["crowd:1x32", "crowd:8x4"].map(str::to_owned);
    let shipped = gpu_sim::machines();
    shipped.iter().map(|machine| machine.name.to_owned()).chain(made).collect()
}

fn value(snapshot: &Snapshot) -> Value {
    serde_json::to_value(snapshot).unwrap()
}

/// Lists the differing fields by path.
fn differ(direct: &Value, through: &Value, path: &str, differences: &mut Vec<String>) {
    match (direct, through) {
        (left, right) if left == right => {}
        (Value::Object(left), Value::Object(right)) if left.keys().eq(right.keys()) => {
            for (key, left) in left {
                differ(left, &right[key], &format!("{path}.{key}"), differences);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (i, (left, right)) in left.iter().zip(right).enumerate() {
                differ(left, right, &format!("{path}[{i}]"), differences);
            }
        }
        _ => differences.push(format!("{path}: direct {direct}, through NVML {through}")),
    }
}

#[test]
fn every_machine_is_identical_through_nvml() {
    let mut all = Vec::new();
    for machine in machines() {
        for moment in MOMENTS {
            let fixture = Fixture::of(&machine, moment);
            let (simulation, nvml) = (fixture.simulation(), fixture.nvml(DEADLINE));
            let observe = |backend: &dyn GpuBackend| {
                let all = Observation { groups: Groups::all(), ..Observation::default() };
                by_kind(observe_in_detail(backend, &simulation, &simulation, all))
            };
            let (direct, through) = (observe(&simulation), observe(&nvml));
            let mut differences = Vec::new();
            differ(&value(&direct), &value(&through), "", &mut differences);
            assert_eq!(differences.is_empty(), direct == through, "{machine} at {moment:?}");
            let at = |difference: &String| format!("{machine} at {moment:?}: {difference}");
            all.extend(differences.iter().map(at));
            let (direct, through) = (simulation.topology(), nvml.topology());
            let same = kind_of_error(&direct) == kind_of_error(&through)
                && direct.as_ref().ok() == through.as_ref().ok();
            if !same {
                all.push(at(&format!("topology: direct {direct:?}, through NVML {through:?}")));
            }
        }
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn peer_access_of_every_kind_is_the_same_through_nvml() {
    for machine in ["dgx1-v100", "p100-ghost", "no-driver"] {
        let fixture = Fixture::of(machine, MOMENTS[0]);
        let (simulation, nvml) = (fixture.simulation(), fixture.nvml(DEADLINE));
        for capability in [
            PeerCapability::Read,
            PeerCapability::Write,
            PeerCapability::NvLink,
            PeerCapability::Atomics,
            PeerCapability::Prop,
        ] {
            let (direct, through) =
                (simulation.peer_access(capability), nvml.peer_access(capability));
            let what = format!("{machine}: {capability:?}: {direct:?}, {through:?}");
            assert_eq!(kind_of_error(&direct), kind_of_error(&through), "{what}");
            assert_eq!(direct.as_ref().ok(), through.as_ref().ok(), "{what}");
            if machine == "dgx1-v100" && capability == PeerCapability::NvLink {
                let row = &direct.unwrap()[0];
                assert_eq!(row[..2], [PeerAccess::Itself, PeerAccess::Ok], "{what}");
                assert_eq!(row[5], PeerAccess::NotSupported, "{what}");
            }
        }
    }
}

#[test]
fn simulated_backend_meets_contract() {
    for machine in machines() {
        for moment in MOMENTS {
            let simulation = Fixture::of(&machine, moment).simulation();
            keeps_the_contract(&simulation, &format!("{machine} at {moment:?}"));
        }
    }
}

#[test]
fn nvml_backend_meets_contract() {
    for machine in machines() {
        let fixture = Fixture::of(&machine, Duration::ZERO);
        let nvml = fixture.nvml(DEADLINE);
        assert_eq!(nvml.origin(), Origin::Simulated(fixture.simulation().name()), "{machine}");
        keeps_the_contract(&nvml, &format!("{machine} through NVML"));
    }
}

/// On this machine, values change during the comparison, so only constant values are compared.
#[cfg(feature = "hw")]
#[test]
fn real_machine_meets_contract() {
    use gpu_nvidia::{Helper, NvmlChild};
    // If the tests were copied to this machine, the compiled-in path is that of another machine.
    let program = std::env::var_os("GPUWS_NVML_HELPER");
    let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_nvml-helper").into());
    let nvml = NvmlChild::new(Helper::new(program), DEADLINE, Box::new(|_| {}));
    assert_eq!(nvml.origin(), Origin::Live, "the installed NVML is used");
    keeps_the_contract(&nvml, "this machine");
}
