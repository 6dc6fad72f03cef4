//! The tables of amdgpu, made from the offsets of the kernel's structures.

use crate::fuzz;
use gpu_core::Absent;
use gpu_drm::Metrics;
use proptest::prelude::*;

/// Returns a table with fields written as `offset/bytes=value`; all others are absent.
fn table(format: u8, content: u8, size: usize, fields: &str) -> Vec<u8> {
    let mut table = vec![0xff; size];
    let header = format!("0/2={size} 2/1={format} 3/1={content} ");
    for field in (header + fields).split_whitespace() {
        let numbers: Vec<u64> = field.split(['/', '=']).map(|part| part.parse().unwrap()).collect();
        let (offset, bytes) = (numbers[0] as usize, numbers[1] as usize);
        table[offset..offset + bytes].copy_from_slice(&numbers[2].to_le_bytes()[..bytes]);
    }
    table
}

/// Returns the known values of a table as text.
pub(crate) fn shown(metrics: &Metrics) -> String {
    let degrees = [metrics.edge, metrics.hotspot, metrics.memory, metrics.graphics, metrics.soc];
    let busy = [metrics.graphics_busy, metrics.memory_busy, metrics.video_busy];
    let counts = [metrics.graphics_clock, metrics.link_width, metrics.link_speed, metrics.fan];
    let power = metrics.power.map(|power| power.0);
    let chip = metrics.chip_throttle.map(u64::from);
    let known = degrees.map(|value| value.map(|value| value.0 as u64)).into_iter();
    let known = known.chain(busy.map(|value| value.map(|value| value.get().into())));
    let known = known.chain(counts.map(|value| value.map(u64::from)));
    let known = known.chain([power, metrics.energy, metrics.stamp, metrics.throttle, chip]);
    let names = "edge hot mem gfx soc busy umc mm MHz lanes GT rpm mW uJ ns why chip".split(' ');
    let partitions =
        metrics.partitions.iter().map(|busy| ("xcp", busy.map(|busy| busy.get().into())));
    let known = names.zip(known).chain(partitions);
    let known = known.filter_map(|(name, value)| Some(format!("{name} {}", value.ok()?)));
    known.collect::<Vec<_>>().join(" ")
}

fn read(file: &[u8]) -> Result<String, Absent> {
    Metrics::parse(file).map(|metrics| shown(&metrics))
}

