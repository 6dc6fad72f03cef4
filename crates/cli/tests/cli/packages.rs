//! The package, installed and run in a root directory with only its dependencies, and its files for
//! systemd, the shells and man.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use xtask::packages::{CargoDeb, CleanRoot, Programs, fill};

/// The exposure that `systemd-analyze security` may give a unit, in tenths: from 0 to 100. A unit
/// that inspects the processes of all users cannot be below 25.
const EXPOSURE: &str = "35";

fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Returns whether a program can be run here; prints that a test is skipped if not.
pub(crate) fn runs(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let runs = version.status().is_ok();
    if !runs {
        skip(&format!("{program} is missing"));
    }
    runs
}

/// Returns the programs that cargo built next to this test; `None` and a note if the simulated NVML
/// is missing.
fn programs() -> Option<Programs> {
    let gpuws = Path::new(env!("CARGO_BIN_EXE_gpuws"));
    let programs = Programs::in_dir(gpuws.parent().expect("a directory"));
    let built = programs.library.is_file() && programs.actor.is_file();
    if !built {
        skip("the simulated NVML is not built: cargo build");
    }
    built.then_some(programs)
}

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn package_runs_with_only_its_dependencies() {
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can install a package");
    }
    let Some(cargo_deb) = CargoDeb::found(xtask::workspace_root()) else {
        return skip("cargo-deb is missing; cargo xtask deb installs it");
    };
    let (Some(programs), true) = (programs(), runs("dpkg-deb")) else { return };
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = xtask::workspace_root();
    let package = cargo_deb.pack(root, &programs, "dev", dir.path()).expect("it is packed");
    let to = dir.path().join("root");
    let clean = CleanRoot::install(&to, &package).expect("it is installed");

    let depends = output(Command::new("dpkg-deb").arg("-f").arg(&package).arg("Depends"));
    assert_eq!(text(&depends), "libc6 (>= 2.28)\n");
    let found = output(&mut clean.command(&["gpuws", "--sim", "p100-ghost", "doctor"]));
    assert_eq!(found.status.code(), Some(1), "{}", text(&found));
    assert!(text(&found).contains("ghost"), "{}", text(&found));
    // The simulated NVML is the one of the package.
    let words = ["gpuws", "sim", "labbox", "--live", "--", "gpuws", "status", "--json"];
    let status = output(&mut clean.command(&words));
    let shown: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(shown["gpus"].as_array().map(Vec::len), Some(4), "{}", text(&status));
    // Without a policy and without a driver, the service takes its samples and ends by itself.
    let watch = output(&mut clean.command(&["gpuws", "watch", "--json", "--for", "1s"]));
    assert_eq!(watch.status.code(), Some(0), "{}", text(&watch));

    for file in [
        "usr/share/man/man1/gpuws.1.gz",
        "usr/share/man/man1/gpuws-mem-fit.1.gz",
        "usr/share/bash-completion/completions/gpuws",
        "usr/share/zsh/vendor-completions/_gpuws",
        "usr/share/fish/vendor_completions.d/gpuws.fish",
        "usr/lib/systemd/system/gpuws-watch.service",
        "usr/lib/systemd/system/run-gpuws.mount",
        "usr/lib/systemd/system/local-fs.target.d/gpuws.conf",
        "usr/lib/tmpfiles.d/gpuws.conf",
        "usr/lib/sysusers.d/gpuws-export.conf",
        "usr/share/doc/gpuws/watch.md",
        "usr/share/doc/gpuws/copyright",
    ] {
        assert!(to.join(file).metadata().is_ok_and(|file| file.len() > 0), "{file}");
    }
    if runs("systemd-tmpfiles") && runs("systemd-sysusers") {
        let leases = to.join("run/gpuws").metadata().expect("the directory of leases");
        assert_eq!((leases.mode() & 0o7777, leases.uid()), (0o1777, 0));
        let users = fs::read_to_string(to.join("etc/passwd")).expect("users");
        assert!(users.lines().any(|user| user.starts_with("gpuws-export:")), "{users}");
    }

    let mut remove = Command::new("dpkg");
    remove.arg(format!("--root={}", to.display())).arg("--force-script-chrootless");
    let removed = output(remove.args(["--remove", "gpuws"]));
    assert!(removed.status.success(), "{}", text(&removed));
    assert!(!to.join("usr/bin/gpuws").exists() && !to.join("usr/lib/gpuws").exists());
    assert!(to.join("run/gpuws").is_dir(), "jobs that run keep their leases");
}

/// Returns the path of a unit of the repository.
fn packaged(unit: &str) -> PathBuf {
    xtask::workspace_root().join("packaging/systemd").join(unit)
}

