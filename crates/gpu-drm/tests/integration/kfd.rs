//! KFD: made machines, and real machines with known values.

use gpu_core::{Absent, Bytes, Pid, Reading};
use gpu_drm::{KfdBank, KfdLink, KfdNode, KfdTopology, Root, Tree, processes, topology};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// A machine on which some reads are an error.
struct Machine(Root);

/// Returns the path where sysfs has the directory: a copy may have lost the link to it.
fn checked(path: &str) -> String {
    assert!(!path.contains("sdma_"), "a read of {path} may block");
    path.replace("sys/class/kfd", "sys/devices/virtual/kfd")
}

impl Tree for Machine {
    fn read(&self, path: &str, limit: usize) -> Reading<Vec<u8>> {
        self.0.read(&checked(path), limit)
    }
    fn names(&self, path: &str) -> Reading<Vec<String>> {
        self.0.names(&checked(path))
    }
    fn target(&self, path: &str) -> Reading<String> {
        self.0.target(&checked(path))
    }
}

/// Makes a machine of files below KFD's directory.
fn machine(files: &[(impl AsRef<str>, impl AsRef<str>)]) -> (tempfile::TempDir, Machine) {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join("sys/devices/virtual/kfd/kfd").join(path.as_ref());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.as_ref()).unwrap();
    }
    let tree = Machine(Root::open(dir.path()).unwrap());
    (dir, tree)
}

#[test]
fn partitions_of_a_gpu_are_one_chip() {
    let node = |node, text| (format!("topology/nodes/{node}/properties"), text);
    let (_dir, tree) = machine(&[
        ("topology/generation_id".to_owned(), "3\n"),
        node("0", "cpu_cores_count 8\nsimd_count 0"),
        node("1", "simd_count 4\nlocation_id 512\ndomain 1\nhive_id 5"),
        node("2", "simd_count 4\nlocation_id 268435968\ndomain 1\nhive_id 5"),
        node("3", "simd_count 4\nlocation_id 515\ndomain 1\nunique_id 2571"),
        node("10", "simd_count 4\nlocation_id 512\nunique_id 0"),
        node("11", "simd_count 4\nlocation_id 65536"),
        node("x", "simd_count 4\nlocation_id 1"),
    ]);
    let read = topology(&tree).unwrap();
    assert_eq!(read.generation, Ok(3));
    let chips: Vec<Vec<(u32, Reading<u32>)>> = (read.chips().iter())
        .map(|chip| chip.iter().map(|node| (node.number, node.partition)).collect())
        .collect();
    let first = vec![(1, Ok(0)), (2, Ok(1)), (3, Ok(3))];
    assert_eq!(chips, [first, vec![(10, Ok(0))], vec![(11, Ok(0))]]);
    assert_eq!(read.nodes[1].bus, "0001:02:00.0".parse().map_err(|_| Absent::Failed));
    assert_eq!(read.nodes[5].bus, Err(Absent::Implausible));
    assert_eq!(read.nodes[3].uuid().unwrap().0, "GPU-0000000000000a0b");
    assert_eq!(read.nodes[4].uuid(), Err(Absent::NotSupported));
    let hives = read.hives().into_iter().map(|(hive, nodes)| (hive, nodes.len()));
    assert_eq!(hives.collect::<Vec<_>>(), [(5, 2)]);
}

#[test]
fn xgmi_hops_follow_from_weights() {
    let mut files = vec![];
    for (node, weight) in [(1, 15), (2, 41), (3, 30), (4, 17), (5, 0)] {
        let link = format!("type 11\nnode_to {node}\nweight {weight}\nmax_bandwidth 0\n");
        files.push((format!("topology/nodes/{node}/properties"), format!("location_id {node}00")));
        if node < 5 {
            files.push((format!("topology/nodes/1/io_links/{node}/properties"), link));
        }
    }
    let (_dir, tree) = machine(&files);
    let nodes = topology(&tree).unwrap().nodes;
    let hops: Vec<Reading<u32>> = nodes.iter().map(|to| nodes[0].xgmi_hops(to)).collect();
    let none = Err(Absent::NotFound);
    assert_eq!(hops, [Ok(0), Ok(1), Ok(2), Err(Absent::Implausible), none]);
    assert_eq!(nodes[1].xgmi_hops(&nodes[0]), Err(Absent::NotSupported));
    assert_eq!(nodes[0].io_links.as_ref().unwrap()[0].max_bandwidth, Err(Absent::NotSupported));
}

