//! The test scenarios on the cluster, with their checks.

use super::cluster::{Cluster, DIR, STRANGER, USERS, at, chance, pause};
use super::files::ORDER;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The leftovers of jobs; the unmarked ones leave no trace of their job, so such a job has a whole
/// device.
const MARKED: [&str; 9] = [
    "setsid",
    "double-fork",
    "loader",
    "stopped",
    "ignoring-term",
    "respawning",
    "without-device",
    SETUID,
    SETUID_ROOT,
];
const UNMARKED: [&str; 3] = ["without-mark", CONTAINER, FORGED];
/// Programs that run with the rights of another user or of root.
pub(super) const SETUID: &str = "setuid";
pub(super) const SETUID_ROOT: &str = "setuid-root";
/// The leftover of a job's container.
const CONTAINER: &str = "container";
/// The same, in a cgroup that a user has named after another job.
const FORGED: &str = "forged-cgroup";
/// The directories of such a cgroup below the freezer.
const FORGED_DEPTH: usize = 4;
const KINDS: usize = MARKED.len() + UNMARKED.len();

/// The stand-in for a device is a console, which must not become the controlling terminal of a
/// process that opens it.
const NO_TERMINAL: i32 = nix::libc::O_NOCTTY;

/// Runs the scenarios, prints each result, and returns whether all passed.
pub(super) fn run(tree: &Path, gpuws: &Path, jobs: usize) -> io::Result<bool> {
    let cluster = Cluster::start(tree, gpuws)?;
    say(&format!("slurmctld, slurmd and munged run; the node is {}", cluster.node()?));
    let mut well = true;
    let mut check = |problems: Vec<String>| {
        well &= problems.is_empty();
        problems.iter().for_each(|problem| say(&format!("PROBLEM: {problem}")));
    };
    check(many_jobs(&cluster, jobs)?);
    check(stuck_holder(&cluster)?);
    check(daemon_with_device(&cluster)?);
    check(state_of_others(&cluster)?);
    Ok(well)
}

/// Many jobs, several at once, each with a leftover.
fn many_jobs(cluster: &Cluster, jobs: usize) -> io::Result<Vec<String>> {
    let mut bystanders = Bystanders::start()?;
    let mut containers: Vec<Child> = Vec::new();
    let forged = forged_cgroup()?;
    let mut submitted = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    let mut wants_container = BTreeMap::new();
    for number in 0..jobs {
        let user = USERS[usize::from(number % 4 == 3)].1;
        let (gres, kind) = match number % KINDS {
            index if index < MARKED.len() => {
                (["shard:1", "gpu:1"][(number / KINDS + index) % 2], MARKED[index])
            }
            index => ("gpu:1", UNMARKED[index - MARKED.len()]),
        };
        if kind != FORGED || forged.is_some() {
            kinds.insert(kind.to_owned());
        }
        let id = cluster.submit((user, gres, kind), 1 + number as u32 % 3)?;
        match kind {
            CONTAINER => drop(wants_container.insert(id.clone(), None)),
            FORGED => drop(wants_container.insert(id.clone(), forged.as_deref())),
            _ => {}
        }
        submitted.insert(id);
    }
    let mut most = 0;
    let ended = |submitted: &BTreeSet<String>| {
        let ended = exit_codes("epilogs");
        submitted.iter().filter(|id| ended.iter().any(|(other, _)| other == *id)).count()
    };
    let mut quiet = 0;
    let mut last = 0;
    while ended(&submitted) < submitted.len() && quiet < 1200 {
        for (id, cgroup) in wants_container.clone() {
            if let Ok(device) = fs::read_to_string(at("running").join(&id)) {
                containers.push(container(&id, device.trim().as_ref(), cgroup)?);
                wants_container.remove(&id);
            }
        }
        let running = cluster.ask("bin/squeue", &["-h", "-t", "R", "-o", "%U"])?;
        for (_, user) in USERS {
            let user = user.to_string();
            most = most.max(running.lines().filter(|line| line.trim() == user).count());
        }
        let now = ended(&submitted);
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        for child in &mut containers {
            let _ = child.try_wait();
        }
        pause();
    }
    let mut problems: Vec<String> =
        fs::read_to_string(at("violations"))?.lines().map(str::to_owned).collect();
    problems.extend(bystanders.ended());
    let (epilogs, prologs) = (exit_codes("epilogs"), exit_codes("prologs"));
    let failed = epilogs.iter().chain(&prologs).filter(|(_, code)| code != "0");
    problems.extend(failed.map(|(id, code)| {
        let log = fs::read_to_string(at("log").join(format!("epilog.{id}"))).unwrap_or_default();
        format!("the script of job {id} exited with {code}: {log}")
    }));
    let missing = submitted.len() - ended(&submitted);
    if missing > 0 {
        let queue = cluster.ask("bin/squeue", &["-h"])?;
        let first: Vec<&str> = queue.lines().take(5).collect();
        problems.push(format!("{missing} jobs did not end, such as {first:#?}"));
    }
    if !wants_container.is_empty() {
        problems.push(format!("jobs without their container: {wants_container:?}"));
    }
    problems.extend(holders(&bystanders)?);
    let node = cluster.node()?;
    if node != "State=IDLE" {
        problems.push(format!("the node is {node}"));
    }
    let lists = fs::read_dir(at("left"))?;
    let lists = lists.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
    let left: Vec<String> =
        lists.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let seen: BTreeSet<String> =
        left.iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
    let missing = kinds.difference(&seen);
    problems.extend(missing.map(|kind| format!("no job left a process of kind {kind}")));
    // With only a few jobs, the first may end before the last is submitted.
    if most < 2 && jobs >= KINDS {
        problems.push("no user had two jobs on the node at once".to_owned());
    }
    say(&format!(
        "{} jobs, at most {most} of one user at once, left {} processes of {} kinds behind; \
         {} bystanders; {} problems",
        epilogs.len(),
        left.len(),
        kinds.intersection(&seen).count(),
        bystanders.0.len(),
        problems.len()
    ));
    bystanders.end();
    for child in &mut containers {
        let _ = child.kill();
        let _ = child.wait();
    }
    // The remaining directories are empty.
    for dir in forged.iter().flat_map(|dir| dir.ancestors().take(FORGED_DEPTH)) {
        let _ = fs::remove_dir(dir);
    }
    Ok(problems)
}

