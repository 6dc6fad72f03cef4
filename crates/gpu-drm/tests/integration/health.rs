//! Made cards that are unwell, and their reset.

use gpu_core::{
    Absent, ActToken, DeviceDetails, ErrorKind, GpuBackend, Group, Groups, Origin, ThrottleReasons,
};
use gpu_drm::{Drm, Root};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use tempfile::TempDir;

const CARD: &str = "sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0";

/// Makes a machine with one card behind a bridge.
fn machine(driver: &str, files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, content: &[u8]| {
        let path = root.path().join(CARD).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let uevent = format!("DRIVER={driver}\nPCI_ID=1002:7777\nPCI_SLOT_NAME=0000:03:00.0\n");
    write("uevent", uevent.as_bytes());
    files.iter().for_each(|(path, content)| write(path, content.as_bytes()));
    let node = root.path().join("sys/class/drm/card0");
    fs::create_dir_all(&node).unwrap();
    symlink(format!("../../../../{CARD}"), node.join("device")).unwrap();
    root
}

fn details(root: &TempDir) -> DeviceDetails {
    let drm = live(root);
    let id = drm.devices().unwrap().remove(0).id;
    let groups = [Group::Activity, Group::Pcie, Group::MemoryHealth, Group::MemoryErrors];
    drm.details(&id, Groups::from_iter(groups)).unwrap()
}

fn live(root: &TempDir) -> Drm {
    Drm::live(Arc::new(Root::open(root.path()).unwrap()))
}

#[test]
fn errors_of_blocks_are_those_of_memory() {
    let files = [("ras/umc_err_count", "ue: 2\nce: 30\n"), ("ras/gfx_err_count", "ue: 1\nce: 4\n")];
    let of = details(&machine("amdgpu", &files));
    let (health, errors) = (of.memory_health.unwrap(), of.memory_errors.unwrap());
    assert_eq!((health.corrected, health.uncorrected), (Ok(34), Ok(3)));
    assert_eq!((errors.corrected.device_memory, errors.uncorrected.device_memory), (Ok(30), Ok(2)));
    assert_eq!(errors.uncorrected.sram, Err(Absent::NotSupported));
    for (files, reason) in [
        (&[][..], Absent::NotSupported),
        (&[("ras/umc_err_count", "ue: x\nce: 0\n")], Absent::Implausible),
        (
            &[("ras/umc_err_count", "ue: 1\nce: 0\n"), ("power/runtime_status", "suspended\n")],
            Absent::Asleep,
        ),
    ] {
        let health = details(&machine("amdgpu", files)).memory_health.unwrap();
        assert_eq!(health.uncorrected, Err(reason), "{files:?}");
    }
}

#[test]
fn what_reduces_clocks_is_a_reason() {
    use ThrottleReasons as Reasons;
    let amd = |bits: u64| {
        let root = machine("amdgpu", &[]);
        let mut table = vec![0; 120];
        table[..4].copy_from_slice(&[120, 0, 1, 3]);
        table[112..].copy_from_slice(&bits.to_le_bytes());
        fs::write(root.path().join(CARD).join("gpu_metrics"), table).unwrap();
        details(&root).activity.unwrap().throttle
    };
    assert_eq!(amd(0), Ok(Reasons::default()));
    assert_eq!(amd(1), Ok(Reasons::SOFTWARE_POWER_CAP));
    assert_eq!(amd(1 << 36), Ok(Reasons::HARDWARE_THERMAL));
    assert_eq!(
        amd(1 << 47 | 1 << 16),
        Ok(Reasons::HARDWARE_SLOWDOWN | Reasons::SOFTWARE_POWER_CAP)
    );
    assert_eq!(amd(u64::MAX), Err(Absent::NotSupported));
    assert_eq!(
        details(&machine("amdgpu", &[])).activity.unwrap().throttle,
        Err(Absent::NotSupported)
    );
    let xe = |reasons: &[(&str, &str)]| {
        let throttle =
            reasons.iter().map(|(name, on)| (format!("tile0/gt0/freq0/throttle/{name}"), *on));
        let files: Vec<(String, &str)> =
            throttle.chain([("tile0/gt0/freq0/act_freq".to_owned(), "900\n")]).collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        details(&machine("xe", &files)).activity.unwrap().throttle
    };
    assert_eq!(xe(&[("status", "0\n"), ("reason_thermal", "0\n")]), Ok(Reasons::default()));
    assert_eq!(xe(&[("status", "1\n"), ("reason_thermal", "1\n")]), Ok(Reasons::HARDWARE_THERMAL));
    assert_eq!(xe(&[("status", "1\n"), ("reason_pl1", "1\n")]), Ok(Reasons::SOFTWARE_POWER_CAP));
}

#[test]
fn link_is_compared_with_that_of_the_bridge() {
    let files = [
        ("current_link_speed", "8.0 GT/s PCIe\n"),
        ("current_link_width", "4\n"),
        ("max_link_speed", "16.0 GT/s PCIe\n"),
        ("max_link_width", "16\n"),
    ];
    let max = |root: &TempDir| {
        let pcie = details(root).pcie.unwrap();
        assert_eq!(
            (pcie.generation, pcie.width, pcie.device_generation_max),
            (Ok(3), Ok(4), Ok(4))
        );
        (pcie.generation_max, pcie.width_max)
    };
    let unknown = machine("amdgpu", &files);
    assert_eq!(max(&unknown), (Err(Absent::NotSupported), Err(Absent::NotSupported)));
    let slot = machine(
        "amdgpu",
        &[&files[..], &[("../max_link_speed", "32.0 GT/s PCIe\n"), ("../max_link_width", "8\n")]]
            .concat(),
    );
    assert_eq!(max(&slot), (Ok(4), Ok(8)));
}

#[test]
fn reset_writes_only_the_file_of_the_card() {
    let token = ActToken::user_confirmed();
    let root = machine("amdgpu", &[("reset_method", "flr bus\n"), ("reset", "")]);
    let written = || fs::read_to_string(root.path().join(CARD).join("reset")).unwrap();
    let copied = Drm::new(Arc::new(Root::open(root.path()).unwrap()), Origin::Copied("x".into()));
    let id = copied.devices().unwrap().remove(0).id;
    assert_eq!(copied.reset(&id, &token).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(written(), "");
    live(&root).reset(&id, &token).unwrap();
    assert_eq!(written(), "1");
    let mut other = id.clone();
    other.bus = Ok("0000:04:00.0".parse().unwrap());
    assert_eq!(live(&root).reset(&other, &token).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn reset_without_method_is_unsupported_and_creates_no_file() {
    let token = ActToken::user_confirmed();
    for files in [
        &[("reset", "")][..],
        &[("reset", ""), ("reset_method", "\n")],
        &[("reset_method", "flr\n")],
    ] {
        let root = machine("xe", files);
        let drm = live(&root);
        let id = drm.devices().unwrap().remove(0).id;
        let error = drm.reset(&id, &token).unwrap_err();
        let reset = root.path().join(CARD).join("reset");
        assert!(fs::read(&reset).map_or(true, |content| content.is_empty()), "{files:?}");
        assert_eq!(reset.exists(), files[0].0 == "reset");
        assert_ne!(error.kind(), ErrorKind::Io, "{error:?}");
    }
    // A link of a made tree leads to no other file.
    let root = machine("xe", &[("reset_method", "flr\n")]);
    let outside = tempfile::NamedTempFile::new().unwrap();
    symlink(outside.path(), root.path().join(CARD).join("reset")).unwrap();
    let drm = live(&root);
    let id = drm.devices().unwrap().remove(0).id;
    drm.reset(&id, &token).unwrap_err();
    assert_eq!(fs::read(outside.path()).unwrap(), b"");
}
