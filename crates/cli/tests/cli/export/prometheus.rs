//! A real Prometheus scrapes the exporter and evaluates the shipped rules; promtool checks both; a
//! real node_exporter reads the textfile.
//!
//! `cargo xtask peers --install-only` unpacks Debian's packages; without them the tests print a note
//! and end.

use super::exporter::{Exporter, ask};
use crate::live::{GPUWS, each_at_once};
use crate::program::gpuws;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const DOCUMENT: &str = include_str!("../../../../../docs/metrics.md");
const DASHBOARD: &str = include_str!("../../../../../packaging/grafana/gpuws.json");

/// Returns a program of Debian's packages.
fn installed(name: &str) -> Option<PathBuf> {
    let target = Path::new(GPUWS).parent()?.parent()?;
    let program = target.join("peers/root/usr/bin").join(name);
    if program.is_file() {
        return Some(program);
    }
    // Bypasses the test harness, which hides the output of passing tests.
    let _ = writeln!(std::io::stderr(), "skipped: {name} is not there");
    None
}

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

fn with_input(program: &Path, words: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn promtool_finds_no_fault_in_the_page_of_any_machine() {
    let Some(promtool) = installed("promtool") else { return };
    let machines: Vec<&str> = gpu_sim::machines().iter().map(|machine| machine.name).collect();
    assert!(machines.len() > 20);
    for machines in machines.chunks(8) {
        each_at_once(machines, |machine| {
            let words = ["--sim", machine, "export", "--textfile", "-", "--processes=1MiB"];
            let page = gpuws(Path::new("."), &words);
            assert_eq!(page.code, 0, "{machine}: {}", page.stderr);
            let output = with_input(&promtool, &["check", "metrics"], &page.stdout);
            assert!(output.status.success(), "{machine}: {output:?}");
            assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{machine}: {output:?}");
        });
    }
}

#[test]
fn rules_pass_their_tests() {
    let Some(promtool) = installed("promtool") else { return };
    for words in [["check", "rules", "gpuws.rules.yml"], ["test", "rules", "gpuws.rules.test.yml"]]
    {
        let mut command = Command::new(&promtool);
        let output = command.args(words).current_dir(packaging("prometheus")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn configurations_of_the_document_are_valid() {
    let Some(promtool) = installed("promtool") else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::copy(packaging("prometheus/gpuws.rules.yml"), dir.path().join("gpuws.rules.yml")).unwrap();
    let blocks: Vec<&str> = DOCUMENT.split("```yaml\n").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let config = dir.path().join("prometheus.yml");
        fs::write(&config, block.split("```").next().unwrap()).unwrap();
        let output =
            Command::new(&promtool).args(["check", "config"]).arg(config).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// A server that runs for a test.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    /// Starts a program that serves at the given address.
    fn start(command: impl FnOnce(SocketAddr) -> Command) -> Self {
        // This port was free a moment ago; the program does not accept port 0.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = command(address);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let running = Running { child, address };
        until("it serves", || TcpStream::connect(address).ok().map(drop));
        running
    }

    /// Returns the answer of Prometheus to a query of its API.
    fn api(&self, path: &str) -> Value {
        let answer = ask(self.address, &format!("/api/v1/{path}"), "");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    fn query(&self, expression: &str) -> Vec<Value> {
        let answer = self.api(&format!("query?query={}", encoded(expression)));
        answer["result"].as_array().unwrap().clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Waits up to a minute for a value.
#[expect(clippy::disallowed_methods, reason = "another program works meanwhile")]
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("it never came to be: {what}");
}

#[test]
fn prometheus_scrapes_exporter_and_evaluates_rules() {
    let Some(prometheus) = installed("prometheus") else { return };
    let exporter = Exporter::start(&["--sim", "labbox", "export", "--reuse", "1ms"]);
    let dir = tempfile::tempdir().unwrap();
    let rules = packaging("prometheus/gpuws.rules.yml").canonicalize().unwrap();
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
         rule_files: ['{}']\n\
         scrape_configs:\n\
         - job_name: gpuws\n  static_configs: [{{targets: ['{}']}}]\n",
        rules.display(),
        exporter.address
    );
    fs::write(dir.path().join("prometheus.yml"), config).unwrap();
    let server = Running::start(|address| {
        let mut command = Command::new(prometheus);
        command
            .current_dir(dir.path())
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=db"]);
        command.arg(format!("--web.listen-address={address}"));
        command
    });
    until("it is ready", || {
        ask(server.address, "/-/ready", "").starts_with("HTTP/1.0 200").then_some(())
    });
    until("it has scraped twice", || {
        let scraped = server.query("count_over_time(gpuws_up[1m]) >= 2");
        scraped.into_iter().next()
    });
    let target = &server.api("targets")["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&"up".into(), &"".into()), "{target}");
    // Only OpenMetrics has units and the type `info`, so Prometheus requested and received it.
    let metadata = server.api("metadata");
    assert_eq!(metadata["gpuws_gpu"][0]["type"], "info", "{metadata}");
    assert_eq!(metadata["gpuws_gpu_memory_unexplained_bytes"][0]["unit"], "bytes");
    assert_eq!(metadata["gpuws_gpu_energy_joules"][0]["type"], "counter");
    let ghost = server.query("gpuws_gpu_memory_unexplained_bytes > 0");
    assert_eq!(ghost.len(), 1);
    assert_eq!(ghost[0]["metric"]["gpu"], "3");
    assert_eq!(ghost[0]["value"][1], "16540237824");

    let groups = until("every rule was evaluated", || {
        let groups = server.api("rules")["groups"].clone();
        let rules = groups[0]["rules"].as_array()?.clone();
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    for rule in &groups {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    let state = |name: &str| {
        let rule = groups.iter().find(|rule| rule["name"] == name).unwrap();
        rule["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state("GpuMemoryUnexplained"), "pending");
    assert_eq!(state("GpuDriverSilent"), "inactive");

    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let targets = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let mut shown = 0;
    for target in targets.flatten() {
        let expression = target["expr"].as_str().unwrap();
        let expression = expression.replace("$instance", ".*").replace("$job", ".*");
        shown += usize::from(!server.query(&expression).is_empty());
    }
    assert!(shown > 10, "only {shown} queries of the dashboard have a result");
    drop(exporter);
    until("the exporter is down", || server.query("up == 0").into_iter().next());
}

#[test]
fn node_exporter_reads_the_textfile() {
    let Some(program) = installed("prometheus-node-exporter") else { return };
    let dir = tempfile::tempdir().unwrap();
    let ended = gpuws(dir.path(), &["--sim", "labbox", "export", "--textfile", "gpuws.prom"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let server = Running::start(|address| {
        let mut command = Command::new(program);
        command.args(["--collector.disable-defaults", "--collector.textfile"]);
        command.arg(format!("--collector.textfile.directory={}", dir.path().display()));
        command.arg(format!("--web.listen-address={address}"));
        command
    });
    let page = ask(server.address, "/metrics", "");
    assert!(page.contains("\nnode_textfile_scrape_error 0\n"), "{page}");
    assert!(page.contains("\ngpuws_up 1\n"), "{page}");
    assert!(page.contains("gpuws_findings{kind=\"ghost\"} 1\n"), "{page}");
}
