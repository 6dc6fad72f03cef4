//! Existing restrictions: a list of visible devices, or a job of a scheduler.
//!
//! A claim inside such a job stays within its devices. If several variables restrict it, the one
//! that was set last and closest takes precedence: the list of visible devices, such as
//! `CUDA_VISIBLE_DEVICES`, before the variables of a scheduler. If only other vendors' lists are
//! set, a vendor's devices are left to the claim, unless a scheduler that assigns devices started
//! the job.

use crate::environment::has;
use gpu_core::visible::{GivenList, Grammar, devices_of, narrow};
use gpu_core::{Claim, DeviceKey, DeviceState, DeviceUuid, Error, ErrorKind, Result};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;

/// A scheduler or launcher that starts programs and may assign devices to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// Slurm.
    Slurm,
    /// Sun, Univa or Altair Grid Engine.
    GridEngine,
    /// Ray.
    Ray,
    /// torchrun, and DeepSpeed, which sets the same variables.
    Torchrun,
    /// Horovod.
    Horovod,
    /// Open MPI.
    OpenMpi,
}

impl fmt::Display for Convention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Convention::Slurm => "Slurm",
            Convention::GridEngine => "Grid Engine",
            Convention::Ray => "Ray",
            Convention::Torchrun => "torchrun",
            Convention::Horovod => "Horovod",
            Convention::OpenMpi => "Open MPI",
        })
    }
}

/// A note for the user who started the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An entry of the list matches no device here; programs ignore it and all later ones.
    ListEnds {
        /// The variable.
        variable: &'static str,
        /// The entry, verbatim.
        at: String,
    },
    /// The scheduler counts devices but names none: the claim should ask for the number that the
    /// scheduler assigned.
    NothingNamed(Convention),
    /// The device order of the visible list is unknown here; the scheduler's list was used.
    NumbersUnclear(Convention),
    /// The program is one of several on this machine, with this rank: each claims its own devices.
    OneOfMany(Convention, u32),
}

/// The existing restrictions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// The devices; `None` if none are named.
    pub given: Option<Vec<DeviceUuid>>,
    /// The variable that names them.
    pub by: Option<&'static str>,
    /// The schedulers and launchers that started this.
    pub conventions: Vec<Convention>,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

impl Inherited {
    /// Returns the claim, restricted to the assigned devices; `None` if none remain.
    pub fn narrow(&self, claim: &Claim) -> Option<Claim> {
        let Some(given) = &self.given else { return Some(claim.clone()) };
        Some(Claim { among: narrow(&claim.among, given)?, ..claim.clone() })
    }
}

/// The variables that identify each one: all of a list must be set.
const CONVENTION_VARIABLES: [(Convention, &[&str]); 7] = [
    (Convention::Slurm, &["SLURM_JOB_ID"]),
    (Convention::GridEngine, &["SGE_ROOT", "JOB_ID"]),
    (Convention::GridEngine, &["SGE_TASK_ID", "JOB_ID"]),
    (Convention::Ray, &["RAY_JOB_ID"]),
    (Convention::Torchrun, &["LOCAL_RANK", "LOCAL_WORLD_SIZE"]),
    (Convention::Horovod, &["HOROVOD_LOCAL_RANK"]),
    (Convention::OpenMpi, &["OMPI_COMM_WORLD_LOCAL_RANK"]),
];

/// The variables with the rank of a program on its machine.
const RANKS: [(Convention, &str); 3] = [
    (Convention::Torchrun, "LOCAL_RANK"),
    (Convention::Horovod, "HOROVOD_LOCAL_RANK"),
    (Convention::OpenMpi, "OMPI_COMM_WORLD_LOCAL_RANK"),
];

/// The variables in which a scheduler names devices, closest first.
const LISTS: [(Convention, &str); 3] = [
    (Convention::Slurm, "SLURM_STEP_GPUS"),
    (Convention::Slurm, "SLURM_JOB_GPUS"),
    (Convention::GridEngine, "SGE_HGR_gpu"),
];