/// Creates a cgroup with the name of a job, as a user does below their own service manager.
fn forged_cgroup() -> io::Result<Option<PathBuf>> {
    let Some(freezer) = freezer() else {
        say("skipped: cgroup named like a job (no freezer of version 1 here)");
        return Ok(None);
    };
    let name = format!("gpuws-slurm-{}", chance()?);
    let below = format!("user@{}.service/own_slurmstepd.scope/job_999999", USERS[0].1);
    let dir = freezer.join(name).join(below);
    fs::create_dir_all(&dir)?;
    Ok(Some(dir))
}

/// Returns the version 1 freezer; `None` if it is missing.
fn freezer() -> Option<&'static Path> {
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    freezer.join("cgroup.procs").exists().then_some(freezer)
}

/// A holder that survives every signal drains the node, with the holder in the reason, and the
/// health check resumes the node.
fn stuck_holder(cluster: &Cluster) -> io::Result<Vec<String>> {
    let Some(freezer) = freezer() else {
        say("skipped: holder that survives every signal (no freezer of version 1 here)");
        return Ok(Vec::new());
    };
    let frozen = freezer.join(format!("gpuws-slurm-{}", chance()?));
    fs::create_dir(&frozen)?;
    let problems = freeze_and_end(cluster, &frozen);
    let _ = fs::write(frozen.join("freezer.state"), "THAWED");
    cluster.wait_for("the frozen group is empty", || {
        Ok(fs::read_to_string(frozen.join("cgroup.procs"))?.is_empty())
    })?;
    fs::remove_dir(&frozen)?;
    problems
}

