//! A kubelet's answers as plain data.

/// The pods of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Pods with their UIDs; empty if the kubelet does not serve them.
    pub known: Vec<KnownPod>,
    /// The containers that have devices.
    pub assigned: Vec<Assignment>,
}

/// A pod with its UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPod {
    /// The UID, as in the path of its cgroup.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its containers: the ID from the runtime, and the name.
    pub containers: Vec<(String, String)>,
}

/// The devices assigned to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The namespace of its pod.
    pub namespace: String,
    /// The name of its pod.
    pub pod: String,
    /// The name of the container.
    pub container: String,
    /// The devices as NVIDIA's plugin or driver names them: the UUID of a GPU or MIG device, an
    /// index, or `gpu-MINOR`.
    pub devices: Vec<DeviceName>,
}

/// A device, in the form used by the plugin or driver that assigned it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceName {
    /// UUID of a GPU or of a MIG device.
    Uuid(String),
    /// Index in NVML's order, used by the plugin with `DEVICE_ID_STRATEGY=index`.
    Index(u32),
    /// Minor number of the device file, used by the driver for dynamic resource allocation.
    Minor(u32),
}

/// The maximum length in characters of a DNS name (RFC 1123), which Kubernetes requires for pod
/// names.
const MAX_NAME_CHARS: usize = 253;

/// Returns whether the text is a valid name of a pod, namespace or container: lower-case letters,
/// digits, `-` and `.`, starting with a letter or digit.
pub(crate) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= MAX_NAME_CHARS
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'.'))
}

/// Returns whether the text is a pod UID in the form of [`gpu_core::Workload::id`].
pub(crate) fn is_uid(text: &str) -> bool {
    (32..=36).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

impl DeviceName {
    /// Parses a device ID of NVIDIA's plugin. A replica of a shared device maps to that device.
    pub(crate) fn of_plugin(id: &str) -> Self {
        let id = id.split_once("::").map_or(id, |(device, _)| device);
        match id.parse() {
            Ok(index) => DeviceName::Index(index),
            Err(_) => DeviceName::Uuid(id.to_owned()),
        }
    }

    /// Parses the name that NVIDIA's driver for dynamic resource allocation gives a whole device.
    pub(crate) fn of_driver(name: &str) -> Option<Self> {
        name.strip_prefix("gpu-")?.parse().ok().map(DeviceName::Minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_names_valid_in_kubernetes() {
        for name in ["a", "train-0", "kube-system", "a.b-c9"] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(254);
        for name in ["", "-a", ".a", "A", "a b", "a\nb", "--all", "a\u{e9}", "a/b", &long] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn uid_has_32_hexadecimal_digits_and_perhaps_dashes() {
        let plain = "2f44e1c18a5b4c0e9d0e5f3b6a7c8d9e";
        for uid in [plain, "2f44e1c1-8a5b-4c0e-9d0e-5f3b6a7c8d9e"] {
            assert!(is_uid(uid), "{uid}");
        }
        for uid in ["", "2f44", &plain.replace('f', "g"), &plain.repeat(2)] {
            assert!(!is_uid(uid), "{uid}");
        }
    }

    #[test]
    fn device_ids_of_plugin_and_driver_are_parsed() {
        let uuid = |text: &str| DeviceName::Uuid(text.to_owned());
        assert_eq!(DeviceName::of_plugin("GPU-1-2::3"), uuid("GPU-1-2"));
        assert_eq!(DeviceName::of_plugin("MIG-1"), uuid("MIG-1"));
        assert_eq!(DeviceName::of_plugin("7"), DeviceName::Index(7));
        assert_eq!(DeviceName::of_driver("gpu-3"), Some(DeviceName::Minor(3)));
        assert_eq!(DeviceName::of_driver("gpu-3-mig-9-4-4"), None);
    }
}