/// Version and size, fields, and what they mean: from the offsets of the structures in C.
const TABLES: &str = "\
1 0 80|16/2=36 18/2=49 20/2=41 28/2=64 30/2=6 32/2=3 34/2=33 36/4=9 8/8=777 54/2=2165 68/4=5 72/2=900 74/1=8 75/1=160
|edge 36 hot 49 mem 41 busy 64 umc 6 mm 3 MHz 2165 lanes 8 GT 160 rpm 900 mW 33000 ns 777 chip 5
1 1 96|4/2=36 6/2=49 8/2=41 16/2=64 18/2=6 20/2=3 22/2=33 24/8=9 32/8=777 54/2=2165 68/4=5 72/2=900 74/2=8 76/2=160
|edge 36 hot 49 mem 41 busy 64 umc 6 mm 3 MHz 2165 lanes 8 GT 160 rpm 900 mW 33000 ns 777 chip 5
1 2 104|4/2=36 6/2=49 8/2=41 16/2=64 18/2=6 20/2=3 22/2=33 32/8=777 54/2=2165 68/4=5 72/2=900 74/2=8 76/2=160
|edge 36 hot 49 mem 41 busy 64 umc 6 mm 3 MHz 2165 lanes 8 GT 160 rpm 900 mW 33000 ns 777 chip 5
1 3 120|4/2=36 6/2=49 8/2=0 16/2=64 18/2=6 20/2=3 22/2=33 32/8=777 54/2=2165 68/4=5 72/2=0 74/2=8 76/2=160 112/8=68719476736
|edge 36 hot 49 busy 64 umc 6 mm 3 MHz 2165 lanes 8 GT 160 rpm 0 mW 33000 ns 777 why 68719476736 chip 5
1 4 288|4/2=49 6/2=41 10/2=700 12/2=64 14/2=6 24/8=131072 32/8=777 40/4=5 48/2=16 50/2=320 240/2=132 254/2=2100
|hot 49 mem 41 busy 64 umc 6 MHz 2100 lanes 16 GT 320 mW 700000 uJ 2000000 ns 777 chip 5
1 5 360|4/2=49 6/2=41 10/2=700 12/2=64 14/2=6 88/8=1 96/8=777 104/4=5 112/2=16 114/2=320 312/2=132
|hot 49 mem 41 busy 64 umc 6 MHz 132 lanes 16 GT 320 mW 700000 uJ 15 ns 777 chip 5
1 6 384|4/2=49 6/2=41 10/2=700 12/2=64 14/2=6 88/8=1 96/8=777 136/2=16 138/2=320 336/2=132
|hot 49 mem 41 busy 64 umc 6 MHz 132 lanes 16 GT 320 mW 700000 uJ 15 ns 777
1 6 1664|10/2=700 16/8=1 24/8=777 60/2=16 62/2=320 264/2=132 306/2=2 312/4=10 316/4=21 480/4=90
|MHz 132 lanes 16 GT 320 mW 700000 uJ 15 ns 777 xcp 15 xcp 90
1 7 2208|10/2=700 24/8=1 32/8=777 68/2=16 70/2=320 296/2=132 338/2=2 344/4=10 348/4=21 576/4=90
|MHz 132 lanes 16 GT 320 mW 700000 uJ 15 ns 777 xcp 15 xcp 90
1 8 3872|10/2=700 24/8=1 32/8=777 68/2=16 70/2=320 296/2=132 338/2=9 344/4=10 784/4=90
|MHz 132 lanes 16 GT 320 mW 700000 uJ 15 ns 777 xcp 10 xcp 90
2 0 120|16/2=4599 18/2=3800 40/2=9 44/2=27 8/8=777 80/2=600
|gfx 45 soc 38 MHz 600 mW 27000 ns 777
2 1 120|4/2=4599 6/2=3800 28/2=79 40/2=27 46/2=585 32/8=777 76/2=600 108/4=5
|gfx 45 soc 38 MHz 600 mW 27000 ns 777 chip 5
2 2 128|4/2=4599 6/2=3800 28/2=79 40/2=3401 32/8=777 76/2=600 120/8=6
|gfx 45 soc 38 MHz 600 mW 3401 ns 777 why 6
2 3 152|4/2=4599 6/2=3800 28/2=79 40/2=3401 32/8=777 76/2=600 120/8=6
|gfx 45 soc 38 MHz 600 mW 3401 ns 777 why 6
2 4 168|4/2=4599 6/2=3800 28/2=79 30/2=9999 40/2=27 120/8=6
|gfx 45 soc 38 busy 0 mm 99 mW 27 why 6
3 0 264|4/2=4599 6/2=3800 42/2=79 104/8=777 112/4=70123 174/2=9
|gfx 45 soc 38 mW 70123 ns 777
1 0 488|4/2=132 18/2=1900 48/4=10 76/4=21
|MHz 1900 xcp 15";

#[test]
fn every_version_is_read_by_its_offsets() {
    let lines: Vec<&str> = TABLES.lines().collect();
    for pair in lines.chunks_exact(2) {
        let (version, fields) = pair[0].split_once('|').unwrap();
        let numbers: Vec<usize> = version.split(' ').map(|part| part.parse().unwrap()).collect();
        let (format, content, size) = (numbers[0] as u8, numbers[1] as u8, numbers[2]);
        let mut file = table(format, content, size, fields);
        assert_eq!(read(&file).as_deref(), Ok(&pair[1][1..]), "{version}");
        assert_eq!(read(&table(format, content, size, "")).as_deref(), Ok(""), "{version}");
        file.resize(4_096, 0);
        assert_eq!(read(&file).as_deref(), Ok(&pair[1][1..]), "{version}");
        assert_eq!(read(&file[..size - 1]), Err(Absent::Implausible), "{version}");
        assert!(read(&table(format, content, size + 4, "")).is_err(), "{version}");
    }
    assert_eq!(lines.len(), 34);
}

