//! The owners and jobs that amounts are booked to.

use gpu_core::{ProcessInfo, WorkloadKind, clean};
use std::fmt;

/// The maximum length of a name in characters: names may be hostile.
const MAX_NAME_CHARS: usize = 64;

/// The user, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A user by name.
    User(String),
    /// A user without a name.
    Uid(u32),
    /// The driver lists a process with an unknown user: it has exited, or runs in a PID namespace
    /// that is not visible.
    Unknown,
    /// Memory of a device that is accounted for neither by a listed process nor by the driver.
    Unlisted,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::User(name) => f.write_str(name),
            Owner::Uid(uid) => write!(f, "uid {uid}"),
            Owner::Unknown => f.write_str("unknown user"),
            Owner::Unlisted => f.write_str("unlisted"),
        }
    }
}

/// The job of a process, or its command if it has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// A Slurm job by its number.
    SlurmJob(String),
    /// A Kubernetes pod by its namespace and name, or by its UID if they are unknown.
    Pod(String),
    /// A container by its ID.
    Container(String),
    /// A service of systemd.
    Service(String),
    /// A command: the program and, for an interpreter, its script.
    Command(String),
    /// Further jobs after [`Accounts`](crate::Accounts) has reached its limit.
    Others,
    /// The process is unknown.
    Unknown,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::SlurmJob(id) => write!(f, "Slurm job {id}"),
            Work::Pod(id) => write!(f, "pod {id}"),
            Work::Container(id) => write!(f, "container {id}"),
            Work::Service(unit) => f.write_str(unit),
            Work::Command(command) => f.write_str(command),
            Work::Others => f.write_str("other jobs"),
            Work::Unknown => f.write_str("unknown"),
        }
    }
}

impl Owner {
    pub(crate) fn of(info: Option<&ProcessInfo>) -> Self {
        let Some(info) = info else { return Owner::Unknown };
        match (&info.user, info.uid) {
            (Ok(name), _) => Owner::User(cut(name)),
            (Err(_), Ok(uid)) => Owner::Uid(uid),
            _ => Owner::Unknown,
        }
    }
}

impl Work {
    pub(crate) fn of(info: Option<&ProcessInfo>) -> Self {
        let Some(info) = info else { return Work::Unknown };
        if let Some(pod) = &info.pod {
            return Work::Pod(cut(&format!("{}/{}", pod.namespace, pod.name)));
        }
        if let Some(workload) = &info.workload {
            let id = cut(&workload.id);
            return match workload.kind {
                WorkloadKind::SlurmJob => Work::SlurmJob(id),
                WorkloadKind::Pod => Work::Pod(id),
                // The short form that container runtimes print.
                WorkloadKind::Container => Work::Container(id.chars().take(12).collect()),
            };
        }
        match info.service() {
            Some(unit) => Work::Service(cut(unit.name)),
            None => Work::Command(command(info)),
        }
    }

    /// Returns a command with this description.
    pub(crate) fn command(text: &str) -> Self {
        Work::Command(cut(text))
    }
}

/// Returns the program and the script that it runs: `python train.py`. Other arguments differ
/// between runs of the same job.
fn command(info: &ProcessInfo) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let Some([program, arguments @ ..]) = info.command_line.as_deref().ok() else {
        return cut(&info.name);
    };
    let program = base(program);
    let interprets = ["python", "bash", "sh", "julia", "Rscript", "perl", "ruby", "node"];
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_it = |name: &&str| program.strip_prefix(*name).is_some_and(is_version);
    if !interprets.iter().any(is_it) {
        return cut(if program.is_empty() { &info.name } else { &program });
    }
    let script = match arguments {
        [module, name, ..] if module == "-m" => Some(format!("-m {name}")),
        _ => match arguments.iter().find(|word| *word == "-c" || !word.starts_with('-')) {
            Some(word) if word != "-c" => Some(base(word)),
            _ => None,
        },
    };
    cut(&script.map_or(program.clone(), |script| format!("{program} {script}")))
}

fn cut(text: &str) -> String {
    clean(text).chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Pid, Workload};

    fn with(line: &[&str]) -> ProcessInfo {
        let mut info = ProcessInfo::from_name(Pid(7), "comm");
        info.command_line = Ok(line.iter().map(|word| (*word).to_owned()).collect());
        info
    }

    #[test]
    fn command_consists_of_program_and_script() {
        for (line, name) in [
            (&["python", "train.py", "--seed", "7"][..], "python train.py"),
            (&["/opt/conda/bin/python3.11", "-u", "/home/x/train.py"], "python3.11 train.py"),
            (&["python", "-m", "torch.distributed.run", "x.py"], "python -m torch.distributed.run"),
            (&["python", "-c", "import torch"], "python"),
            (&["python"], "python"),
            (&["/usr/bin/gmx", "mdrun"], "gmx"),
            (&[""], "comm"),
            (&[], "comm"),
            (&["pythonic", "a"], "pythonic"),
        ] {
            assert_eq!(Work::of(Some(&with(line))), Work::Command(name.into()), "{line:?}");
        }
        let hostile = with(&["python", &format!("a\u{1b}[2J{}", "x".repeat(500))]);
        let name = Work::of(Some(&hostile)).to_string();
        assert!(name.chars().count() <= MAX_NAME_CHARS && !name.contains('\u{1b}'), "{name}");
    }

    #[test]
    fn job_takes_precedence_over_command() {
        let mut info = with(&["python", "a.py"]);
        info.cgroup = Ok("/system.slice/vllm.service".to_owned());
        assert_eq!(Work::of(Some(&info)), Work::Service("vllm.service".into()));
        let id = "4c01db0b339c4c01db0b339c4c01db0b339c4c01db0b339c4c01db0b339c4c01".to_owned();
        for (kind, name) in [
            (WorkloadKind::Container, "container 4c01db0b339c".to_owned()),
            (WorkloadKind::SlurmJob, format!("Slurm job {id}")),
            (WorkloadKind::Pod, format!("pod {id}")),
        ] {
            info.workload = Some(Box::new(Workload { kind, id: id.clone(), cgroup: "/x".into() }));
            assert_eq!(Work::of(Some(&info)).to_string(), name);
        }
        let (namespace, name) = ("lab".to_owned(), "train-0".to_owned());
        let evidence = gpu_core::PodEvidence::Devices;
        let pod = gpu_core::PodName { namespace, name, container: None, evidence };
        info.pod = Some(Box::new(pod));
        assert_eq!(Work::of(Some(&info)).to_string(), "pod lab/train-0");
        assert_eq!(Work::of(None), Work::Unknown);
        assert_eq!(Owner::of(None), Owner::Unknown);
        info.uid = Ok(1_000);
        assert_eq!(Owner::of(Some(&info)).to_string(), "uid 1000");
    }
}
