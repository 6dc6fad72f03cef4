//! Names of devices, full and partial, and the set of devices that a graph may use.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// A full or partial name of a device, such as `/job:localhost/replica:0/task:0/device:GPU:0`,
/// `/device:GPU:*` or `/cpu:0`. Each part that is `None` matches any value.
///
/// The grammar is that of TensorFlow's `device_name_utils.cc`: only the short forms change the case
/// of a type, so `/device:gpu:0` is not a device of the type `GPU`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceSpec {
    /// The job: letters, digits and `_`.
    pub job: Option<String>,
    /// The replica.
    pub replica: Option<u32>,
    /// The task.
    pub task: Option<u32>,
    /// The type, such as `CPU` or `GPU`.
    pub kind: Option<String>,
    /// The index among the devices of its type.
    pub index: Option<u32>,
}

impl DeviceSpec {
    /// Parses a name; `None` if it is malformed. The empty name matches any device.
    pub fn parse(text: &str) -> Option<DeviceSpec> {
        let mut spec = DeviceSpec::default();
        if text.is_empty() || text == "/" {
            return Some(spec);
        }
        let mut rest = text;
        while !rest.is_empty() {
            let part = rest.strip_prefix('/')?;
            let end = part.find('/').unwrap_or(part.len());
            let (part, after) = part.split_at(end);
            rest = after;
            let (key, value) = part.split_once(':')?;
            match key {
                "job" if value == "*" => spec.job = None,
                "job" => spec.job = Some(name(value)?),
                "replica" => spec.replica = number(value)?,
                "task" => spec.task = number(value)?,
                "device" => {
                    let (kind, index) = match value.split_once(':') {
                        Some((kind, index)) => (kind, number(index)?),
                        None => (value, None),
                    };
                    spec.kind = if kind == "*" { None } else { Some(name(kind)?) };
                    spec.index = index;
                }
                // The short forms.
                "cpu" | "CPU" | "gpu" | "GPU" => {
                    spec.kind = Some(key.to_uppercase());
                    spec.index = number(value)?;
                }
                _ => return None,
            }
        }
        Some(spec)
    }

    /// Returns whether it identifies one device completely.
    pub fn is_full(&self) -> bool {
        self.job.is_some()
            && self.replica.is_some()
            && self.task.is_some()
            && self.kind.is_some()
            && self.index.is_some()
    }

    /// Returns whether every part that is given here has the same value there.
    pub fn matches(&self, device: &DeviceSpec) -> bool {
        fn fits<T: PartialEq>(wanted: &Option<T>, of: &Option<T>) -> bool {
            wanted.is_none() || wanted == of
        }
        fits(&self.job, &device.job)
            && fits(&self.replica, &device.replica)
            && fits(&self.task, &device.task)
            && fits(&self.kind, &device.kind)
            && fits(&self.index, &device.index)
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "/job:{job}")?;
        }
        if let Some(replica) = self.replica {
            write!(f, "/replica:{replica}")?;
        }
        if let Some(task) = self.task {
            write!(f, "/task:{task}")?;
        }
        match (&self.kind, self.index) {
            (Some(kind), Some(index)) => write!(f, "/device:{kind}:{index}"),
            (Some(kind), None) => write!(f, "/device:{kind}:*"),
            (None, Some(index)) => write!(f, "/device:*:{index}"),
            (None, None) => Ok(()),
        }
    }
}

fn name(text: &str) -> Option<String> {
    let mut chars = text.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
    let valid = starts && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
    valid.then(|| text.to_owned())
}

/// Returns a number, or an inner `None` for `*`.
fn number(text: &str) -> Option<Option<u32>> {
    match text {
        "*" => Some(None),
        _ if text.starts_with('+') => None,
        _ => text.parse().ok().map(Some),
    }
}

/// A device that operations may be placed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The full name.
    pub name: DeviceSpec,
    /// Whether it belongs to the process that places: the kernels of other processes are unknown.
    pub is_local: bool,
}

impl Device {
    /// Returns the device with a full name; `None` if it is malformed or partial.
    pub fn named(name: &str) -> Option<Device> {
        let name = DeviceSpec::parse(name).filter(DeviceSpec::is_full)?;
        Some(Device { name, is_local: true })
    }

    /// Returns the device of this process with a name such as `/gpu:0`; `None` if it is malformed,
    /// or has no type or index. Missing parts before the type default to
    /// `/job:localhost/replica:0/task:0`.
    pub fn local(name: &str) -> Option<Device> {
        let mut name = DeviceSpec::parse(name)?;
        name.job.get_or_insert_with(|| "localhost".to_owned());
        name.replica.get_or_insert(0);
        name.task.get_or_insert(0);
        name.is_full().then_some(Device { name, is_local: true })
    }