fn freeze_and_end(cluster: &Cluster, frozen: &Path) -> io::Result<Vec<String>> {
    let id = cluster.submit((USERS[0].1, "gpu:1", "setsid"), 3)?;
    let list = at("left").join(&id);
    let kinds = |text: &str| text.lines().count() >= 2;
    cluster.wait_for("the job runs", || {
        Ok(at("running").join(&id).exists() && fs::read_to_string(&list).is_ok_and(|t| kinds(&t)))
    })?;
    let text = fs::read_to_string(&list)?;
    let stuck = text.lines().find_map(|line| line.strip_prefix("setsid ")).unwrap_or_default();
    let stuck = stuck.split(' ').next().unwrap_or_default().to_owned();
    fs::write(frozen.join("cgroup.procs"), &stuck)?;
    fs::write(frozen.join("freezer.state"), "FROZEN")?;
    let device = fs::read_to_string(at("running").join(&id))?;
    let minor = device.trim().trim_start_matches(&format!("{DIR}/dev/nvidia")).to_owned();
    cluster.wait_for("the Epilog ended", || {
        Ok(exit_codes("epilogs").iter().any(|(other, _)| *other == id))
    })?;
    let expected = format!("State=IDLE+DRAIN gpuws: GPU {minor} held by {stuck}");
    let mut problems = Vec::new();
    let settles = cluster.wait_for("the node is drained", || Ok(cluster.node()? == expected));
    if settles.is_err() {
        problems.push(format!("the node is {}, not {expected}", cluster.node()?));
    }
    say(&format!("holder that survives SIGKILL: the node is {}", cluster.node()?));
    // The health check keeps the node drained while the holder exists.
    cluster.health()?;
    if cluster.node()? != expected {
        problems.push(format!("the health check changed the node to {}", cluster.node()?));
    }
    let violations = fs::read_to_string(at("violations"))?;
    let others: Vec<&str> =
        violations.lines().filter(|line| !line.contains(&format!(" {stuck} of job"))).collect();
    problems.extend(others.into_iter().map(str::to_owned));
    fs::write(frozen.join("freezer.state"), "THAWED")?;
    cluster.wait_for("the holder ended", || Ok(!Path::new("/proc").join(&stuck).exists()))?;
    cluster.health()?;
    if cluster.node()? != "State=IDLE" {
        problems.push(format!("after the health check the node is {}", cluster.node()?));
    }
    say(&format!("the holder has ended, and after a health check the node is {}", cluster.node()?));
    Ok(problems)
}

/// A system daemon that received a device from a user drains the node, with the daemon in the
/// reason, and survives.
fn daemon_with_device(cluster: &Cluster) -> io::Result<Vec<String>> {
    const DAEMON: u32 = 101;
    let id = cluster.submit((USERS[0].1, "gpu:1", "setsid"), 3)?;
    cluster.wait_for("the job runs", || Ok(at("running").join(&id).exists()))?;
    let device = fs::read_to_string(at("running").join(&id))?;
    let device = device.trim();
    let daemon = holder(DAEMON, Path::new(device), "")?;
    let minor = device.trim_start_matches(&format!("{DIR}/dev/nvidia")).to_owned();
    let expected = format!("State=IDLE+DRAIN gpuws: GPU {minor} held by {}", daemon.id());
    let mut daemon = Bystanders(vec![("daemon", daemon)]);
    let settles = cluster.wait_for("the node is drained", || Ok(cluster.node()? == expected));
    let mut problems = daemon.ended();
    if settles.is_err() {
        problems.push(format!("the node is {}, not {expected}", cluster.node()?));
    }
    say(&format!("daemon holds the device of a job: the node is {}", cluster.node()?));
    daemon.end();
    cluster.health()?;
    if cluster.node()? != "State=IDLE" {
        problems.push(format!("after the health check the node is {}", cluster.node()?));
    }
    Ok(problems)
}

/// A state set by others is kept, whatever the health check finds.
fn state_of_others(cluster: &Cluster) -> io::Result<Vec<String>> {
    let update = |state: &str, reason: &str| {
        let words =
            ["NodeName=n1".to_owned(), format!("State={state}"), format!("Reason={reason}")];
        cluster.ask("bin/scontrol", &["update", &words[0], &words[1], &words[2]])
    };
    let mut problems = Vec::new();
    for (state, reason) in [("DRAIN", "gpuws: ask Carol"), ("FAIL", "ECC"), ("DOWN", "RMA")] {
        update(state, reason)?;
        let before = cluster.node()?;
        let mut holder = Bystanders(vec![("holder", holder(USERS[0].1, &at("dev/nvidia1"), "")?)]);
        let during = (cluster.health()?, cluster.node()?);
        holder.end();
        let after = (cluster.health()?, cluster.node()?);
        if during != (Some(1), before.clone()) || after != (Some(0), before.clone()) {
            problems.push(format!("the node was {before}: {during:?}, then {after:?}"));
        }
        say(&format!("after two health checks the node is {}, before {before}", after.1));
        cluster.ask("bin/scontrol", &["update", "NodeName=n1", "State=RESUME"])?;
        cluster.wait_for("the node is resumed", || Ok(cluster.node()? == "State=IDLE"))?;
    }
    Ok(problems)
}