/// The units of the repository, in a root directory with the units of this machine.
struct Units {
    dir: tempfile::TempDir,
    names: Vec<String>,
}

impl Units {
    const PLACE: &str = "usr/lib/systemd/system";

    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let at = |path: &str| dir.path().join(path);
        for sub in ["usr/bin", "bin", "usr/lib/systemd"] {
            fs::create_dir_all(at(sub)).expect("a directory");
        }
        fs::hard_link(env!("CARGO_BIN_EXE_gpuws"), at("usr/bin/gpuws"))
            .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_gpuws"), at("usr/bin/gpuws")).map(drop))
            .expect("the program");
        fs::copy("/bin/kill", at("bin/kill")).expect("kill");
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(Path::new("/").join(Self::PLACE)).arg(at("usr/lib/systemd"));
        assert!(output(&mut copy).status.success(), "the units of this machine");
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(packaged(".")).arg(at(Self::PLACE));
        assert!(output(&mut copy).status.success(), "our units");
        let entries =
            fs::read_dir(packaged(".")).expect("units").map(|entry| entry.expect("a unit"));
        let units = entries.filter(|entry| entry.path().is_file());
        let names = units.map(|unit| unit.file_name().into_string().expect("a name")).collect();
        Units { dir, names }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(Self::PLACE).join(name)
    }

    fn analyze(&self, words: &[&str]) -> Output {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(words).arg(format!("--root={}", self.dir.path().display()));
        output(analyze.env("NO_COLOR", "1").env("SYSTEMD_PAGER", ""))
    }
}

#[test]
fn units_are_valid_and_hardened() {
    if !runs("systemd-analyze") {
        return;
    }
    let units = Units::new();
    assert!(units.names.contains(&"gpuws-watch.service".to_owned()), "{:?}", units.names);
    let threshold = format!("--threshold={EXPOSURE}");
    for name in &units.names {
        let verified = units.analyze(&["verify", name]);
        assert!(verified.status.success(), "{}", text(&verified));
        assert_eq!(text(&verified), "", "{name}");
        if !name.ends_with(".service") {
            continue;
        }
        let rated = units.analyze(&["security", "--offline=yes", &threshold, name]);
        assert!(rated.status.success(), "{}", text(&rated));
        let unit = fs::read_to_string(units.path(name)).expect("a unit");
        for hides_gpus in ["PrivateDevices=y", "ProtectClock=y", "DevicePolicy=c", "ProtectProc="] {
            let set = unit.lines().any(|line| line.starts_with(hides_gpus));
            assert!(!set, "{name}: {hides_gpus}");
        }
    }
    // Both checks detect their kind of fault.
    let unit = fs::read_to_string(units.path("gpuws-watch.service")).expect("a unit");
    fs::write(units.path("bad.service"), unit.replace("Type=exec", "Typo=exec")).expect("a unit");
    assert_ne!(text(&units.analyze(&["verify", "bad.service"])), "");
    let start = "[Service]\nExecStart=/usr/bin/gpuws watch\n";
    fs::write(units.path("bad.service"), start).expect("a unit");
    let rated = units.analyze(&["security", "--offline=yes", &threshold, "bad.service"]);
    assert!(!rated.status.success(), "{}", text(&rated));
}

#[test]
fn users_cannot_fill_the_file_system_of_run() {
    if !nix::unistd::geteuid().is_root() || !runs("unshare") {
        return skip("only root can mount");
    }
    let unit = fs::read_to_string(packaged("run-gpuws.mount")).expect("a unit");
    let options = unit.lines().find_map(|line| line.strip_prefix("Options=")).expect("options");
    let script = "mount -t tmpfs none /run && mkdir /run/gpuws && \
                  mount -t tmpfs -o \"$1\" tmpfs /run/gpuws && \
                  stat -c %a /run/gpuws && stat -f -c '%b %S %c' /run/gpuws && \
                  \"$0\" leases --json --deadline 1s >/dev/null; echo \"$?\"; \
                  head -c 100m /dev/zero 2>/dev/null >/run/gpuws/large && echo filled; \
                  : >/run/other && echo room";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script]);
    let ran = output(command.args([env!("CARGO_BIN_EXE_gpuws"), options]));
    // 64 MiB in pages of 4 KiB, and 65,536 files.
    assert_eq!(text(&ran), "1777\n16384 4096 65536\n0\nroom\n");
}

/// No age of `tmpfiles.d` applies to leases, and files of others are not exempt.
#[test]
fn cleaner_spares_only_leases() {
    let path = xtask::workspace_root().join("packaging/tmpfiles.d/gpuws.conf");
    let text = fs::read_to_string(path).expect("a file");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["d /run/gpuws 1777 root root -"]);
}