    /// Returns its type.
    pub fn kind(&self) -> &str {
        self.name.kind.as_deref().unwrap_or_default()
    }
}

/// The devices that a graph may use, with the priorities of their types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSet {
    devices: Vec<Device>,
    names: Vec<String>,
    by_name: HashMap<String, usize>,
    priorities: BTreeMap<String, i32>,
}

impl DeviceSet {
    /// Returns a set of devices. If several have the same name, the first one is used.
    pub fn new(devices: impl IntoIterator<Item = Device>) -> DeviceSet {
        let mut set = DeviceSet::default();
        for device in devices {
            set.add(device);
        }
        set
    }

    /// Returns a set of devices of this process, by their full names; `None` if one is malformed or
    /// partial.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<DeviceSet> {
        names.into_iter().map(Device::named).collect::<Option<Vec<_>>>().map(DeviceSet::new)
    }

    /// Adds a device.
    pub fn add(&mut self, device: Device) {
        let name = device.name.to_string();
        self.by_name.entry(name.clone()).or_insert(self.devices.len());
        self.names.push(name);
        self.devices.push(device);
    }

    /// Sets the priority of a type of device: operations go to the type with the highest priority
    /// that has a kernel for them.
    pub fn set_priority(&mut self, kind: &str, priority: i32) {
        self.priorities.insert(kind.to_owned(), priority);
    }

    /// Returns the priority of a type of device: 210 for `GPU`, 70 for `GPUCompatibleCPU`, 60 for
    /// `CPU` and 50 for others, as TensorFlow registers them, unless another priority was set.
    pub fn priority(&self, kind: &str) -> i32 {
        match (self.priorities.get(kind), kind) {
            (Some(priority), _) => *priority,
            (None, "GPU") => 210,
            (None, "GPUCompatibleCPU") => 70,
            (None, "CPU") => 60,
            (None, _) => 50,
        }
    }

    /// Returns the devices, in the order in which they were added.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns whether it has no device.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Returns the full names of the devices, in their order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the index of the device with a full name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns the types of the devices: the highest priority first, then by name.
    pub fn kinds(&self) -> Vec<&str> {
        let kinds: BTreeSet<&str> = self.devices.iter().map(Device::kind).collect();
        let mut kinds = Vec::from_iter(kinds);
        kinds.sort_by_key(|kind| std::cmp::Reverse(self.priority(kind)));
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_and_short_names_are_parsed() {
        let full = "/job:localhost/replica:0/task:0/device:GPU:1";
        assert_eq!(DeviceSpec::parse(full).map(|spec| spec.to_string()).as_deref(), Some(full));
        for (short, long) in [
            ("/gpu:1", "/device:GPU:1"),
            ("/CPU:*", "/device:CPU:*"),
            ("/device:TPU", "/device:TPU:*"),
            ("/job:*/task:3", "/task:3"),
            ("/device:*", ""),
            ("/", ""),
            ("", ""),
        ] {
            let spec = DeviceSpec::parse(short).unwrap();
            assert_eq!(spec.to_string(), long, "{short}");
        }
        for malformed in [
            "gpu:0",
            "/fakegpu:1",
            "/foo:bar",
            "/job:",
            "/job:1a",
            "/task:-1",
            "/gpu:+1",
            "/job:a/",
        ] {
            assert_eq!(DeviceSpec::parse(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn partial_name_matches_devices_with_all_its_parts() {
        let device = DeviceSpec::parse("/job:a/replica:0/task:0/device:GPU:1").unwrap();
        for (spec, matches) in
            [("/gpu:1", true), ("/gpu:0", false), ("/job:a", true), ("/task:1", false), ("", true)]
        {
            assert_eq!(DeviceSpec::parse(spec).unwrap().matches(&device), matches, "{spec}");
        }
    }

    #[test]
    fn types_are_in_order_of_priority() {
        let name = |kind: &str| format!("/job:a/replica:0/task:0/device:{kind}:0");
        let names: Vec<String> = ["CPU", "TPU", "ASIC", "GPU", "FPGA"].map(name).into();
        let mut set = DeviceSet::named(names.iter().map(String::as_str)).unwrap();
        set.set_priority("FPGA", 61);
        assert_eq!(set.kinds(), ["GPU", "FPGA", "CPU", "ASIC", "TPU"]);
        assert_eq!(set.position(&names[2]), Some(2));
        assert_eq!(DeviceSet::named(["/gpu:0"]), None);
    }
}
