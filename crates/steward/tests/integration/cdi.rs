//! The names of devices for containers.

use crate::fake::{World, lease, uuid};
use gpu_core::visible::{intel::LEVEL_ZERO, rocm::ROCM};
use gpu_core::{DeviceUuid, ErrorKind};
use gpu_steward::{ClaimContext, Wants, cdi_names};

#[test]
fn devices_have_their_container_names() {
    let world = World::new(4);
    for index in [1, 3] {
        world.state().devices[index].visibility = ROCM;
    }
    world.state().devices[2].visibility = LEVEL_ZERO;
    let machine = ClaimContext::observe(&world.ports(), Wants::default()).snapshot.devices;
    let names = |keys: &[DeviceUuid]| {
        let mut entry = lease("aaaaaa", 1, 1, &[]);
        entry.devices = keys.into();
        cdi_names(&entry, &machine)
    };
    assert_eq!(names(&[]).unwrap(), Vec::<String>::new());
    let known = ["GPU-5a2b", "MIG-77aa-1"].map(|uuid| DeviceUuid(uuid.to_owned()));
    let nvidia = ["nvidia.com/gpu=GPU-5a2b", "nvidia.com/gpu=MIG-77aa-1"];
    assert_eq!(names(&known).unwrap(), nvidia);
    assert_eq!(names(&[uuid(3), uuid(1)]).unwrap(), ["amd.com/gpu=1", "amd.com/gpu=0"]);
    assert_eq!(names(&[uuid(2)]).unwrap_err().kind(), ErrorKind::Invalid);
    for bad in ["MIG-GPU-5a2b/6/0", "GPU-1\nprivileged", "GPU 1"] {
        let bad = DeviceUuid(bad.to_owned());
        assert_eq!(
            names(std::slice::from_ref(&bad)).unwrap_err().kind(),
            ErrorKind::Invalid,
            "{bad}"
        );
    }
}
