//! The text of one descriptor.

use crate::fuzz;
use gpu_core::{Absent, Bytes, Percent, Reading};
use gpu_drm::{Client, RegionKind, region_kind};
use proptest::prelude::*;
use std::time::Duration;

const AMDGPU: &str = "pos:\t0\npasid:\t32771\ndrm-driver:\tamdgpu\ndrm-pdev:\t0001:0a:00.0\n\
    drm-client-id:\t9\ndrm-memory-vram:\t2052 KiB\ndrm-memory-gtt: \t3 KiB\n\
    drm-memory-cpu: \t0 KiB\ndrm-engine-gfx:\t77 ns\ndrm-engine-enc_1:\t5 ns\n";
const AMDGPU_6_13: &str = "drm-driver:\tamdgpu\ndrm-client-id:\t9\ndrm-pdev:\t0001:0a:00.0\n\
    drm-total-vram:\t12 MiB\ndrm-shared-vram:\t1 MiB\ndrm-resident-vram:\t11 MiB\n\
    drm-purgeable-vram:\t0\ndrm-total-doorbell:\t8 KiB\ndrm-memory-vram:\t11264 KiB\n\
    amd-evicted-vram:\t1024 KiB\namd-requested-vram:\t12288 KiB\n";
const AMDGPU_6_4: &str = "drm-driver:\tamdgpu\ndrm-pdev:\t0001:0a:00.0\ndrm-client-id:\t9\n\
    drm-memory-vram:\t11264 KiB\namd-memory-visible-vram:\t7 KiB\n\
    amd-requested-visible-vram:\t9 KiB\namd-requested-vram:\t12288 KiB\ndrm-shared-vram:\t1024 KiB\n";
const AMDGPU_5_14: &str = "flags:\t02100002\npdev:\t0001:0a:00.0\npasid:\t32771\n\
    vram mem:\t2052 kB\ngtt mem:\t3 kB\ncpu mem:\t0 kB\ngfx0:\t12.34%\n";
const I915: &str = "drm-driver:\ti915\ndrm-client-id:\t9\ndrm-pdev:\t0001:0a:00.0\n\
    drm-total-system0:\t6 KiB\ndrm-shared-system0:\t0\ndrm-resident-system0:\t6 KiB\n\
    drm-resident-stolen-system0:\t4 KiB\ndrm-total-local0:\t9 MiB\ndrm-shared-local0:\t1 MiB\n\
    drm-resident-local0:\t8 MiB\ndrm-resident-local1:\t16\ndrm-engine-video:\t40 ns\n\
    drm-engine-capacity-video:\t2\ndrm-engine-video-enhance:\t0 ns\n";
const XE: &str = "drm-driver:\txe\ndrm-client-id:\t9\ndrm-pdev:\t0001:0a:00.0\n\
    drm-total-system:\t0\ndrm-resident-gtt:\t3 KiB\ndrm-shared-gtt:\t1 KiB\n\
    drm-total-vram0:\t12 MiB\ndrm-shared-vram0:\t1 MiB\ndrm-resident-vram0:\t11 MiB\n\
    drm-cycles-ccs:\t500\ndrm-total-cycles-ccs:\t1000\ndrm-engine-capacity-ccs:\t4\n";
const NPU: &str = "drm-driver:\tamdxdna_accel_driver\ndrm-client-id:\t9\ndrm-pdev:\t0001:0a:00.1\n\
    drm-engine-npu-amdxdna:\t6 ns\ndrm-total-memory:\t8 KiB\n";
const ALL: [&str; 7] = [AMDGPU, AMDGPU_6_13, AMDGPU_6_4, AMDGPU_5_14, I915, XE, NPU];

fn client(text: &str) -> Client {
    Client::parse(text.as_bytes()).unwrap()
}

fn kib(count: u64) -> Reading<Bytes> {
    Ok(Bytes(count << 10))
}

const NONE: Reading<Bytes> = Err(Absent::NotSupported);

