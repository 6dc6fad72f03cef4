//! Made machines: what the real ones do not show, and files that no driver writes.

use crate::machines::{Noting, check_files};
use gpu_core::{Absent, Reading};
use gpu_drm::{
    Card, CardDriver, DPM_CLOCKS, Level, Link, PciIds, Sensors, Values, cards, current_clock, gts,
    levels, listed_names, partition_nodes, product_names, sensors, values,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const PCI: &str = "sys/devices/pci0000:00/0000:03:00.0";
const UEVENT: &str = "DRIVER=amdgpu\nPCI_ID=1002:7777\nPCI_SLOT_NAME=0000:03:00.0\n";

fn write(root: &TempDir, path: &str, content: &str) {
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Writes files of a card: `PATH CONTENT; PATH CONTENT`, where `⏎` ends a line.
fn write_all(root: &TempDir, dir: &str, files: &str) {
    for (path, content) in files.split("; ").filter_map(|file| file.split_once(' ')) {
        write(root, &format!("{PCI}/{dir}{path}"), &content.replace('⏎', "\n"));
    }
}

/// Makes a node whose device has this file `uevent`.
fn node(root: &TempDir, name: &str, device: &str, uevent: &str) {
    write(root, &format!("{device}/uevent"), uevent);
    let node = root.path().join("sys/class/drm").join(name);
    fs::create_dir_all(&node).unwrap();
    symlink(format!("../../../../{device}"), node.join("device")).unwrap();
}

/// Makes a machine with one card, `card1`.
fn one(driver: &str, files: &str) -> (TempDir, Noting, Card) {
    let root = tempfile::tempdir().unwrap();
    node(&root, "card1", PCI, &UEVENT.replace("amdgpu", driver));
    write_all(&root, "", files);
    let tree = Noting::new(root.path());
    let card = cards(&tree).unwrap().remove(0);
    tree.take();
    (root, tree, card)
}

#[test]
fn cards_are_paired_and_ordered_by_pci_address() {
    let root = tempfile::tempdir().unwrap();
    let add = |name: &str, bus: &str, driver: &str| {
        let uevent = UEVENT.replace("03:00.0", bus).replace("amdgpu", driver);
        node(&root, name, &format!("sys/devices/pci0000:00/0000:{bus}"), &uevent);
    };
    for (name, bus, driver) in [
        ("card5", "03:00.0", "amdgpu"),
        ("renderD129", "03:00.0", "amdgpu"),
        ("card0", "83:00.0", "xe"),
        ("renderD130", "83:00.0", "xe"),
        // A compute device has no card.
        ("renderD140", "01:00.0", "radeon"),
        ("card1", "04:00.0", "nvidia"),
        ("card2", "06:00.0", "nouveau"),
        // A connector.
        ("card5-DP-1", "05:00.0", "amdgpu"),
        ("card05", "05:00.0", "amdgpu"),
        ("card+5", "05:00.0", "amdgpu"),
        ("version", "05:00.0", "amdgpu"),
        ("renderD99999999999", "05:00.0", "amdgpu"),
    ] {
        add(name, bus, driver);
    }
    for (name, device) in [("renderD131", "xcp_0"), ("renderD132", "xcp.1"), ("card7", "xcp.1")] {
        let device = format!("sys/devices/platform/amdgpu_{device}");
        node(&root, name, &device, "DRIVER=amdgpu\nMODALIAS=platform:amdgpu_xcp\n");
    }
    node(&root, "renderD133", "sys/devices/platform/vgem", "MODALIAS=platform:vgem\n");
    // Without these lines, the links say the same.
    write(&root, &format!("{PCI}/uevent"), "PCI_ID=1002:zzzz\n");
    symlink("../../../bus/pci/drivers/amdgpu", root.path().join(PCI).join("driver")).unwrap();

    let tree = Noting::new(root.path());
    let found = cards(&tree).unwrap();
    let nodes: Vec<_> = found.iter().map(|card| (card.card, card.render, card.driver)).collect();
    assert_eq!(
        nodes,
        [
            (None, Some(140), CardDriver::Radeon),
            (Some(5), Some(129), CardDriver::Amdgpu),
            (Some(0), Some(130), CardDriver::Xe),
        ]
    );
    assert_eq!(found[0].dir, "sys/class/drm/renderD140/device");
    assert_eq!(found[1].ids.device, Err(Absent::Implausible));
    assert_eq!(partition_nodes(&tree), Ok(vec![131, 132]));
    let empty = Noting::new(tempfile::tempdir().unwrap().path());
    assert_eq!(cards(&empty), Err(Absent::NotSupported));
}

/// A value in each file, and files that must not be read.
const FILES: &str = "power/runtime_status active; mem_info_vram_total 1000; mem_info_vram_used 10; \
    gpu_busy_percent 7; unique_id 00ff00ff00ff00ff; current_link_speed 16.0 GT/s PCIe; \
    current_link_width 8; pcie_replay_count 1; numa_node 1; pp_dpm_sclk 0: 500Mhz *; \
    pp_dpm_pcie 0: 16.0GT/s, x16 619Mhz *; hwmon/hwmon3/name amdgpu; \
    hwmon/hwmon3/temp1_input 41000; hwmon/hwmon3/temp1_label edge; \
    hwmon/hwmon3/power1_average 9000000; pcie_bw 1 2 256; xgmi_error 0; debug/gpu_recover 0";

/// Reads everything of a card; last the reasons why there are no clocks.
fn read_all(tree: &Noting, card: &Card) -> (Values, Reading<Sensors>, Vec<Absent>) {
    let dpm = DPM_CLOCKS.iter().filter_map(|clock| levels(tree, card, clock).err());
    let other =
        [gts(tree, card).err(), current_clock(tree, card, &Sensors::default(), "sclk").err()];
    let absent = dpm.chain(other.into_iter().flatten()).collect();
    (values(tree, card), sensors(tree, card), absent)
}

#[test]
fn sleeping_card_is_not_woken() {
    for status in ["suspended\n", "suspending\n"] {
        let (root, tree, card) = one("amdgpu", FILES);
        let (awake, sensors, _) = read_all(&tree, &card);
        assert!(awake.busy.is_ok() && awake.link.is_ok() && sensors.is_ok());
        check_files(&tree.take());

        write(&root, &format!("{PCI}/power/runtime_status"), status);
        let (asleep, sensors, absent) = read_all(&tree, &card);
        assert_eq!((sensors, absent), (Err(Absent::Asleep), vec![Absent::Asleep; 9]));
        assert_eq!((asleep.busy, asleep.link), (Err(Absent::Asleep), Err(Absent::Asleep)));
        assert_eq!((asleep.vram, asleep.unique_id), (awake.vram, awake.unique_id));
        let harmless =
            ["power", "mem_info_", "unique_id", "serial_number", "vbios_version", "numa_node"];
        for file in tree.take() {
            let name = file.strip_prefix(&card.dir).unwrap().trim_start_matches('/');
            assert!(harmless.iter().any(|start| name.starts_with(start)), "{file}");
            assert!(!name.starts_with("power_dpm"), "{file}");
        }
    }
}

/// Files with content that no driver writes, and pipes and directories in place of files.
#[test]
fn hostile_files_are_absent_values() {
    let (huge, many) = ("9".repeat(1 << 20), "0: 1Mhz *\n".repeat(1 << 17));
    let contents = ["", "\n", "\0", "-", "nan", "0x", "1e9", "-99999999999999999999", &huge, &many];
    for content in contents.into_iter().chain(["pipe", "directory"]) {
        let (root, tree, card) = one("amdgpu", FILES);
        let files = FILES.split("; ").filter_map(|file| Some(file.split_once(' ')?.0));
        let files =
            files.filter(|file| !file.ends_with("name")).map(|file| format!("{PCI}/{file}"));
        let lists = ["usr/share/libdrm/amdgpu.ids", "usr/share/misc/pci.ids"].map(str::to_owned);
        for file in files.chain(lists) {
            write(&root, &file, content);
            let path = root.path().join(file);
            if ["pipe", "directory"].contains(&content) {
                fs::remove_file(&path).unwrap();
                match content {
                    "pipe" => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
                    _ => fs::create_dir(&path).unwrap(),
                }
            }
        }
        let (values, sensors, absent) = read_all(&tree, &card);
        let errors = [values.vram.total.err(), values.busy.err(), values.unique_id.err()];
        assert!(errors.iter().all(Option::is_some) && values.link.is_err(), "{content:.9}");
        let sensors = sensors.unwrap();
        assert!(
            sensors.gpu_temperature().is_err() && sensors.power_draw().is_err(),
            "{content:.9}"
        );
        assert_eq!(absent.len(), 9, "{content:.9}");
        assert_eq!(product_names(&tree, &tree, &[card]), [Err(Absent::NotFound)], "{content:.9}");
    }
}

#[test]
fn link_without_speed_or_lanes_is_none() {
    let (slow, none) = (Link { megatransfers: 2_500, lanes: 4 }, Err(Absent::NotSupported));
    for (driver, speed, lanes, want) in [
        ("amdgpu", "2.5 GT/s PCIe", "4", Ok(slow)),
        ("radeon", "Unknown", "0", none),
        ("amdgpu", "2.5 GT/s PCIe", "0", none),
        ("amdgpu", "-2.5 GT/s PCIe", "4", Err(Absent::Implausible)),
        ("xe", "2.5 GT/s PCIe", "4", none),
    ] {
        let files = format!("max_link_speed {speed}; max_link_width {lanes}");
        let (_root, tree, card) = one(driver, &files);
        assert_eq!(values(&tree, &card).max_link, want, "{driver} {files}");
    }
}

/// The clock is that of the sensor, else that of the levels in use.
#[test]
fn levels_are_read_as_printed() {
    let show = |level: &Level| {
        let number = level.number.map_or("S".to_owned(), |number| number.to_string());
        let link = level.link.map(|link| format!(" {}x{}", link.megatransfers, link.lanes));
        let mhz = level.mhz.map(|mhz| format!(" {mhz}"));
        let star = if level.is_current { "*" } else { "" };
        number + &link.unwrap_or_default() + &mhz.unwrap_or_default() + star
    };
    let (unknown, implausible) = (Err(Absent::NotSupported), Err(Absent::Implausible));
    for (text, want, clock) in [
        ("S: 19Mhz *⏎1: 600Mhz⏎2: 2400Mhz ⏎", "S 19*, 1 600, 2 2400", Ok(19)),
        ("2: 0Mhz *⏎3: 900Mhz*⏎", "2 0*, 3 900*", implausible),
        ("0: 700Mhz *⏎1: 700Mhz *⏎", "0 700*, 1 700*", Ok(700)),
        ("0: 2.5GT/s, x1 ⏎1: 16.0GT/s, x16 600Mhz *⏎", "0 2500x1, 1 16000x16 600*", Ok(600)),
        ("what⏎: 5Mhz⏎0: 5Mhz 9⏎0: GT/s, x⏎-1: 5Mhz⏎4: 7Mhz⏎", "4 7", unknown),
        ("0: 4294967295Mhz *⏎0: nanGT/s, x1⏎0: 1e99GT/s, x1", "implausible", implausible),
        ("⏎", "not supported", unknown),
    ] {
        let (root, tree, card) = one("amdgpu", &format!("pp_dpm_sclk {text}"));
        let found = levels(&tree, &card, "sclk");
        let shown = found.map(|all| all.iter().map(show).collect::<Vec<_>>().join(", "));
        assert_eq!(shown.unwrap_or_else(|absent| absent.to_string()), want, "{text}");
        assert_eq!(current_clock(&tree, &card, &Sensors::default(), "sclk"), clock, "{text}");
        write_all(&root, "hwmon/hwmon0/", "name amdgpu; freq1_label sclk; freq1_input 0");
        let sensors = sensors(&tree, &card).unwrap();
        assert_eq!(current_clock(&tree, &card, &sensors, "sclk"), Ok(0), "{text}");
    }
}

#[test]
fn sensors_are_chosen_by_label_and_0_is_none_where_the_driver_means_it() {
    for (driver, files, want) in [
        ("amdgpu", "temp2_input 50500; temp2_label junction", "gpu 51"),
        ("amdgpu", "temp1_input 511000; temp1_label edge", "gpu implausible"),
        ("amdgpu", "temp3_input 0; temp3_label mem; temp3_crit_hyst -273150", ""),
        ("radeon", "temp1_input -1500; temp1_crit_hyst 90000", "gpu -1, hysteresis 90"),
        ("xe", "temp3_input 60000; temp3_label vram; temp4_input 1; temp4_label pcie", "memory 60"),
        ("amdgpu", "power1_cap 0; power1_cap_max 9000; power1_label PPT", ""),
        (
            "amdgpu",
            "power1_cap 15000000; power1_average 3000; power1_input 9",
            "draw 3, limit 15000",
        ),
        ("amdgpu", "power1_average -3000; power1_input 9000", "draw 9"),
        ("xe", "power1_max 0; power1_crit 9000; power2_max 7000000", "limit 7000"),
        ("xe", "power1_max 5000000; power1_cap 9000000; power1_label card", "limit 5000"),
        ("i915", "power1_max 99999999999999999", "limit implausible"),
        ("xe", "energy1_input 0; energy2_input 5", "energy 5"),
        ("xe", "energy1_input 7; energy2_input 5", "energy 7"),
        ("i915", "energy1_input -7; fan1_input 9", "energy implausible"),
    ] {
        let (root, tree, card) = one(driver, &format!("hwmon/hwmon9/name {driver}"));
        // i915 has such a chip for each GT.
        write_all(&root, "hwmon/hwmon1/", "name i915_gt0; energy1_input 99");
        write_all(&root, "hwmon/hwmon9/", files);
        let found = sensors(&tree, &card).unwrap();
        let shown = [
            ("gpu", found.gpu_temperature().map(|degrees| i64::from(degrees.0))),
            ("memory", found.memory_temperature().map(|degrees| i64::from(degrees.0))),
            ("hysteresis", found.0[0].celsius("crit_hyst").map(|degrees| i64::from(degrees.0))),
            ("draw", found.power_draw().map(|draw| draw.power.0 as i64)),
            ("limit", found.power_limit().map(|limit| limit.0 as i64)),
            ("energy", found.energy().map(|counter| counter.microjoules as i64)),
        ];
        let known = shown.into_iter().filter(|(_, value)| *value != Err(Absent::NotSupported));
        let known = known.map(|(name, value)| {
            format!(
                "{name} {}",
                value.map_or_else(|absent| absent.to_string(), |value| value.to_string())
            )
        });
        assert_eq!(known.collect::<Vec<_>>().join(", "), want, "{files}");
    }
}

#[test]
fn intel_clocks_are_read_with_old_and_new_kernels() {
    let (root, tree, card) = one("i915", "");
    let add =
        |file: &str, content: &str| write(&root, &format!("sys/class/drm/card1/{file}"), content);
    assert_eq!(gts(&tree, &card), Err(Absent::NotSupported));
    add("gt_cur_freq_mhz", "450");
    let whole = gts(&tree, &card).unwrap().remove(0);
    assert_eq!((whole.mhz("cur"), whole.mhz("act")), (Ok(450), Err(Absent::NotSupported)));
    assert_eq!(whole.throttle, Err(Absent::NotSupported));
    add("gt/gt1/rps_RPn_freq_mhz", "100");
    for (reason, content) in [("status", "1"), ("pl2", "1"), ("pl1", "0")] {
        add(&format!("gt/gt1/throttle_reason_{reason}"), content);
    }
    let found = gts(&tree, &card).unwrap();
    assert_eq!((found[0].gt, found[0].mhz("rpn"), found.len()), (1, Ok(100), 1));
    assert_eq!(found[0].throttle, Ok(vec!["pl2".to_owned()]));

    add("gt/gt1/throttle_reason_status", "0");
    assert_eq!(gts(&tree, &card).unwrap()[0].throttle, Ok(Vec::new()));

    let files = "tile1/gt3/freq0/throttle/reasons pl1 thermal⏎; tile0/gt10/freq0/act_freq 55; \
                 tile0/gt2/freq0/act_freq 77; tile0/gt02/freq0/act_freq 99; tiles/gt0 0";
    let (_root, tree, card) = one("xe", files);
    let found = gts(&tree, &card).unwrap();
    let units: Vec<_> = found.iter().map(|gt| (gt.tile, gt.gt, gt.mhz("act").ok())).collect();
    assert_eq!(units, [(0, 2, Some(77)), (0, 10, Some(55)), (1, 3, None)]);
    assert_eq!(found[2].throttle, Ok(vec!["pl1".to_owned(), "thermal".to_owned()]));
}

#[test]
fn own_name_precedes_the_lists_and_precise_lists_precede_others() {
    let amdgpu = "# list\n1.0.0\n7777,\tC0,\tFirst, second\n7777,\tC0,\tAgain\n777,\tC0,\tShort\n";
    let pci = "# comment\n1001  Other\n\t7777  Wrong\n1002  AMD\n# note\n\n\t7777  Chip\n\t\t1234 7778  Maker\n\
               \t7778  \n\nC 03  Display controller\n\t8888  Not a device\n";
    let none = Err(Absent::NotSupported);
    for (vendor, device, revision, want) in [
        (0x1002, 0x7777, Ok(0xc0), Ok("First, second")),
        (0x1002, 0x7777, Ok(0xc1), Ok("Chip")),
        (0x1002, 0x7777, none, Ok("Chip")),
        (0x8086, 0x7777, Ok(0xc0), Err(Absent::NotFound)),
        (0x1002, 0x7778, none, Err(Absent::NotFound)),
        (0x1002, 0x8888, none, Err(Absent::NotFound)),
        (0x1002, 0x0777, Ok(0xc0), Err(Absent::NotFound)),
    ] {
        let device = Ok((vendor, device));
        let ids = PciIds { device, subsystem: device, revision, class: Err(Absent::NotSupported) };
        assert_eq!(listed_names(&[ids], amdgpu, pci), [want.map(str::to_owned)], "{ids:?}");
    }

    let (root, tree, card) = one("amdgpu", "product_name ⏎; revision 0xc0⏎");
    for (path, content, want) in [
        ("usr/share/misc/pci.ids", pci, "Chip"),
        ("usr/share/hwdata/pci.ids", "1002  AMD\n\t7777  Preferred\n", "Preferred"),
        ("usr/share/libdrm/amdgpu.ids", amdgpu, "First, second"),
        (&format!("{PCI}/product_name"), "Own\n", "Own"),
    ] {
        write(&root, path, content);
        assert_eq!(product_names(&tree, &tree, std::slice::from_ref(&card)), [Ok(want.to_owned())]);
    }
}