#[test]
fn processes_have_memory_and_queues() {
    let (_dir, tree) = machine(&[
        ("proc/4711/vram_24248", "10485760\n"),
        ("proc/4711/sdma_24248", "99\n"),
        ("proc/4711/stats_24248/evicted_ms", "12\n"),
        ("proc/4711/queues/0/gpuid", "24248"),
        ("proc/4711/queues/0/type", "1"),
        ("proc/88/vram_24248", "0\n"),
        ("proc/88/vram_3", "0\n"),
        ("proc/88/queues/none", ""),
        ("proc/99/vram_24248", "-1\n"),
        ("proc/0/vram_24248", "1"),
        ("proc/self/vram_24248", "1"),
        ("proc/077/vram_24248", "1"),
    ]);
    let read = processes(&tree).unwrap();
    assert_eq!(read.iter().map(|process| process.pid).collect::<Vec<_>>(), [88, 99, 4711].map(Pid));
    let memory = read.iter().map(|process| process.memory(24248));
    let want = [Ok(Bytes(0)), Err(Absent::Implausible), Ok(Bytes(10 << 20))];
    assert_eq!(memory.collect::<Vec<_>>(), want);
    assert_eq!(read[2].memory(3), Ok(Bytes(0)), "its cgroup closes this GPU");
    assert_eq!(read[2].gpus.as_ref().unwrap()[0].evicted_ms, Ok(12));
    let queue = read[2].queues.as_ref().unwrap()[0];
    assert_eq!((queue.gpu_id, queue.kind), (Ok(24248), Ok(1)));
    let unused = read.iter().map(|process| process.is_unused());
    assert_eq!(unused.collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(read[1].queues, Err(Absent::NotSupported));
}

/// A machine whose directories each have this many numbers, and whose files cannot be read.
struct Unreadable(u32, Absent);

impl Tree for Unreadable {
    fn read(&self, _: &str, _: usize) -> Reading<Vec<u8>> {
        Err(self.1)
    }
    fn names(&self, _: &str) -> Reading<Vec<String>> {
        Ok((0..self.0).map(|number| number.to_string()).collect())
    }
    fn target(&self, _: &str) -> Reading<String> {
        Err(self.1)
    }
}

#[test]
fn gpu_that_a_cgroup_closes_is_a_gpu() {
    let read = topology(&Unreadable(2, Absent::NotPermitted)).unwrap();
    assert_eq!(read.chips().len(), 2);
    assert_eq!(read.nodes[1].bus, Err(Absent::NotPermitted));
    assert_eq!(read.nodes[1].memory().total, Err(Absent::NotPermitted));
}

#[test]
fn machine_without_kfd_has_no_topology() {
    let (_dir, tree) = machine(&[("", ""); 0]);
    assert_eq!(topology(&tree).err(), Some(Absent::NotSupported));
    assert_eq!(processes(&tree).err(), Some(Absent::NotSupported));
}

#[test]
fn more_entries_than_the_kernel_has_are_implausible() {
    let endless = Unreadable(2_000, Absent::NotSupported);
    assert_eq!(topology(&endless).err(), Some(Absent::Implausible));
    assert_eq!(processes(&endless).unwrap()[0].queues, Err(Absent::Implausible));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_content_is_read(
        content in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "([a-z_]{0,9}[ =\t]?[0-9+-]{0,21}\n){0,8}".prop_map(String::into_bytes),
        ],
        value in 1_u64..,
    ) {
        let (dir, tree) = machine(&[("topology/nodes/1/gpu_id", "7"), ("proc/5/vram_7", "")]);
        let kfd = dir.path().join("sys/devices/virtual/kfd/kfd");
        let known = format!("\nxhive_id 1\nhive_idx 1\nhive_id {value}\nhive_id 1\nnum_xcc {value}\n");
        let properties = [&content[..], known.as_bytes()].concat();
        fs::write(kfd.join("topology/nodes/1/properties"), &properties).unwrap();
        for file in ["topology/nodes/1/gpu_id", "proc/5/vram_7"] {
            fs::write(kfd.join(file), &content).unwrap();
        }
        let node = &topology(&tree).unwrap().nodes[0];
        let is_text = str::from_utf8(&content).is_ok();
        prop_assert_eq!(node.hive, if is_text { Ok(value) } else { Err(Absent::Implausible) });
        let narrow = u32::try_from(value).ok().filter(|_| is_text);
        prop_assert_eq!(node.xcc_count, narrow.ok_or(Absent::Implausible));
        prop_assert_eq!(processes(&tree).unwrap().len(), 1);
    }
}

/// The value, or null if it is absent.
fn known<T: Into<Value>>(reading: Reading<T>) -> Value {
    reading.map_or(Value::Null, Into::into)
}