#[test]
fn every_spelling_is_read() {
    for (text, region, total, shared, resident) in [
        (AMDGPU, "gtt", NONE, NONE, kib(3)),
        (AMDGPU, "vram", NONE, NONE, kib(2_052)),
        (AMDGPU_6_13, "vram", kib(12_288), kib(1_024), kib(11_264)),
        (AMDGPU_6_13, "doorbell", kib(8), NONE, NONE),
        (AMDGPU_6_4, "vram", kib(12_288), kib(1_024), kib(11_264)),
        (AMDGPU_5_14, "vram", NONE, NONE, kib(2_052)),
        (I915, "local0", kib(9_216), kib(1_024), kib(8_192)),
        (I915, "local1", NONE, NONE, Ok(Bytes(16))),
        (XE, "vram0", kib(12_288), kib(1_024), kib(11_264)),
        (XE, "system", kib(0), NONE, NONE),
        (NPU, "memory", kib(8), NONE, NONE),
    ] {
        let read = client(text).regions[region];
        assert_eq!((read.total, read.shared, read.resident), (total, shared, resident), "{text}");
    }
    for text in ALL {
        let client = client(text);
        let has_number = text != AMDGPU_5_14;
        assert_eq!(client.id, if has_number { Ok(9) } else { Err(Absent::NotSupported) });
        assert_eq!(client.is_gpu(), text != NPU, "{text}");
        assert_eq!(client.bus.map(|bus| (bus.domain, bus.bus)), Ok((1, 10)));
    }
    assert_eq!(client(AMDGPU_5_14).driver.as_deref(), Ok("amdgpu"));
    assert_eq!(client(AMDGPU_6_4).regions.len(), 1);
    let ccs = client(XE).engines["ccs"];
    assert_eq!((ccs.cycles, ccs.total_cycles, ccs.capacity), (Ok(500), Ok(1_000), Ok(4)));
    let engines = client(I915).engines;
    assert_eq!(engines.keys().collect::<Vec<_>>(), ["video", "video-enhance"]);
    assert_eq!((engines["video"].nanos, engines["video"].capacity), (Ok(40), Ok(2)));
}

