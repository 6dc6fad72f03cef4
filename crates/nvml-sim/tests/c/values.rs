//! Checks that each function and field number returns its own value, on a machine with no two equal
//! values.

use crate::fixture::{Stage, session};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEccSramErrorStatus_t, nvmlFieldValue_t, nvmlRowRemapperHistogramValues_t,
};
use std::ptr::null_mut;

const MACHINE: &str = "description = 'made: a device with a value everywhere'
clock = 2025-03-03T10:00:00Z
topology = ['X NV4 PIX SYS', 'NV4 X NODE SYS', 'PIX NODE X PHB', 'SYS SYS PHB X']
paths = ['X PXB PIX SYS', 'PXB X NODE SYS', 'PIX NODE X PHB', 'SYS SYS PHB X']
peers = ['X OK CNS GNS', 'OK X TNS DR', 'CNS TNS X NS', 'GNS DR NS X']
[[gpu]]
index = 0
memory_total_mib = 100
power_limit_mw = 190000
details.modes = { ecc = true, ecc_pending = false }
details.memory_health = { corrected = 103, uncorrected = 104, corrected_lifetime = 105, \
    uncorrected_lifetime = 106, retired_single_bit = 2, retired_double_bit = 3, \
    retired_pending = true, remapped_corrected = 142, remapped_uncorrected = 143, \
    remapped_pending = false, remapped_failure = true, banks_max = 200, banks_high = 201, \
    banks_partial = 202, banks_low = 203, banks_none = 204, sram_threshold_exceeded = true }
details.memory_errors.corrected = { l1_cache = 10, l2_cache = 11, device_memory = 12, \
    register_file = 13, texture_memory = 14, cbu = 16, sram = 17 }
details.memory_errors.uncorrected = { l1_cache = 20, sram = 27 }
details.memory_errors.corrected_lifetime = { l1_cache = 30, sram = 37 }
details.memory_errors.uncorrected_lifetime = { l1_cache = 40, sram = 47 }
details.thermal = { memory_c = 82 }
details.power = { energy_mj = 83, limit_min_mw = 187000, limit_max_mw = 300000, \
    default_limit_mw = 189000, limit_mw = 192000 }
details.power_readings = { instant_mw = 186000, average_mw = 185000 }
details.pcie = { replays = 94 }
details.reset_status = { required = false, drain_recommended = true, recovery = 'drain-and-reset' }
details.clocks = { graphics_mhz = 1000, sm_mhz = 1001, memory_mhz = 1002, video_mhz = 1003, \
    graphics_max_mhz = 2000, sm_max_mhz = 2001, memory_max_mhz = 2002, video_max_mhz = 2003 }
details.application_clocks = { graphics_mhz = 1100, memory_mhz = 1102, \
    default_graphics_mhz = 1200, default_memory_mhz = 1202 }
[[gpu.details.nvlinks]]
active = true
version = 3
replays = 1
recoveries = 10
crc_errors = 100
[[gpu.details.nvlinks]]
active = false
version = 4
replays = 2
recoveries = 20
crc_errors = 200
[[gpu]]
index = 1
memory_total_mib = 100
[[gpu]]
index = 2
memory_total_mib = 100
[[gpu]]
index = 3
memory_total_mib = 100
";

const INVALID: u32 = 2;
const UNSUPPORTED: u32 = 3;

fn stage() -> (Stage, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("machine.toml"), MACHINE).unwrap();
    (Stage::begun(session(dir.path().to_str().unwrap())), dir)
}

/// Returns the value that a call writes, or its code.
fn value<T: Copy + Default>(call: impl FnOnce(*mut T) -> u32) -> Result<T, u32> {
    let mut value = T::default();
    match call(&mut value) {
        0 => Ok(value),
        code => Err(code),
    }
}

fn field(stage: &Stage, device: nvmlDevice_t, number: u32, scope: u32) -> Result<u64, u32> {
    // SAFETY: the struct consists of numbers.
    let mut asked: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
    (asked.fieldId, asked.scopeId) = (number, scope);
    // SAFETY: the array has one element.
    assert_eq!(unsafe { stage.nvml.nvmlDeviceGetFieldValues(device, 1, &mut asked) }, 0);
    assert!(asked.timestamp > 0 && asked.fieldId == number);
    match asked.nvmlReturn {
        // SAFETY: a number fills the whole union.
        0 => Ok(unsafe { asked.value.ullVal }),
        code => Err(code),
    }
}