/// Returns the restrictions from environment variables; calls `machine` for the devices only if it
/// has to parse a list, and `gres` only if that is a list of Slurm: it returns the file of the
/// device at each position in the list of `slurmd -G`, or an empty map if they are unknown.
/// `grammars` are all, usually [`GRAMMARS`](gpu_core::visible::GRAMMARS).
///
/// # Errors
/// `Invalid` if the device order of the visible list is unknown here, and no scheduler explains it,
/// or if it is unknown which devices the indexes in the scheduler's list refer to: a guess could
/// select the device of another user.
pub fn inherited(
    grammars: &[&dyn Grammar],
    variable: &dyn Fn(&str) -> Option<OsString>,
    machine: &dyn Fn() -> Vec<DeviceState>,
    gres: &dyn Fn() -> BTreeMap<u32, DeviceKey>,
) -> Result<Inherited> {
    // A value that is not valid text names no device.
    let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
    let is_set = |name: &&str| variable(name).is_some();
    let mut conventions: Vec<Convention> = Vec::new();
    for (convention, signs) in CONVENTION_VARIABLES {
        if signs.iter().all(is_set) && !conventions.contains(&convention) {
            conventions.push(convention);
        }
    }
    let started_by = |convention: &Convention| conventions.contains(convention);
    let mut notes = Vec::new();
    for (convention, name) in RANKS.iter().filter(|(convention, _)| started_by(convention)) {
        if let Some(rank) = text(name).and_then(|rank| rank.trim().parse().ok()) {
            notes.push(Note::OneOfMany(*convention, rank));
        }
    }
    let listed = LISTS.iter().filter(|(convention, _)| started_by(convention));
    let listed =
        listed.copied().find_map(|(convention, name)| Some((convention, name, text(name)?)));
    let is_visible_set = grammars.iter().any(|grammar| grammar.is_set(&text));
    let mut found = Inherited { given: None, by: None, conventions, notes };
    match (is_visible_set, listed) {
        (true, listed) => found.read_visible(grammars, &text, listed, &machine(), gres)?,
        (false, Some(list)) => {
            found.given = Some(found.read_list(&list, &machine(), gres)?);
            found.by = Some(list.1);
        }
        (false, None) => {
            let silent = found.assigned_by().map(Note::NothingNamed);
            found.notes.extend(silent);
        }
    }
    Ok(found)
}

/// A list of a scheduler: the variable and its value.
type List = (Convention, &'static str, String);

impl Inherited {
    /// Returns the scheduler that started this and assigns devices, by list or by number.
    fn assigned_by(&self) -> Option<Convention> {
        let assigns = |convention: &Convention| {
            matches!(convention, Convention::Slurm | Convention::GridEngine | Convention::Ray)
        };
        self.conventions.iter().copied().find(assigns)
    }

    /// Parses the lists of visible devices.
    fn read_visible(
        &mut self,
        grammars: &[&dyn Grammar],
        text: &dyn Fn(&str) -> Option<String>,
        listed: Option<List>,
        machine: &[DeviceState],
        gres: &dyn Fn() -> BTreeMap<u32, DeviceKey>,
    ) -> Result<()> {
        let mut given = Vec::new();
        for grammar in grammars {
            let devices = devices_of(grammar.visibility(), machine);
            let mut lists = grammar.lists(text, machine);
            for GivenList { variable, resolved, .. } in &lists {
                let ended_at = resolved.as_ref().ok().and_then(|list| list.ended_at.clone());
                self.notes.extend(ended_at.map(|at| Note::ListEnds { variable, at }));
            }
            let Some(GivenList { variable, resolved, .. }) = lists.pop() else {
                if self.assigned_by().is_none() {
                    given.extend(keys(&*devices));
                }
                continue;
            };
            let by = match (resolved, &listed) {
                (Ok(resolved), _) => {
                    given.extend(resolved.uuids());
                    variable
                }
                (Err(_), Some(list)) => {
                    self.notes.push(Note::NumbersUnclear(list.0));
                    let listed = self.read_list(list, machine, gres)?;
                    given.extend(listed.into_iter().filter(|key| has(&devices, key)));
                    list.1
                }
                (Err(error), None) => return Err(error),
            };
            self.by.get_or_insert(by);
        }
        self.given = Some(given);
        Ok(())
    }

    /// Parses a scheduler's list. Omits devices that are not visible here, because a cgroup may
    /// hide them. The list ends at the first entry that is not a number.
    fn read_list(
        &mut self,
        (convention, variable, value): &List,
        machine: &[DeviceState],
        gres: &dyn Fn() -> BTreeMap<u32, DeviceKey>,
    ) -> Result<Vec<DeviceUuid>> {
        let mut numbers = BTreeSet::new();
        let mut order = Vec::new();
        let separators = |c: char| c == ',' || c.is_ascii_whitespace();
        for entry in value.split(separators).filter(|entry| !entry.is_empty()).take(ENTRIES) {
            let Some((first, last)) = range(entry) else {
                let at = entry.chars().take(LONGEST).collect();
                self.notes.push(Note::ListEnds { variable, at });
                break;
            };
            let last = last.min(first.saturating_add(LARGEST));
            order.extend((first..=last).filter(|number| numbers.insert(*number)));
        }
        let unknown = |why: &str| {
            let what = format!("find the GPUs of {variable}={}", brief(value));
            Error::new(ErrorKind::Invalid, what).with_source(why)
        };
        let meant = match convention {
            Convention::Slurm => slurms(&order, machine, gres).ok_or_else(|| {
                unknown(
                    "the indexes refer to Slurm's list of GPUs, which slurmd -G does not show \
                     here; set CUDA_VISIBLE_DEVICES to the GPUs of the job",
                )
            })?,
            _ if are_of_several_vendors(machine) => {
                return Err(unknown(
                    "the machine has GPUs of several vendors, which count their own; set the \
                     variable of each vendor, such as CUDA_VISIBLE_DEVICES, to the GPUs of the job",
                ));
            }
            // The administrator's numbering applies, as in nvidia-smi.
            _ => {
                let at = |number: &u32| machine.iter().find(|device| device.id().index == *number);
                order.iter().filter_map(at).collect()
            }
        };
        Ok(keys(meant).collect())
    }
}

/// Returns the keys of the devices that have one.
fn keys<'a>(
    devices: impl IntoIterator<Item = &'a DeviceState>,
) -> impl Iterator<Item = DeviceUuid> {
    devices.into_iter().filter_map(|device| device.id().lease_key().ok()).map(Cow::into_owned)
}

