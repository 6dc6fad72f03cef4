//! The readers beside Prometheus' node_exporter (`--collector.drm`), on the files of real machines.

use crate::machines::{data, machine};
use gpu_core::{Bytes, Percent};
use gpu_drm::{CardDriver, Root, cards, values};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The exporter, which ends with the test.
struct Exporter {
    child: Child,
    address: std::net::SocketAddr,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Exporter {
    /// Starts it on the `sys` of a machine; `None` if it is not installed.
    fn start(root: &Path) -> Option<Self> {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let program = std::env::var_os("GPUWS_NODE_EXPORTER");
        let child = Command::new(program.unwrap_or_else(|| "prometheus-node-exporter".into()))
            .arg(format!("--path.sysfs={}", root.join("sys").display()))
            .args(["--collector.disable-defaults", "--collector.drm"])
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Some(Exporter { child: child.ok()?, address })
    }

    /// Returns the values of each metric by card.
    #[expect(clippy::disallowed_methods, reason = "a real program answers")]
    fn metrics(&mut self) -> BTreeMap<(String, String), f64> {
        let connect = |_| {
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
            std::thread::sleep(Duration::from_millis(20));
            TcpStream::connect(self.address).ok()
        };
        let mut stream = (0..5_000).find_map(connect).expect("it answers");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let metric = |line: &str| {
            let (name, rest) = line.strip_prefix("node_drm_")?.split_once("{card=\"")?;
            let (card, value) = rest.split_once("\"} ")?;
            Some(((name.to_owned(), card.to_owned()), value.parse().ok()?))
        };
        text.lines().filter_map(metric).collect()
    }
}

#[test]
fn node_exporter_reads_the_same_values() {
    let Some(data) = data() else { return };
    let mut compared = 0;
    for name in ["procfs-vega64", "lact-rx6900xt", "lact-phoenix", "lact-rx7900xtx"] {
        let dir = machine(&data, name);
        let Some(mut exporter) = Exporter::start(dir.path()) else {
            writeln!(std::io::stderr(), "skipped: prometheus-node-exporter is not installed")
                .unwrap();
            return;
        };
        let metrics = exporter.metrics();
        let tree = Root::open(dir.path()).unwrap();
        let amd = cards(&tree).unwrap();
        for card in amd.iter().filter(|card| card.driver == CardDriver::Amdgpu) {
            let values = values(&tree, card);
            let bytes =
                |reading: gpu_core::Reading<Bytes>| reading.ok().map(|bytes| bytes.0 as f64);
            let busy = values.busy.ok().map(|busy: Percent| f64::from(busy.get()));
            for (metric, own) in [
                ("memory_vram_size_bytes", bytes(values.vram.total)),
                ("memory_vram_used_bytes", bytes(values.vram.used)),
                ("memory_gtt_used_bytes", bytes(values.gtt.used)),
                ("gpu_busy_percent", busy),
            ] {
                let key = (metric.to_owned(), format!("card{}", card.card.unwrap()));
                // It prints 0 for a file that does not exist.
                let read = metrics.get(&key).unwrap_or_else(|| panic!("{key:?}: {metrics:?}"));
                assert_eq!(own.unwrap_or(0.0), *read, "{name} {key:?}");
                compared += usize::from(own.is_some());
            }
        }
    }
    assert!(compared >= 12, "{compared} values");
}