#[test]
fn unknown_tables_are_refused() {
    for (file, want) in [
        (vec![], Absent::Implausible),
        (vec![4, 0, 1], Absent::Implausible),
        (vec![0; 151], Absent::Implausible),
        (table(1, 3, 96, ""), Absent::NotSupported),
        (table(1, 10, 120, ""), Absent::NotSupported),
        (table(4, 0, 264, ""), Absent::NotSupported),
        (table(1, 9, 4, ""), Absent::Implausible),
    ] {
        assert_eq!(read(&file), Err(want), "{file:?}");
    }
}

#[test]
fn impossible_values_are_absent() {
    let file = table(1, 3, 120, "4/2=200 16/2=101 22/2=50 54/2=60000");
    assert_eq!(read(&file).as_deref(), Ok("mW 50000"));
    assert_eq!(Metrics::parse(&file).unwrap().edge, Err(Absent::Implausible));
}

#[test]
fn the_power_of_an_apu_is_in_watts_or_milliwatts() {
    for (raw, want) in [(255, "mW 255000"), (256, ""), (999, ""), (1_000, "mW 1000"), (0, "")] {
        let file = table(2, 1, 120, &format!("40/2={raw}"));
        assert_eq!(read(&file).as_deref(), Ok(want), "{raw}");
    }
}

/// Returns a table of attributes, written as `unit,type,number=values`, with encodings of this many
/// bytes.
fn attributes(content: u8, encoding: usize, attributes: &str) -> Vec<u8> {
    let attributes: Vec<&str> = attributes.split_whitespace().collect();
    let mut packed = (attributes.len() as u32).to_le_bytes().to_vec();
    for attribute in attributes {
        let mut numbers = attribute.split([',', '=']).filter_map(|part| part.parse::<u64>().ok());
        let [unit, kind, id] = [(); 3].map(|()| numbers.next().unwrap());
        let values: Vec<u64> = numbers.collect();
        let code = (unit << 24) | (kind << 20) | (id << 10) | values.len() as u64;
        packed.extend(&code.to_le_bytes()[..encoding]);
        packed.extend(
            values.iter().flat_map(|value| value.to_le_bytes().into_iter().take(1 << (kind / 2))),
        );
    }
    let mut file = table(1, content, 4 + packed.len(), "");
    file[4..].copy_from_slice(&packed);
    file
}

const VERSION_9: &str = "2,2,0=49 2,3,1=41 3,4,3=700 10,2,4=64 10,0,5=255 8,6,6=5300 0,6,7=131072 4,6,8=777 \
    0,2,16=16 7,2,17=320 1,2,33=132,2100,65535 9,6,29=1,1,1,1 10,0,40=10,21,255 3,2,0=9";

#[test]
fn attributes_are_read_by_their_encoding() {
    let want = "hot 49 mem 41 busy 64 MHz 2100 lanes 16 GT 320 mW 700000 uJ 2000000 ns 777 xcp 15";
    for encoding in [8, 4] {
        let mut file = attributes(9, encoding, VERSION_9);
        assert_eq!(read(&file).as_deref(), Ok(want));
        let exact = file.len();
        file.extend([0; 24]);
        for size in (4..exact).chain(exact + 1..file.len()) {
            file[..2].copy_from_slice(&(size as u16).to_le_bytes());
            assert_eq!(read(&file), Err(Absent::Implausible), "{size}");
        }
    }
    assert_eq!(read(&attributes(1, 8, "10,0,40=7 2,2,0=")).as_deref(), Ok("xcp 7"));
}

fn valid() -> impl Strategy<Value = Vec<u8>> {
    let tables = [(1, 0, 80), (1, 3, 120), (1, 6, 1_664), (1, 8, 3_872), (2, 4, 168), (3, 0, 264)];
    let tables = tables.map(|(format, content, size)| table(format, content, size, ""));
    prop::sample::select(
        [&tables[..], &[8, 4].map(|bytes| attributes(9, bytes, VERSION_9))].concat(),
    )
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::metrics(&bytes);
    }

    #[test]
    fn mutated_tables_are_read(
        mut bytes in valid(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..24),
    ) {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fuzz::metrics(&bytes);
    }
}