/// Describes a node by the keys of the expected values.
fn described(node: &KfdNode) -> Value {
    let bank = |bank: &KfdBank| {
        let mut read =
            json!({ "heap_type": known(bank.heap), "size": known(bank.size.map(|size| size.0)) });
        if let Ok(used) = bank.used {
            read["used_memory"] = used.0.into();
        }
        read
    };
    let links = |links: &Reading<Vec<KfdLink>>| {
        let mut counts = BTreeMap::new();
        for link in links.iter().flatten() {
            let key = format!("type{}/w{}", link.kind.unwrap(), link.weight.unwrap());
            *counts.entry(key).or_insert(0) += 1;
        }
        if counts.is_empty() { Value::Null } else { json!(counts) }
    };
    let banks = node.banks.as_ref().ok().map(|banks| banks.iter().map(bank).collect::<Vec<_>>());
    json!({
        "gpu": node.is_gpu, "gpu_id": known(node.gpu_id), "banks": banks,
        "io_links": links(&node.io_links), "p2p_links": links(&node.p2p_links),
        "vendor": known(node.vendor), "device": known(node.device.map(|id| format!("{id:#06x}"))),
        "pci": known(node.bus.map(|bus| bus.to_string()[4..].to_lowercase())),
        "render_minor": known(node.render_minor), "hive_id": known(node.hive),
        "unique_id": known(node.unique_id), "uuid": known(node.uuid().map(|uuid| uuid.0)),
        "num_xcc": known(node.xcc_count), "simd_count": known(node.simd_count),
        "gfx_target_version": known(node.gfx_target), "low3": known(node.partition),
    })
}

/// Describes a machine by the keys of the expected values.
fn summed(read: &KfdTopology) -> Value {
    let gpus = read.nodes.iter().filter(|node| node.is_gpu).count();
    json!({
        "nodes": read.nodes.len(), "gpu_nodes": gpus, "cpu_nodes": read.nodes.len() - gpus,
        "chips": read.chips().len(), "hives": read.hives().len(),
        "generation_id": known(read.generation),
    })
}

/// Describes a partitioned GPU by the keys of the expected values.
fn divided(chip: &[&KfdNode]) -> Value {
    let partition = |node: &&KfdNode| {
        json!({
            "index": node.partition.unwrap(), "gpu_id": known(node.gpu_id), "node": node.number,
            "render": format!("renderD{}", node.render_minor.unwrap()),
            "vram_total": known(node.memory().total.map(|total| total.0)),
        })
    };
    let partitions: Vec<Value> = chip.iter().map(partition).collect();
    json!({ "unique_id": chip[0].uuid().unwrap().0["GPU-".len()..], "partitions": partitions })
}

#[test]
fn real_machines_have_their_values() {
    let Some(dir) = std::env::var_os("GPUWS_DRM").map(PathBuf::from) else {
        // Bypasses the test harness, which hides the output of passing tests.
        let mut stderr = std::io::stderr();
        return writeln!(stderr, "skipped: GPUWS_DRM names no collection of machines").unwrap();
    };
    let mut machines: BTreeMap<String, KfdTopology> = BTreeMap::new();
    let mut compared = BTreeMap::new();
    for line in fs::read_to_string(dir.join("TRUTH.jsonl")).unwrap().lines() {
        let want: Value = serde_json::from_str(line).unwrap();
        let [kind, machine] = ["kind", "machine"].map(|key| want[key].as_str().unwrap_or_default());
        if !["kfd_node", "kfd_machine", "partitioned_chip"].contains(&kind) {
            continue;
        }
        let read = machines.entry(machine.to_owned()).or_insert_with(|| {
            topology(&Machine(Root::open(&dir.join(machine)).unwrap())).unwrap()
        });
        let read = match kind {
            "kfd_node" => {
                described(read.nodes.iter().find(|node| want["node"] == node.number).unwrap())
            }
            "kfd_machine" => summed(read),
            _ => {
                let bus = want["pci"].as_str().unwrap().parse().unwrap();
                divided(read.chips().iter().find(|chip| chip[0].bus == Ok(bus)).unwrap())
            }
        };
        for (key, read) in read.as_object().unwrap() {
            // A file has 0 where there is none.
            let is_none = ["hive_id", "unique_id"].contains(&&**key) && want[key] == 0;
            assert_eq!(if is_none { &Value::Null } else { &want[key] }, read, "{key}: {line}");
        }
        *compared.entry(kind.to_owned()).or_insert(0) += 1;
    }
    assert_eq!(compared.len(), 3, "{compared:?}");
}