#[test]
fn every_field_number_has_its_own_value() {
    let (stage, _dir) = stage();
    let (gpu, bare) = (stage.device(0), stage.device(2));
    for (number, expected) in [
        (0, Err(INVALID)),
        (1, Ok(1)),
        (2, Ok(0)),
        (3, Ok(103)),
        (4, Ok(104)),
        (5, Ok(105)),
        (6, Ok(106)),
        (7, Err(UNSUPPORTED)),
        (29, Ok(2)),
        (30, Ok(3)),
        (31, Ok(1)),
        (38, Ok(300)),
        (52, Ok(3)),
        (59, Ok(30)),
        (82, Ok(82)),
        (83, Ok(83)),
        (91, Ok(2)),
        (94, Ok(94)),
        (142, Ok(142)),
        (143, Ok(143)),
        (144, Ok(0)),
        (145, Ok(1)),
        (185, Ok(185_000)),
        (186, Ok(186_000)),
        (187, Ok(187_000)),
        (188, Ok(300_000)),
        (189, Ok(189_000)),
        (190, Ok(190_000)),
        (192, Ok(192_000)),
        (226, Ok(0)),
        (227, Ok(1)),
        (230, Ok(4)),
        (273, Err(UNSUPPORTED)),
        (274, Err(UNSUPPORTED)),
        (275, Err(INVALID)),
    ] {
        assert_eq!(field(&stage, gpu, number, 0), expected, "{number}");
    }
    for (number, values) in
        [(161, [1, 2]), (162, [10, 20]), (163, [100, 200]), (165, [1, 0]), (166, [3, 4])]
    {
        let links = [0, 1].map(|link| field(&stage, gpu, number, link));
        assert_eq!(links, values.map(Ok), "{number}");
        assert_eq!(field(&stage, gpu, number, 2), Err(INVALID), "{number} of no link");
        assert_eq!(field(&stage, bare, number, 0), Err(UNSUPPORTED), "{number} without links");
    }
    for number in [38, 52, 59, 91] {
        assert_eq!(field(&stage, bare, number, 0), Err(UNSUPPORTED), "{number} without links");
    }
}

#[test]
fn every_error_counter_has_its_own_value() {
    let (stage, _dir) = stage();
    let (nvml, gpu) = (stage.nvml, stage.device(0));
    let total = |kind, since| {
        // SAFETY: the value outlives the call.
        value(|count| unsafe { nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, since, count) })
    };
    let totals = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(kind, since)| total(kind, since));
    assert_eq!(totals, [103, 104, 105, 106].map(Ok));
    assert_eq!([total(2, 0), total(0, 2)], [Err(INVALID); 2]);

    let at = |kind, since, location| {
        // SAFETY: as above.
        value(|count| unsafe {
            nvml.nvmlDeviceGetMemoryErrorCounter(gpu, kind, since, location, count)
        })
    };
    let corrected = [0, 1, 2, 3, 4, 6, 7].map(|location| at(0, 0, location));
    assert_eq!(corrected, [10, 11, 12, 13, 14, 16, 17].map(Ok));
    assert_eq!([at(0, 0, 5), at(0, 0, 8)], [Err(UNSUPPORTED), Err(INVALID)]);
    for ((kind, since), counts) in [((1, 0), [20, 27]), ((0, 1), [30, 37]), ((1, 1), [40, 47])] {
        assert_eq!([0, 7].map(|location| at(kind, since, location)), counts.map(Ok));
        assert_eq!(at(kind, since, 1), Err(UNSUPPORTED), "it is not reported");
    }
    assert_eq!([at(2, 0, 0), at(0, 2, 0)], [Err(INVALID); 2]);
}

#[test]
fn retired_pages_are_counted_by_cause() {
    let (stage, _dir) = stage();
    let (nvml, gpu) = (stage.nvml, stage.device(0));
    let pages = |cause, room: u32| {
        let (mut count, mut addresses) = (room, [0_u64; 4]);
        let buffer = if room == 0 { null_mut() } else { addresses.as_mut_ptr() };
        // SAFETY: the buffer has room for `count` items.
        let code = unsafe { nvml.nvmlDeviceGetRetiredPages(gpu, cause, &mut count, buffer) };
        (code, count, addresses)
    };
    assert_eq!(pages(0, 0), (7, 2, [0; 4]));
    let (code, count, single) = pages(0, 4);
    assert_eq!((code, count, single[2]), (0, 2, 0));
    let (code, count, double) = pages(1, 4);
    assert_eq!((code, count, double[3]), (0, 3, 0));
    let mut all = [&single[..2], &double[..3]].concat();
    assert!(all.iter().all(|address| address % 0x1_0000 == 0), "{all:x?}");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 5, "no two are the same page");
    assert_eq!(pages(2, 4).0, INVALID);
    // SAFETY: the values outlive the calls.
    let pending =
        value(|pending| unsafe { nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu, pending) });
    assert_eq!(pending, Ok(1));
    let mut rows = [9; 4];
    let [corrected, uncorrected, pending, failure] = &mut rows;
    // SAFETY: as above.
    let code =
        unsafe { nvml.nvmlDeviceGetRemappedRows(gpu, corrected, uncorrected, pending, failure) };
    assert_eq!((code, rows), (0, [142, 143, 0, 1]));
    // SAFETY: as above; each struct of integers may be zero.
    let (code, banks) = unsafe {
        let mut banks: nvmlRowRemapperHistogramValues_t = std::mem::zeroed();
        (nvml.nvmlDeviceGetRowRemapperHistogram(gpu, &mut banks), banks)
    };
    let banks = [banks.max, banks.high, banks.partial, banks.low, banks.none];
    assert_eq!((code, banks), (0, [200, 201, 202, 203, 204]));
    let sram = |version: u32| {
        // SAFETY: as above.
        unsafe {
            let mut status: nvmlEccSramErrorStatus_t = std::mem::zeroed();
            status.version = version;
            (nvml.nvmlDeviceGetSramEccErrorStatus(gpu, &mut status), status)
        }
    };
    let (code, status) = sram(size_of::<nvmlEccSramErrorStatus_t>() as u32 | 1 << 24);
    let counts = [
        status.volatileCor,
        status.volatileUncSecDed,
        status.aggregateCor,
        status.aggregateUncSecDed,
    ];
    assert_eq!((code, counts, status.bThresholdExceeded), (0, [17, 27, 37, 47], 1));
    assert_ne!(sram(0).0, 0, "no version");
}