fn are_of_several_vendors(machine: &[DeviceState]) -> bool {
    machine.windows(2).any(|two| two[0].info.visibility != two[1].info.visibility)
}

/// Returns the devices at these positions of Slurm's list that are visible here; `None` if the
/// positions are unknown.
///
/// Since Slurm 21.08 a number is a position in the order of `File=` in gres.conf, and not the
/// number of the file (`src/plugins/gres/common/gres_common.c`). If a cgroup confines the job, the
/// driver shows only the job's devices: if it shows as many as the list has, they are the same
/// devices.
fn slurms<'a>(
    positions: &[u32],
    machine: &'a [DeviceState],
    gres: &dyn Fn() -> BTreeMap<u32, DeviceKey>,
) -> Option<Vec<&'a DeviceState>> {
    if positions.len() == machine.len() {
        return Some(machine.iter().collect());
    }
    let gres = gres();
    let keys: Vec<DeviceKey> =
        positions.iter().map(|position| gres.get(position).copied()).collect::<Option<_>>()?;
    let of = |key: &DeviceKey| machine.iter().find(|device| device.id().owns(*key));
    Some(keys.iter().filter_map(of).collect())
}

fn brief(value: &str) -> String {
    value.chars().take(LONGEST).collect()
}

/// More than any machine has.
const ENTRIES: usize = 1024;
/// The most devices of one range.
const LARGEST: u32 = 1023;
/// How much of an invalid entry is shown.
const LONGEST: usize = 40;