#[test]
fn other_descriptors_are_no_clients() {
    for text in ["", "pos:\t0\nflags:\t02\n", "pdev:\t0000:01:00.0\n", "drm-driver\n", "\u{0}"] {
        assert_eq!(Client::parse(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn malformed_numbers_are_absent() {
    let values = "|x|-1|1.5|1 GB|1 MiB x|1KiB|18446744073709551616|18446744073709551615 KiB|\
                  281474976710657";
    for value in values.split('|') {
        let client = client(&format!("drm-resident-vram:\t{value}\ndrm-engine-gfx:\t{value}\n"));
        let resident = client.regions["vram"].resident;
        assert_eq!(resident, Err(Absent::Implausible), "{value:?}");
        assert_eq!(client.engines["gfx"].nanos, Err(Absent::Implausible), "{value:?}");
    }
}

#[test]
fn a_program_cannot_forge_its_client() {
    let name = "drm-client-name:\ta: b\t\u{1b}[2J \u{202e}\n";
    let forged =
        "drm-driver:\txe\ndrm-pdev:\t0000:0b:00.0\ndrm-client-id:\t1\ndrm-memory-vram:\t0\n";
    let text = AMDGPU.replace("drm-memory-vram", &format!("{name}{forged}drm-memory-vram"));
    assert_eq!(client(&text), client(AMDGPU));
    let bytes = [b"drm-client-name:\t\xff\xfe\n", AMDGPU.as_bytes()].concat();
    assert_eq!(Client::parse(&bytes), Some(client(AMDGPU)));
    let long = "x".repeat(33);
    let many = (0..1_000).map(|n| format!("drm-total-r{n}x:\t1\ndrm-cycles-e{n}x:\t1\n"));
    let text = format!("drm-total-{long}:\t1\ndrm-driver:\t{long}\n{}", many.collect::<String>());
    let client = client(&text);
    assert_eq!((client.regions.len(), client.engines.len()), (16, 16));
    assert!(client.driver.is_err() && !client.regions.contains_key(&long));
}

#[test]
fn memory_of_a_client_depends_on_driver_and_device() {
    let absent = (NONE, NONE);
    for (text, discrete, integrated) in [
        (AMDGPU, (kib(2_052), NONE), (kib(2_055), NONE)),
        (AMDGPU_6_13, (kib(11_264), kib(10_240)), (kib(11_264), kib(10_240))),
        (I915, (Ok(Bytes((8 << 20) + 16)), NONE), (kib(6), kib(6))),
        (XE, (kib(11_264), kib(10_240)), (NONE, NONE)),
        (NPU, absent, absent),
        ("drm-memory-vram:\t3 KiB\n", absent, absent),
        ("drm-driver:\ti915\n", absent, absent),
    ] {
        for (is_integrated, want) in [(false, discrete), (true, integrated)] {
            let memory = client(text).memory(is_integrated);
            assert_eq!((memory.resident, memory.private), want, "{is_integrated} {text}");
        }
    }
    assert_eq!(region_kind("stolen-local0"), RegionKind::Other);
}

#[test]
fn usage_is_the_difference_of_two_readings() {
    let gfx = |nanos: &str| AMDGPU.replace("77 ns", nanos);
    let video = |nanos: &str| I915.replace("40 ns", nanos);
    let ccs = |cycles: &str, total: &str| XE.replace("500", cycles).replace("1000", total);
    let no_gfx = AMDGPU.replace("drm-engine-gfx:\t77 ns\n", "");
    let no_video = I915.replace("drm-engine-video:\t40 ns\ndrm-engine-capacity-video:\t2\n", "");
    let percent = |share| Ok(Percent::new(share).unwrap());
    let missing = Err(Absent::NotRecorded);
    for (earlier, later, nanos, want) in [
        (gfx("1000 ns"), gfx("1500 ns"), 2_000, percent(25)),
        (gfx("1000 ns"), gfx("9000 ns"), 2_000, percent(100)),
        (gfx("1000 ns"), gfx("900 ns"), 2_000, percent(0)),
        (gfx("1000 ns"), gfx("1500 ns"), 0, missing),
        (gfx("1000 ns"), gfx("1500 KiB"), 2_000, Err(Absent::Implausible)),
        (no_gfx, gfx("500 ns"), 2_000, percent(25)),
        (video("0 ns"), video("1000 ns"), 2_000, percent(25)),
        (no_video, video("1000 ns"), 2_000, missing),
        (ccs("500", "1000"), ccs("900", "1200"), 1, percent(50)),
        (ccs("500", "1000"), ccs("900", "1000"), 1, missing),
        (ccs("0", "0"), ccs(&u64::MAX.to_string(), &u64::MAX.to_string()), 1, percent(25)),
    ] {
        let (earlier, later) = (client(&earlier), client(&later));
        let usage = later.usage_since(&earlier, Duration::from_nanos(nanos)).unwrap();
        let engine = ["gfx", "video", "ccs"].into_iter().find_map(|name| usage.get(name));
        assert_eq!(engine, Some(&want), "{earlier:?} {later:?}");
    }
    let second = Duration::from_secs(1);
    let other = client(&AMDGPU.replace("drm-client-id:\t9", "drm-client-id:\t8"));
    assert_eq!(client(AMDGPU).usage_since(&other, second), Err(Absent::NotFound));
    let old = client(AMDGPU_5_14);
    assert_eq!(old.usage_since(&old, second), Err(Absent::NotFound));
}

#[test]
fn a_counter_that_steps_back_counts_from_the_larger_value() {
    let [first, mut second, third] =
        ["1000 ns", "900 ns", "1100 ns"].map(|nanos| client(&AMDGPU.replace("77 ns", nanos)));
    second.catch_up(&first);
    let usage = third.usage_since(&second, Duration::from_nanos(1_000)).unwrap();
    assert_eq!(usage["gfx"], Ok(Percent::new(10).unwrap()));
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::fdinfo(&bytes);
    }

    #[test]
    fn mutated_texts_are_read(
        first in prop::sample::select(&ALL), second in prop::sample::select(&ALL),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut bytes = [first, second].concat().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fuzz::fdinfo(&bytes);
    }
}