#[test]
fn manual_pages_and_completions_are_valid() {
    let Some(programs) = programs() else { return };
    let dir = tempfile::tempdir().expect("temporary directory");
    let made = dir.path().join("made");
    fill(&made, &programs).expect("the files are made");
    let pages = super::program::files(&made.join("man"));
    for page in ["gpuws.1.gz", "gpuws-run.1.gz", "gpuws-mem-explain.1.gz"] {
        assert!(pages.iter().any(|found| found == page), "{page}: {pages:?}");
    }
    if runs("man") {
        for page in &pages {
            let mut man = Command::new("man");
            man.args(["--warnings", "-E", "UTF-8", "-l"]).arg(made.join("man").join(page));
            let shown = output(man.env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8"));
            assert!(shown.status.success() && shown.stderr.is_empty(), "{page}: {}", text(&shown));
            assert!(text(&shown).contains("SYNOPSIS"), "{page}");
        }
    }
    for (shell, file) in [("bash", "gpuws.bash"), ("zsh", "_gpuws"), ("fish", "gpuws.fish")] {
        let file = made.join("completions").join(file);
        if runs(shell) {
            let parsed = output(Command::new(shell).arg("-n").arg(&file));
            assert!(parsed.status.success(), "{shell}: {}", text(&parsed));
        }
        assert!(fs::read_to_string(&file).expect("a script").contains("accept-used"), "{shell}");
    }
}

#[test]
fn scripts_of_the_package_are_executable_shell() {
    let dir = xtask::workspace_root().join("packaging/deb");
    for script in super::program::files(&dir) {
        let path = dir.join(&script);
        let mode = path.metadata().expect("a script").permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{script}");
        let parsed = output(Command::new("sh").arg("-n").arg(&path));
        assert!(parsed.status.success(), "{script}: {}", text(&parsed));
        // A reload can take GPUs away from running containers.
        let text = fs::read_to_string(&path).expect("a script");
        assert!(!text.contains("daemon-reload"), "{script}");
    }
}

/// Returns the manifests for Kubernetes in kubectl's combined form.
fn manifests() -> Option<String> {
    let dir = xtask::workspace_root().join("packaging/kubernetes");
    let made = Command::new("kubectl").arg("kustomize").arg(dir).stdin(Stdio::null()).output();
    let Ok(made) = made else {
        skip("kubectl is missing");
        return None;
    };
    assert!(made.status.success(), "{}", text(&made));
    Some(String::from_utf8(made.stdout).expect("YAML"))
}

/// Checks manifests with Kubernetes' own client; `None` and a note without it.
fn checked(manifests: &str) -> Option<Output> {
    let python = std::env::var_os("GPUWS_PYTHON").unwrap_or_else(|| "python3".into());
    let mut check = Command::new(python);
    check.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/manifests.py"));
    let check = check.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut check) = check else {
        skip("python3 is missing");
        return None;
    };
    // It exits at once without the client.
    let _ = check.stdin.take().expect("a pipe").write_all(manifests.as_bytes());
    let checked = check.wait_with_output().expect("it ends");
    if checked.status.code() == Some(77) {
        skip("GPUWS_PYTHON has no package 'kubernetes' of version 37 or later");
        return None;
    }
    Some(checked)
}

#[test]
fn kubernetes_accepts_the_manifests() {
    let Some(manifests) = manifests() else { return };
    for line in ["hostPID: true", "automountServiceAccountToken: false", "- DAC_READ_SEARCH"] {
        assert!(manifests.lines().any(|found| found.trim() == line), "{line}: {manifests}");
    }
    assert!(!manifests.contains("privileged: true"), "{manifests}");
    // gpuws understands the container's start command.
    let words = ["watch", "--json", "--for", "1s"];
    let watch = super::program::gpuws(Path::new("/"), &[&["--sim", "labbox"], &words[..]].concat());
    assert_eq!(watch.code, 0, "{}", watch.stderr);
    let args = manifests.split("- args:\n").nth(1).expect("arguments");
    let args: Vec<&str> = args.lines().map_while(|line| line.trim().strip_prefix("- ")).collect();
    assert_eq!(args, words[..2]);

    let Some(good) = checked(&manifests) else { return };
    assert!(good.status.success(), "{}", text(&good));
    assert_eq!(text(&good), "DaemonSet Namespace\n");
    let bad = checked(&manifests.replace("hostPID", "hostPid")).expect("the client is there");
    assert_eq!(text(&bad), "DaemonSet Namespace\ndropped: DaemonSet.spec.template.spec.hostPid\n");
    assert!(!bad.status.success());
}
