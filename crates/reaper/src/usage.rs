//! The users of each device, for a view of the whole machine.

use crate::condition::Unexplained;
use crate::defect::{Defect, unfit};
use crate::detect::{DetectContext, InstanceAccount, busy_alone};
use crate::role::{DAEMON_MEMORY, Role};
use gpu_core::{
    Absent, Bytes, DeviceId, DeviceProcess, DeviceState, Origin, Percent, Pid, Reading, Snapshot,
};

/// The users of each device of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    devices: Vec<DeviceUsage>,
}

#[derive(Clone, Debug, PartialEq)]
struct DeviceUsage {
    device: DeviceId,
    users: Vec<User>,
    foreign: Vec<DeviceProcess>,
    /// Its memory and its users are known.
    accounted: bool,
    /// The holders of its files show every user, although its unlisted memory cannot be measured.
    is_seen_whole: bool,
    unexplained: Option<Bytes>,
    /// The GPU instances of MIG, if the memory of each and the instance of each user are known.
    instances: Vec<InstanceAccount>,
    /// The GPU instance that has the unexplained memory.
    unexplained_in: Option<u32>,
    unfit: Option<Defect>,
    busy_alone: bool,
}

/// A process that uses a device.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// The process.
    pub pid: Pid,
    /// The name in NVML's list, if it has one.
    pub name: Option<String>,
    /// Device memory; absent if NVML does not list the process, or its list could not be read.
    pub memory: Reading<Bytes>,
    /// The share of NVML's sample window in which it computed.
    pub utilization: Reading<Percent>,
    /// NVML lists it; absent if its list could not be read, or has PIDs that are invalid here.
    pub listed: Reading<bool>,
    /// The MIG GPU instance that it runs in, if the driver reports it.
    pub gpu_instance: Option<u32>,
    /// The MIG compute instance that it runs in, if the driver reports it.
    pub compute_instance: Option<u32>,
    /// Its role.
    pub role: Role,
    /// It makes the device busy. Displays, monitors and daemons do not, unless they may be a user's
    /// own and use more memory than such a service needs.
    pub occupies: bool,
}

impl Usage {
    /// Returns the users: the processes that NVML lists, and unlisted ones that use memory.
    pub fn of(snapshot: &Snapshot) -> Self {
        let context = DetectContext::of(snapshot);
        Usage {
            devices: snapshot.devices.iter().map(|device| of_device(&context, device)).collect(),
        }
    }

    /// Returns the users of a device, those that NVML lists first.
    pub fn on(&self, device: &DeviceId) -> &[User] {
        self.find(device).map_or(&[], |usage| &usage.users)
    }

    /// Returns the processes that NVML lists on a device by PIDs that are invalid here, in a separate
    /// PID namespace. Such a PID may be that of another process here, so nothing is looked up by it.
    pub fn foreign(&self, device: &DeviceId) -> &[DeviceProcess] {
        self.find(device).map_or(&[], |usage| &usage.foreign)
    }

    /// Returns the unexplained memory of a device, if it exceeds the driver's overhead.
    pub fn unexplained(&self, device: &DeviceId) -> Option<Bytes> {
        self.find(device)?.unexplained
    }

    /// Returns the unexplained memory of a device, zero if the driver's overhead explains it; `None`
    /// if its memory or its users are unknown.
    pub fn account(&self, device: &DeviceId) -> Option<Bytes> {
        let usage = self.find(device).filter(|usage| usage.accounted)?;
        Some(usage.unexplained.unwrap_or(Bytes(0)))
    }

    /// Returns the MIG GPU instance that has all unexplained memory of a device, except the part
    /// that the driver's overhead explains. `None` if several have some, or if the memory of an
    /// instance or the instance of a listed process is unknown.
    pub fn unexplained_in(&self, device: &DeviceId) -> Option<u32> {
        self.find(device)?.unexplained_in
    }

    /// Returns the unexplained memory of a MIG GPU instance, zero if the driver's overhead explains
    /// it; `None` if the memory of an instance or the instance of a listed process is unknown.
    pub fn account_of_instance(&self, device: &DeviceId, gpu_instance: u32) -> Option<Bytes> {
        let accounts = &self.find(device)?.instances;
        let account = accounts.iter().find(|known| known.gpu_instance == gpu_instance)?;
        Some(account.unexplained())
    }

