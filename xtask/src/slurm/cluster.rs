//! The daemons of a one-node cluster in namespaces.

use super::files::{JOB, ORDER, STAY, gres_conf, script, slurm_conf};
use super::scenarios::{SETUID, SETUID_ROOT};
use crate::program::output_of;
use std::fs;
use std::io::{self, Error, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The directory of all cluster files, in memory.
pub(super) const DIR: &str = "/run/gpuws-slurm";
/// The name of the node.
pub(super) const NODE: &str = "n1";
/// The users of the jobs.
pub(super) const USERS: [(&str, u32); 2] = [("alice", 30_001), ("bob", 30_002)];

/// A user without jobs.
pub(super) const STRANGER: u32 = 30_099;

/// The name of each job: the user imitates Slurm's output, as if the job had every device.
const NAME: &str = "x GRES=gpu:4 Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:4\nNodes=n1 GRES=gpu:4";

/// A running cluster.
pub(super) struct Cluster {
    library: String,
}

impl Cluster {
    /// Starts the daemons, and waits until the node is idle.
    pub(super) fn start(tree: &Path, gpuws: &Path) -> io::Result<Self> {
        // The audit log, leases and the files of the cluster are in memory.
        for dir in ["/run", "/var/log"] {
            output_of(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755", "none", dir]))?;
        }
        fs::write("/proc/sys/kernel/hostname", NODE)?;
        for dir in ["munge", "state", "spool", "dev", "bin", "etc"] {
            fs::create_dir_all(at(dir))?;
        }
        for dir in ["left", "running", "log"] {
            fs::create_dir_all(at(dir))?;
            fs::set_permissions(at(dir), PermissionsExt::from_mode(0o1777))?;
        }
        fs::write(at("violations"), "")?;
        fs::set_permissions(at("violations"), PermissionsExt::from_mode(0o666))?;
        output_of(Command::new("cp").arg("-a").args([tree.join("usr"), at("usr")]))?;
        // Copied, so that a concurrent build does not change it.
        fs::copy(gpuws, at("bin/gpuws"))?;
        add_users()?;
        make_devices()?;
        let library = at("usr/lib/x86_64-linux-gnu");
        let cluster = Cluster { library: format!("{0}:{0}/slurm-wlm", library.display()) };
        let first = 20_000 + std::process::id() % 100 + u32::from(chance()? % 20_000);
        fs::write(at("etc/slurm.conf"), slurm_conf(&library, (first, first + 1)))?;
        fs::write(at("etc/gres.conf"), gres_conf())?;
        for name in ["prolog", "epilog", "health"] {
            cluster.program(name, &script(name, &cluster.library))?;
        }
        cluster.program("stay", STAY)?;
        for (name, owner) in [(SETUID, STRANGER), (SETUID_ROOT, 0)] {
            let program = at("bin").join(name);
            fs::copy("/bin/sleep", &program)?;
            std::os::unix::fs::chown(&program, Some(owner), None)?;
            fs::set_permissions(&program, PermissionsExt::from_mode(0o4755))?;
        }
        let order = ORDER.map(|minor| minor.to_string()).join(" ");
        let stranger = STRANGER.to_string();
        let job = JOB.replace("ORDER", &order).replace("STRANGER", &stranger);
        cluster.program("job", &job)?;
        cluster.start_daemons()?;
        Ok(cluster)
    }

    fn program(&self, name: &str, text: &str) -> io::Result<()> {
        let path = at("bin").join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755))
    }

    fn start_daemons(&self) -> io::Result<()> {
        let mut key = [0; 1024];
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        fs::write(at("munge/key"), key)?;
        fs::set_permissions(at("munge/key"), PermissionsExt::from_mode(0o400))?;
        fs::set_permissions(at("munge"), PermissionsExt::from_mode(0o711))?;
        let option = |name: &str, file: &str| format!("--{name}={DIR}/munge/{file}");
        output_of(self.command("sbin/munged").arg("--force").args([
            option("key-file", "key"),
            option("socket", "socket"),
            option("pid-file", "pid"),
            option("log-file", "log"),
            option("seed-file", "seed"),
        ]))?;
        output_of(&mut self.command("sbin/slurmctld"))?;
        let step = at("usr/sbin/slurmstepd");
        output_of(self.command("sbin/slurmd").args(["-N", NODE, "-d"]).arg(step))?;
        self.wait_for("the node is idle", || {
            Ok(self.ask("bin/sinfo", &["-h", "-N", "-o", "%t"])?.trim() == "idle")
        })
    }

    /// Returns a program of the cluster with its environment.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(at("usr").join(program));
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LD_LIBRARY_PATH", &self.library)
            .env("SLURM_CONF", at("etc/slurm.conf"))
            .env("SLURMD_NODENAME", NODE)
            .current_dir("/");
        command
    }

    /// Runs a program of the cluster and returns its output.
    pub(super) fn ask(&self, program: &str, arguments: &[&str]) -> io::Result<String> {
        output_of(self.command(program).args(arguments))
    }

    /// Submits a job with these resources and this kind of leftover; returns its number.
    pub(super) fn submit(
        &self,
        (user, gres, kind): (u32, &str, &str),
        seconds: u32,
    ) -> io::Result<String> {
        let output = output_of(self.command("bin/sbatch").args([
            format!("--uid={user}"),
            format!("--gid={user}"),
            format!("--gres={gres}"),
            format!("--export=SECONDS_OF_WORK={seconds}"),
            format!("--job-name={NAME}"),
            "--chdir=/".to_owned(),
            "--output=/dev/null".to_owned(),
            format!("{DIR}/bin/job"),
            kind.to_owned(),
        ]))?;
        let number = output.split_whitespace().last().unwrap_or_default();
        Ok(number.to_owned())
    }

    /// Returns the state of the node and the reason for its drain, as printed by Slurm.
    pub(super) fn node(&self) -> io::Result<String> {
        let line = self.ask("bin/scontrol", &["-o", "show", "node", NODE])?;
        let state = line.split_whitespace().find_map(|word| word.strip_prefix("State="));
        let state = state.map(|state| format!("State={}", settled(state)));
        let reason = line.split_once("Reason=").map_or("", |(_, reason)| reason.trim());
        let reason = reason.split(" [").next().unwrap_or_default();
        Ok(format!("{} {reason}", state.unwrap_or_default()).trim().to_owned())
    }

    /// Runs the health check as slurmd does, and returns its exit code.
    pub(super) fn health(&self) -> io::Result<Option<i32>> {
        let status = Command::new(at("bin/health"))
            .env_clear()
            .env("SLURMD_NODENAME", NODE)
            .env("SLURM_CONF", at("etc/slurm.conf"))
            .env("SLURM_JOB_ID", "none")
            .status()?;
        Ok(status.code())
    }

    /// Waits for a condition, for at most two minutes.
    pub(super) fn wait_for(
        &self,
        what: &str,
        mut is_so: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<()> {
        for _ in 0..1200 {
            if is_so()? {
                return Ok(());
            }
            pause();
        }
        let log = fs::read_to_string(at("slurmd.log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(20).collect();
        Err(Error::other(format!("timed out after two minutes waiting until {what}: {last:#?}")))
    }
}

/// Returns a path in the cluster's directory.
pub(super) fn at(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

#[expect(clippy::disallowed_methods, reason = "it waits for real daemons")]
pub(super) fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}

/// Returns a random number.
pub(super) fn chance() -> io::Result<u16> {
    let mut bytes = [0; 2];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

/// Adds the users of the jobs, for this cluster only.
fn add_users() -> io::Result<()> {
    for file in ["passwd", "group"] {
        let path = Path::new("/etc").join(file);
        let mut text = fs::read_to_string(&path)?;
        for (name, id) in USERS {
            text += &match file {
                "passwd" => format!("{name}:x:{id}:{id}::/:/bin/sh\n"),
                _ => format!("{name}:x:{id}:\n"),
            };
        }
        let own = at("etc").join(file);
        fs::write(&own, text)?;
        output_of(Command::new("mount").arg("--bind").args([own, path]))?;
    }
    Ok(())
}

/// Creates device files that any process can open: unused consoles.
fn make_devices() -> io::Result<()> {
    let names = ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidia-uvm", "nvidiactl"];
    for (name, minor) in names.iter().zip(40_u32..) {
        let path = at("dev").join(name);
        let minor = minor.to_string();
        output_of(Command::new("mknod").arg(&path).args(["c", "4", &minor]))?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o666))?;
    }
    Ok(())
}

/// The node flags that indicate problems, or that an administrator sets. Slurm sets and clears all
/// other flags: the scheduler sets `PLANNED`, the end of a job `COMPLETING`, and a node that was
/// resumed is `NOT_RESPONDING` until the next ping.
const TROUBLE: [&str; 12] = [
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "ERROR",
    "FAIL",
    "FAILING",
    "INVALID_REG",
    "MAINTENANCE",
    "REBOOT_REQUESTED",
    "REBOOT_ISSUED",
    "UNDRAIN",
];

/// Returns the state of a node without the flags that Slurm sets by itself.
fn settled(state: &str) -> String {
    let mut words =
        state.split('+').map(|word| word.trim_end_matches(|end: char| !end.is_alphanumeric()));
    let base = match words.next().unwrap_or_default() {
        // A node with a planned job is idle.
        "PLANNED" | "RESERVED" | "COMPLETING" => "IDLE",
        base => base,
    };
    let flags = words.filter(|word| TROUBLE.contains(word));
    std::iter::once(base).chain(flags).collect::<Vec<_>>().join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_set_by_slurm_itself_are_omitted() {
        for (state, shown) in [
            ("IDLE", "IDLE"),
            ("IDLE+PLANNED", "IDLE"),
            ("PLANNED", "IDLE"),
            ("IDLE+COMPLETING+PLANNED", "IDLE"),
            ("IDLE*+NOT_RESPONDING", "IDLE"),
            ("MIXED+RESERVED", "MIXED"),
            ("IDLE+DRAIN+PLANNED", "IDLE+DRAIN"),
            ("DOWN*+DRAIN+NOT_RESPONDING", "DOWN+DRAIN"),
            ("IDLE+FAIL", "IDLE+FAIL"),
            ("IDLE+INVALID_REG", "IDLE+INVALID_REG"),
            ("UNKNOWN", "UNKNOWN"),
        ] {
            assert_eq!(settled(state), shown, "{state}");
        }
    }
}