/// Processes that are not leftovers of a job.
struct Bystanders(Vec<(&'static str, Child)>);

impl Bystanders {
    fn start() -> io::Result<Self> {
        let [(_, alice), (_, bob)] = USERS;
        let nothing = Path::new("/dev/null");
        let mut all = vec![
            ("daemon of alice", holder(alice, nothing, "")?),
            ("process of bob with the ID of alice's job", holder(bob, nothing, "1")?),
            ("process of alice with an unused job ID", holder(alice, nothing, "999999")?),
        ];
        for minor in ORDER {
            let device = open(&at("dev").join(format!("nvidia{minor}")))?;
            all.push(("monitor", sleeper(0, "", device, open(&at("dev/nvidiactl"))?)?));
        }
        Ok(Bystanders(all))
    }

    fn ended(&mut self) -> Vec<String> {
        let ended = self.0.iter_mut().filter_map(|(name, child)| {
            let status = child.try_wait().ok()??;
            Some(format!("{name} was killed: {status}"))
        });
        ended.collect()
    }

    fn end(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the leftover of a job's container in this cgroup: not a descendant of the job, of another
/// user, and without the job's environment.
fn container(id: &str, device: &Path, cgroup: Option<&Path>) -> io::Result<Child> {
    let child = holder(STRANGER, device, "")?;
    if let Some(cgroup) = cgroup {
        fs::write(cgroup.join("cgroup.procs"), child.id().to_string())?;
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    let start = stat.split(' ').nth(21).unwrap_or_default().to_owned();
    let mut list = File::options().append(true).open(at("left").join(id))?;
    let kind = if cgroup.is_some() { FORGED } else { CONTAINER };
    writeln!(list, "{kind} {} {start}", child.id())?;
    Ok(child)
}

/// Starts a process that uses device memory.
fn holder(user: u32, device: &Path, job: &str) -> io::Result<Child> {
    sleeper(user, job, open(device)?, open(&at("dev/nvidia-uvm"))?)
}

fn sleeper(user: u32, job: &str, first: File, second: File) -> io::Result<Child> {
    let mut command = Command::new("/bin/sleep");
    command.arg("1000").env_clear().current_dir("/").uid(user).gid(user).process_group(0);
    if !job.is_empty() {
        command.env("SLURM_JOB_ID", job);
    }
    command.stdin(first).stdout(second).stderr(Stdio::null()).spawn()
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).custom_flags(NO_TERMINAL).open(path)
}

/// Returns the processes that hold a device but should not.
fn holders(bystanders: &Bystanders) -> io::Result<Vec<String>> {
    let known: Vec<String> = bystanders.0.iter().map(|(_, child)| child.id().to_string()).collect();
    let devices: BTreeSet<u64> = ORDER
        .iter()
        .map(|minor| Ok(fs::metadata(at("dev").join(format!("nvidia{minor}")))?.rdev()))
        .collect::<io::Result<_>>()?;
    let mut found = Vec::new();
    for process in fs::read_dir("/proc")? {
        let process = process?;
        let pid = process.file_name().to_string_lossy().into_owned();
        let files: Vec<PathBuf> = fs::read_dir(process.path().join("fd"))
            .map(|files| files.filter_map(|file| Some(file.ok()?.path())).collect())
            .unwrap_or_default();
        let holds =
            |file: &PathBuf| fs::metadata(file).is_ok_and(|found| devices.contains(&found.rdev()));
        if !known.contains(&pid) && files.iter().any(holds) {
            found.push(format!("process {pid} still holds a device"));
        }
    }
    Ok(found)
}

/// Returns the jobs for which a script has exited, with its exit codes.
fn exit_codes(name: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(at(name)).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(id, code)| (id.to_owned(), code.to_owned())).collect()
}

fn say(line: &str) {
    // The output may be closed.
    let _ = writeln!(io::stdout(), "slurm: {line}");
}