    /// Returns the defect that keeps a device from jobs, as far as its details were read
    /// ([`defect_groups`](crate::defect_groups)).
    pub fn unfit(&self, device: &DeviceId) -> Option<Defect> {
        self.find(device)?.unfit
    }

    /// Returns whether a device is fit for a job and certainly only displays, monitors and daemons
    /// use it: if that is unknown, it is not free.
    pub fn is_free(&self, device: &DeviceId) -> bool {
        self.find(device).is_some_and(|usage| {
            let busy = usage.users.iter().any(|user| user.occupies) || !usage.foreign.is_empty();
            let sick = usage.unfit.is_some() || usage.busy_alone;
            (usage.accounted || usage.is_seen_whole)
                && !busy
                && usage.unexplained.is_none()
                && !sick
        })
    }

    fn find(&self, device: &DeviceId) -> Option<&DeviceUsage> {
        self.devices.iter().find(|usage| usage.device.same_device(device))
    }
}

/// Returns whether the holders of the device files show every user of a device, although its unlisted
/// memory cannot be measured.
fn is_seen_whole(context: &DetectContext<'_>, device: &DeviceState) -> bool {
    let now = context.now;
    !device.memory_source().kind.shows_leaks()
        && device.processes.is_ok()
        && now.holders.is_ok()
        && now.sees_host_pids == Ok(true)
        && now.knows_files_of(device)
        && context.unread().is_none()
        && now.origin != Origin::Pasted
}

fn of_device(context: &DetectContext<'_>, device: &DeviceState) -> DeviceUsage {
    let listed = context.listed_on(device).map(|process| {
        let role = context.role(process.pid, device);
        User {
            pid: process.pid,
            name: process.name.clone().ok(),
            memory: process.memory,
            utilization: process.utilization,
            listed: Ok(true),
            gpu_instance: process.gpu_instance,
            compute_instance: process.compute_instance,
            role,
            occupies: role == Role::MemoryUser,
        }
    });
    let mut users: Vec<User> = listed.collect();
    let foreign: Vec<DeviceProcess> = match context.now.sees_host_pids {
        Ok(false) => device.processes.clone().unwrap_or_default(),
        _ => Vec::new(),
    };
    let list = device.processes.as_ref().map_err(|fault| fault.kind.absent());
    let unreported = list.err().unwrap_or(Absent::NotRecorded);
    for holder in context.holders_of(device) {
        let pid = holder.process.pid;
        let strong = holder.surely_uses_memory_of(device.id());
        if !strong || context.listed(device, pid).is_some() {
            continue;
        }
        let role = context.role(pid, device);
        if role == Role::MemoryUser {
            users.push(User {
                pid,
                name: None,
                memory: Err(unreported),
                utilization: Err(unreported),
                // One of the foreign PIDs may be its own.
                listed: if foreign.is_empty() {
                    list.map(|_| false)
                } else {
                    Err(Absent::NotSupported)
                },
                gpu_instance: None,
                compute_instance: None,
                role,
                occupies: true,
            });
        }
    }
    // Several forged services together may use an amount that would be implausible for one.
    let unverified = |user: &&mut User| user.role.is_unverified(context.info(user.pid));
    let served = users.iter_mut().filter(unverified).map(|user| user.memory.ok());
    let served: Option<Bytes> = served.sum();
    if served.is_none_or(|memory| memory > DAEMON_MEMORY) {
        users.iter_mut().filter(unverified).for_each(|user| user.occupies = true);
    }
    let account = Unexplained::of(device);
    let instances = InstanceAccount::all(device);
    let whole = account.as_ref().filter(|account| account.is_ghost());
    let instance_account = whole.and_then(|whole| InstanceAccount::with_all(&instances, whole));
    DeviceUsage {
        device: device.id().clone(),
        users,
        foreign,
        accounted: account.is_some(),
        is_seen_whole: is_seen_whole(context, device),
        unexplained: whole.map(|account| account.bytes),
        unexplained_in: instance_account.map(|instance| instance.gpu_instance),
        instances,
        unfit: unfit(device),
        busy_alone: busy_alone(device).is_some(),
    }
}
