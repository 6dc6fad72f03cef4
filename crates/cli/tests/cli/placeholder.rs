//! The placeholders of `gpuws claim --placeholder`: a process that keeps a CUDA context on each
//! device, with a stand-in driver that `cc` builds.
//!
//! Simulated machines have no CUDA, and claims on them reject placeholders. So the process is
//! started directly, as a claim on real devices starts it.

use crate::live::{GPUWS, reported, script, text};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The devices of the driver, 40 and 41.
const DEVICES: [&str; 2] =
    ["GPU-00010203-0405-0607-0809-0a0b0c0d0e28", "GPU-00010203-0405-0607-0809-0a0b0c0d0e29"];

/// Builds the driver in a temporary directory.
fn driver() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placeholder/libcuda.c");
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=c99",
        "-D_POSIX_C_SOURCE=200809L",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
    ]);
    let built = compiler.arg("-o").arg(dir.path().join("libcuda.so")).arg(source).status();
    assert!(built.unwrap().success(), "{compiler:?}");
    dir
}

/// A process that lives until its standard input ends, or until the test fails.
struct Root(Child);

impl Root {
    fn start() -> Self {
        Root(Command::new("cat").stdin(Stdio::piped()).spawn().unwrap())
    }

    /// Returns its PID and start time, as arguments for a process that waits for its end.
    fn words(&self) -> [String; 2] {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        [self.0.id().to_string(), fields.split(' ').nth(19).unwrap().to_owned()]
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process that keeps a context on each of these devices while `root` lives, and returns
/// its message.
fn keeper(driver: &Path, root: &Root, devices: &[&str], refused: &str) -> (Child, String) {
    let [pid, start] = root.words();
    kept(driver, [&pid, &start], devices, refused)
}

fn kept(driver: &Path, root: [&str; 2], devices: &[&str], refused: &str) -> (Child, String) {
    let mut keeper = Command::new(GPUWS)
        .arg("lease-holder")
        .args(root)
        .args(devices)
        .env("LD_LIBRARY_PATH", driver)
        .env("STAND_IN_SAYS", driver.join("output_text"))
        .env("STAND_IN_REFUSES", refused)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output_text = Vec::new();
    keeper.stdout.take().unwrap().read_to_end(&mut output_text).unwrap();
    (keeper, text(&output_text))
}

#[test]
fn placeholder_keeps_context_on_each_device_until_owner_ends() {
    let driver = driver();
    let mut root = Root::start();
    let (mut keeper, output_text) = keeper(driver.path(), &root, &DEVICES, "");
    let made = || std::fs::read_to_string(driver.path().join("output_text")).unwrap_or_default();
    let contexts = made();
    let lives = keeper.try_wait().unwrap().is_none();
    root.end();
    let ended = keeper.wait().unwrap();
    let pid = keeper.id();
    assert_eq!(output_text, "holds");
    assert_eq!(contexts, format!("context on 40 by {pid}\ncontext on 41 by {pid}\n"));
    assert!(lives, "the process must keep running");
    assert_eq!(ended.code(), Some(0));
    let gone = made().split_off(contexts.len());
    let mut gone: Vec<&str> = gone.lines().collect();
    gone.sort_unstable();
    assert_eq!(gone, [format!("none on 40 by {pid}"), format!("none on 41 by {pid}")]);
}

#[test]
fn run_placeholder_holds_visible_device_under_own_name() {
    let driver = driver();
    let mut root = Root::start();
    let mut placeholder = Command::new(GPUWS)
        .arg("run-placeholder")
        .args(root.words())
        .env("CUDA_VISIBLE_DEVICES", DEVICES[1])
        .env("LD_LIBRARY_PATH", driver.path())
        .env("STAND_IN_SAYS", driver.path().join("output_text"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output_text = Vec::new();
    placeholder.stdout.take().unwrap().read_to_end(&mut output_text).unwrap();
    let pid = placeholder.id();
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    root.end();
    let code = placeholder.wait().unwrap().code();
    assert_eq!(
        (text(&output_text).as_str(), name.as_str(), code),
        ("holds", "run-placeholder\n", Some(0))
    );
    let made = std::fs::read_to_string(driver.path().join("output_text")).unwrap();
    assert_eq!(made, format!("context on 41 by {pid}\nnone on 41 by {pid}\n"));
}

#[test]
fn cuda_error_is_reported_and_no_context_kept() {
    let driver = driver();
    let root = Root::start();
    let unseen = ["GPU-ffffffff-0405-0607-0809-0a0b0c0d0e28"];
    for (devices, refused, why) in [
        (&DEVICES[..], "41", "CUDA error 2"),
        (&unseen[..], "", "no such device is visible to this process"),
    ] {
        let (mut keeper, output_text) = keeper(driver.path(), &root, devices, refused);
        assert_eq!(keeper.wait().unwrap().code(), Some(125), "{output_text}");
        assert!(
            output_text.starts_with("create a CUDA context on GPU-") && output_text.contains(why),
            "{output_text}"
        );
    }
    let made = std::fs::read_to_string(driver.path().join("output_text")).unwrap();
    let words: Vec<_> = made.lines().filter_map(|line| line.split_once(" by ")).collect();
    assert_eq!(
        words.iter().map(|(word, _)| *word).collect::<Vec<_>>(),
        ["context on 40", "none on 40"]
    );
}

#[test]
fn placeholder_of_ended_owner_holds_no_device() {
    let driver = driver();
    let mut root = Root::start();
    let words = root.words();
    root.end();
    for [pid, start] in [words, [std::process::id().to_string(), "1".to_owned()]] {
        let (mut keeper, output_text) = kept(driver.path(), [&pid, &start], &DEVICES[..1], "");
        assert_eq!((keeper.wait().unwrap().code(), &*output_text), (Some(0), "holds"));
    }
    let made = std::fs::read_to_string(driver.path().join("output_text")).unwrap();
    assert_eq!(made.matches("context on 40").count(), made.matches("none on 40").count(), "{made}");
}

#[test]
fn useless_placeholder_is_refused() {
    for (words, why) in [
        ("--placeholder", "--placeholder requires --hold or --export"),
        ("--placeholder --hold", "simulated machines have no CUDA"),
        ("--placeholder --export", "simulated machines have no CUDA"),
    ] {
        let output =
            script("twelve-gpus", &format!("\"$0\" claim {words} < /dev/null; echo $?; leases"));
        let output_text = crate::live::out(&output);
        assert!(
            output_text.contains("2\n") && output_text.contains("\"leases\":[]"),
            "{words}: {output:?}"
        );
        assert!(reported(&output).contains(why), "{words}: {output:?}");
    }
}
