//! The names of devices for containers.

use crate::fake::lease;
use gpu_core::{DeviceUuid, ErrorKind};
use gpu_steward::cdi_names;

#[test]
fn devices_have_their_container_names() {
    let mut entry = lease("aaaaaa", 1, 1, &[]);
    assert_eq!(cdi_names(&entry).unwrap(), Vec::<String>::new());
    let uuids = ["GPU-5a2b", "MIG-77aa-1"];
    entry.devices = uuids.map(|uuid| DeviceUuid(uuid.to_owned())).into();
    let names = cdi_names(&entry).unwrap();
    assert_eq!(names, ["nvidia.com/gpu=GPU-5a2b", "nvidia.com/gpu=MIG-77aa-1"]);
    for bad in ["MIG-GPU-5a2b/6/0", "GPU-1\nprivileged", "GPU 1"] {
        entry.devices = vec![DeviceUuid(bad.to_owned())];
        assert_eq!(cdi_names(&entry).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
    }
}