/// Parses `3` or `0-3`; ignores a word before the number, as in Grid Engine's `gpu0`.
fn range(entry: &str) -> Option<(u32, u32)> {
    let entry = entry.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_');
    let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = |text: &str| text.parse().ok().filter(|_| digits(text));
    Some((number(first)?, number(last)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::visible::{GRAMMARS, cuda::VISIBLE};
    use gpu_core::{Absent, DeviceId, DeviceInfo, DeviceSample, Fault, FileId, Groups, Partition};
    use std::cell::Cell;

    fn mig(uuid: &str, gpu_instance: u32) -> Partition {
        Partition {
            index: gpu_instance,
            uuid: Ok(DeviceUuid(uuid.into())),
            profile: Err(Absent::NotRecorded),
            gpu_instance: Some(gpu_instance),
            compute_instance: Some(0),
            memory: DeviceSample::absent(Absent::NotRecorded).memory,
        }
    }

    /// Devices with one name, or with two, whose device files are in reverse order.
    fn machine(alike: bool) -> Vec<DeviceState> {
        let fault = Fault { kind: ErrorKind::TimedOut, text: String::new() };
        let device = |index: u32| {
            let mut id = DeviceId::from_index(index);
            id.uuid = Ok(DeviceUuid(format!("GPU-{index}")));
            id.node = Ok(node(3 - index));
            let name = if alike || index < 2 { "A100" } else { "V100" };
            let info = DeviceInfo { name: Ok(name.into()), ..DeviceInfo::unknown(id) };
            let mut state = DeviceState::unanswered(info, Groups::NONE, &fault);
            if index == 1 {
                state.partitions = Ok(vec![mig("MIG-41a7", 2), mig("MIG-52b8", 3)]);
            }
            state
        };
        (0..4).map(device).collect()
    }

    fn read(variables: &[(&str, &str)], alike: bool) -> Result<Inherited> {
        let value = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| OsString::from(*value))
        };
        inherited(GRAMMARS, &value, &|| machine(alike), &gres)
    }

    /// Slurm's list: the files of devices 1, 3, 0 and 2, in this order.
    fn gres() -> BTreeMap<u32, DeviceKey> {
        [(0, 1), (1, 3), (2, 0), (3, 2)].map(|(at, file)| (at, DeviceKey::Node(node(file)))).into()
    }

    fn node(minor: u32) -> FileId {
        FileId::Device { major: 195, minor }
    }

    fn given(variables: &[(&str, &str)]) -> Option<Vec<String>> {
        let given = read(variables, true).unwrap().given;
        given.map(|given| given.into_iter().map(|uuid| uuid.0).collect())
    }

    #[test]
    fn device_lists_of_every_convention_are_read() {
        let slurm = ("SLURM_JOB_ID", "7");
        let engine = [("SGE_ROOT", "/opt/sge"), ("JOB_ID", "7")];
        for (variables, expected) in [
            (vec![], None),
            (vec![("CUDA_VISIBLE_DEVICES", "2,0")], Some(vec!["GPU-2", "GPU-0"])),
            (vec![("CUDA_VISIBLE_DEVICES", "GPU-3")], Some(vec!["GPU-3"])),
            (vec![("CUDA_VISIBLE_DEVICES", "")], Some(vec![])),
            (vec![("CUDA_VISIBLE_DEVICES", "NoDevFiles")], Some(vec![])),
            // Slurm: the visible list first, then the step's, then the job's, by position. Device N
            // has the file 3 - N.
            (
                vec![slurm, ("CUDA_VISIBLE_DEVICES", "1"), ("SLURM_JOB_GPUS", "0")],
                Some(vec!["GPU-1"]),
            ),
            (vec![slurm, ("SLURM_JOB_GPUS", "0,2-3")], Some(vec!["GPU-2", "GPU-3", "GPU-1"])),
            (vec![slurm, ("SLURM_STEP_GPUS", "1"), ("SLURM_JOB_GPUS", "0,1")], Some(vec!["GPU-0"])),
            (vec![slurm], None),
            // A shell that merely has this variable set is not in a job.
            (vec![("SLURM_JOB_GPUS", "0")], None),
            (
                vec![engine[0], engine[1], ("SGE_HGR_gpu", "gpu0 gpu2")],
                Some(vec!["GPU-0", "GPU-2"]),
            ),
            (vec![engine[0], engine[1]], None),
            (vec![("RAY_JOB_ID", "01"), ("CUDA_VISIBLE_DEVICES", "3")], Some(vec!["GPU-3"])),
        ] {
            let expected = expected.map(|e| e.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(given(&variables), expected, "{variables:?}");
        }
    }

    #[test]
    fn indexes_in_unknown_order_are_not_guessed() {
        let list = ("CUDA_VISIBLE_DEVICES", "0");
        assert_eq!(read(&[list], false).unwrap_err().kind(), ErrorKind::Invalid);
        let ordered = read(&[list, ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")], false).unwrap();
        assert_eq!(ordered.given, Some(vec![DeviceUuid("GPU-0".into())]));
        let slurm = [list, ("SLURM_JOB_ID", "7"), ("SLURM_JOB_GPUS", "1")];
        let reported = read(&slurm, false).unwrap();
        assert_eq!(reported.given, Some(vec![DeviceUuid("GPU-0".into())]));
        assert_eq!(reported.notes, [Note::NumbersUnclear(Convention::Slurm)]);
    }

    #[test]
    fn positions_of_slurm_are_not_guessed() {
        let value = |gpus: &'static str| {
            move |name: &str| match name {
                "SLURM_JOB_ID" => Some(OsString::from("7")),
                "SLURM_JOB_GPUS" => Some(gpus.into()),
                _ => None,
            }
        };
        let read = |gpus, shown: usize, gres: &dyn Fn() -> BTreeMap<u32, DeviceKey>| {
            inherited(GRAMMARS, &value(gpus), &|| machine(true)[..shown].to_vec(), gres)
        };
        let given = |gpus, shown| {
            let given = read(gpus, shown, &BTreeMap::new).unwrap().given.unwrap();
            given.into_iter().map(|uuid| uuid.0).collect::<Vec<_>>()
        };
        // Fenced in, the driver shows the devices of the job.
        assert_eq!(given("2", 1), ["GPU-0"]);
        assert_eq!(given("1,3", 2), ["GPU-0", "GPU-1"]);
        for (gpus, shown) in [("0", 4), ("0,1", 4), ("0", 0)] {
            let refused = read(gpus, shown, &BTreeMap::new).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{gpus} of {shown}");
            assert!(refused.to_string().contains("SLURM_JOB_GPUS"), "{refused}");
        }
        // A position that Slurm's list lacks, and a flood of numbers.
        assert!(read("9", 4, &gres).is_err());
        assert!(read("0-4294967295", 4, &gres).is_err());
    }

    #[test]
    fn only_first_mig_device_is_inherited_by_uuid() {
        for list in ["MIG-41a7", "MIG-GPU-1/2/0", "MIG-41a7,MIG-52b8"] {
            assert_eq!(given(&[(VISIBLE, list)]), Some(vec!["MIG-41a7".to_owned()]), "{list}");
        }
        for list in ["MIG-63c9,MIG-41a7", "MIG-GPU-9/2/0"] {
            let read = read(&[(VISIBLE, list)], true).unwrap();
            assert_eq!(read.given, Some(vec![]), "{list} is not there");
            assert!(matches!(read.notes[..], [Note::ListEnds { .. }]), "{:?}", read.notes);
        }
        let whole = read(&[(VISIBLE, "GPU-1,MIG-GPU-1/2/0")], true).unwrap();
        assert_eq!(whole.given, Some(vec![DeviceUuid("GPU-1".into())]), "as CUDA reads it");
    }

    #[test]
    fn notes_report_ambiguities() {
        let notes = |variables: &[(&str, &str)]| read(variables, true).unwrap().notes;
        let rank = [("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "4")];
        assert_eq!(notes(&rank), [Note::OneOfMany(Convention::Torchrun, 1)]);
        assert_eq!(notes(&rank[..1]), []);
        let horovod = [("HOROVOD_LOCAL_RANK", "2")];
        assert_eq!(notes(&horovod), [Note::OneOfMany(Convention::Horovod, 2)]);
        let engine = [("SGE_ROOT", "/opt/sge"), ("JOB_ID", "7")];
        assert_eq!(notes(&engine), [Note::NothingNamed(Convention::GridEngine)]);
        let ended = Note::ListEnds { variable: VISIBLE, at: "7".into() };
        assert_eq!(notes(&[("CUDA_VISIBLE_DEVICES", "0,7,1")]), [ended]);
        let odd = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_GPUS", "0,x-y,1")];
        assert!(matches!(&notes(&odd)[..], [Note::ListEnds { variable: "SLURM_JOB_GPUS", .. }]));
    }

    #[test]
    fn machine_is_queried_only_if_a_list_is_set() {
        let asked = Cell::new(false);
        let machine = || {
            asked.set(true);
            machine(true)
        };
        let read = |set: &str| {
            let value = |name: &str| (name == set).then(|| "0".into());
            inherited(GRAMMARS, &value, &machine, &BTreeMap::new).unwrap();
            asked.get()
        };
        assert!(!read("LOCAL_RANK"));
        assert!(read(VISIBLE));
    }

    #[test]
    fn claim_is_narrowed_never_widened() {
        let uuids = |names: &[&str]| -> Vec<DeviceUuid> {
            names.iter().map(|name| DeviceUuid((*name).to_owned())).collect()
        };
        let found = read(&[("CUDA_VISIBLE_DEVICES", "1,2")], true).unwrap();
        let any = Claim::whole(1);
        assert_eq!(found.narrow(&any).unwrap().among, uuids(&["GPU-1", "GPU-2"]));
        let some = Claim { among: uuids(&["GPU-0", "GPU-2"]), ..Claim::whole(1) };
        assert_eq!(found.narrow(&some).unwrap().among, uuids(&["GPU-2"]));
        let other = Claim { among: uuids(&["GPU-0"]), ..Claim::whole(1) };
        assert_eq!(found.narrow(&other), None);
        let none = read(&[("CUDA_VISIBLE_DEVICES", "")], true).unwrap();
        assert_eq!(none.narrow(&any), None);
        assert_eq!(read(&[], true).unwrap().narrow(&some), Some(some.clone()));
    }
}
