//! Names of devices, full and partial, and the set of devices that a graph may use.

use std::fmt;

/// A full or partial name of a device, such as `/job:localhost/replica:0/task:0/device:GPU:0`,
/// `/device:GPU:*` or `/cpu:0`. Each part that is `None` may be anything.
///
/// The grammar is that of TensorFlow's `device_name_utils.cc`.
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
    /// Parses a name; `None` if it is malformed. The empty name is any device.
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
                    spec.kind = if kind == "*" { None } else { Some(kind_name(kind)?) };
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

    /// Returns whether it names one device completely.
    pub fn is_full(&self) -> bool {
        self.job.is_some()
            && self.replica.is_some()
            && self.task.is_some()
            && self.kind.is_some()
            && self.index.is_some()
    }

    /// Returns whether every part that is given here is the same there.
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

/// A type is written in upper case where it is one of the usual two.
fn kind_name(text: &str) -> Option<String> {
    match text {
        "cpu" | "gpu" => Some(text.to_uppercase()),
        _ => name(text),
    }
}

/// Returns a number, or `None` within for `*`.
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
    /// Whether it belongs to the process that places: kernels of other processes are unknown.
    pub is_local: bool,
}

impl Device {
    /// Returns the device with a full name; `None` if it is malformed or partial.
    pub fn named(name: &str) -> Option<Device> {
        let name = DeviceSpec::parse(name).filter(DeviceSpec::is_full)?;
        Some(Device { name, is_local: true })
    }

    /// Returns its type.
    pub fn kind(&self) -> &str {
        self.name.kind.as_deref().unwrap_or_default()
    }
}
