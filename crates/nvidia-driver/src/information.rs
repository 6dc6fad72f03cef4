//! What the kernel module says of a device in `/proc/driver/nvidia/gpus/BUS/information`.

use crate::node::node;
use gpu_core::{Absent, DeviceId, DeviceInfo, DeviceUuid, PciBusId};

/// Parses lines such as `Device Minor: \t 0`; a question mark stands for an unknown value.
pub(crate) fn device(bus: PciBusId, information: &str) -> DeviceInfo {
    let value = |name: &str| {
        let lines = information.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
        values.next().filter(|value| !value.is_empty() && !value.contains('?'))
    };
    let reported = |name: &str| value(name).ok_or(Absent::NotFound);
    let id = DeviceId {
        uuid: reported("GPU UUID").map(|uuid| DeviceUuid(uuid.to_owned())),
        index: 0,
        node: reported("Device Minor")
            .and_then(|minor| minor.parse().map(node).map_err(|_| Absent::Implausible)),
        bus: Ok(bus),
    };
    DeviceInfo { name: reported("Model").map(str::to_owned), ..DeviceInfo::unknown(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_identifies_device() {
        let bus = "0000:04:00.0".parse().unwrap();
        let text = "Model: \t\t Tesla P100-PCIE-16GB\nIRQ:   \t\t 44\nGPU UUID: \t GPU-a\n\
                    Device Minor: \t 3\n";
        let read = device(bus, text);
        assert_eq!(read.name.as_deref(), Ok("Tesla P100-PCIE-16GB"));
        assert_eq!((read.id.uuid, read.id.bus), (Ok(DeviceUuid("GPU-a".into())), Ok(bus)));
        assert_eq!(read.id.node, Ok(node(3)));
        for text in ["", "Device Minor:\n", "Device Minor: \t ?\nGPU UUID: \t GPU-????\n"] {
            let DeviceId { uuid, node, .. } = device(bus, text).id;
            assert_eq!((uuid, node), (Err(Absent::NotFound), Err(Absent::NotFound)), "{text:?}");
        }
        assert_eq!(device(bus, "Device Minor: x\n").id.node, Err(Absent::Implausible));
    }
}