#[test]
fn every_clock_has_its_own_value() {
    let (stage, _dir) = stage();
    let (nvml, gpu) = (stage.nvml, stage.device(0));
    let kinds = [0, 1, 2, 3, 4];
    let now = kinds.map(|kind| {
        // SAFETY: the value outlives the call.
        value(|mhz| unsafe { nvml.nvmlDeviceGetClockInfo(gpu, kind, mhz) })
    });
    assert_eq!(now, [Ok(1000), Ok(1001), Ok(1002), Ok(1003), Err(INVALID)]);
    let highest =
        // SAFETY: as above.
        kinds.map(|kind| value(|mhz| unsafe { nvml.nvmlDeviceGetMaxClockInfo(gpu, kind, mhz) }));
    assert_eq!(highest, [Ok(2000), Ok(2001), Ok(2002), Ok(2003), Err(INVALID)]);
    let none = Err(UNSUPPORTED);
    let chosen = [Ok(1100), none, Ok(1102), none, Err(INVALID)];
    let default = [Ok(1200), none, Ok(1202), none, Err(INVALID)];
    let applications =
        // SAFETY: as above.
        kinds.map(|kind| value(|mhz| unsafe { nvml.nvmlDeviceGetApplicationsClock(gpu, kind, mhz) }));
    assert_eq!(applications, chosen);
    let of_default = kinds.map(|kind| {
        // SAFETY: as above.
        value(|mhz| unsafe { nvml.nvmlDeviceGetDefaultApplicationsClock(gpu, kind, mhz) })
    });
    assert_eq!(of_default, default);
    let which = [(0, now), (1, chosen), (2, default), (3, [none; 5]), (4, [Err(INVALID); 5])];
    for (which, expected) in which {
        let clocks = kinds
            // SAFETY: as above.
            .map(|kind| value(|mhz| unsafe { nvml.nvmlDeviceGetClock(gpu, kind, which, mhz) }));
        assert_eq!(clocks, expected, "{which}");
    }
}

#[test]
fn every_pair_of_devices_has_its_own_cell() {
    let (stage, _dir) = stage();
    let nvml = stage.nvml;
    let devices = [0, 1, 2, 3].map(|index| stage.device(index));
    let level = |from: usize, to: usize| {
        // SAFETY: the value outlives the call.
        value(|level| unsafe {
            nvml.nvmlDeviceGetTopologyCommonAncestor(devices[from], devices[to], level)
        })
    };
    let expected = [[0, 20, 10, 50], [20, 0, 40, 50], [10, 40, 0, 30], [50, 50, 30, 0]];
    let indices = [0, 1, 2, 3];
    assert_eq!(
        indices.map(|from| indices.map(|to| level(from, to))),
        expected.map(|row| row.map(Ok))
    );
    let peer = |from: usize, to: usize, which| {
        // SAFETY: as above.
        value(|state| unsafe {
            nvml.nvmlDeviceGetP2PStatus(devices[from], devices[to], which, state)
        })
    };
    for read_or_write in [0, 1] {
        let states = indices.map(|from| indices.map(|to| peer(from, to, read_or_write)));
        let expected = [[0, 0, 1, 2], [0, 0, 3, 4], [1, 3, 0, 5], [2, 4, 5, 0]];
        assert_eq!(states, expected.map(|row| row.map(Ok)));
    }
    assert_eq!([peer(0, 1, 2), peer(0, 2, 2)], [Ok(0), Ok(5)], "by NVLink");
    assert_eq!([peer(0, 1, 4), peer(0, 1, 5)], [Err(UNSUPPORTED), Err(INVALID)]);
    let same = |from: usize, to: usize| {
        // SAFETY: as above.
        value(|same| unsafe { nvml.nvmlDeviceOnSameBoard(devices[from], devices[to], same) })
    };
    assert_eq!([same(0, 0), same(0, 2)], [Ok(1), Ok(0)]);
    let near = |from: usize, level| {
        let (mut count, mut found) = (4, [null_mut(); 4]);
        // SAFETY: the buffer has room for four.
        let code = unsafe {
            nvml.nvmlDeviceGetTopologyNearestGpus(
                devices[from],
                level,
                &mut count,
                found.as_mut_ptr(),
            )
        };
        assert_eq!(code, 0);
        found[..count as usize].to_vec()
    };
    assert_eq!(near(0, 10), [devices[2]]);
    assert_eq!(near(3, 50), [devices[0], devices[1]]);
    assert_eq!(near(2, 20), []);
}
