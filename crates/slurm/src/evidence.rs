//! Which processes a job has left behind.

use crate::job::Job;
use gpu_core::{Executable, FIRST_USER, ProcessInfo, Uids, in_system_dir};
use gpu_reaper::{JobMark, Leftover, Membership};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The evidence about a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The process.
    pub process: ProcessInfo,
    /// Its UIDs, if it has a device of the job or the effective user of the job.
    pub uids: Option<Uids>,
    /// The device files of the job that it has open.
    pub files: BTreeSet<Arc<str>>,
    /// It uses device memory, so it is neither a monitor nor a daemon.
    pub uses_memory: bool,
    /// `SLURM_JOB_ID` in its environment, which its owner can forge.
    pub mark: Option<String>,
    /// The job that Slurm tracks it for.
    pub tracked_by: Option<String>,
}

/// When the devices are cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the job starts (Prolog).
    Before,
    /// After the job has ended (Epilog).
    After,
}

/// The conclusion from the evidence.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is left over from the job.
    Leftover(Box<Leftover>),
    /// It uses a device of the job, and no evidence shows its job. It keeps the device from the
    /// next job if no other job has it, and is left over unless it may be a daemon.
    Unclaimed,
    /// It belongs to another job or to Slurm, or is unrelated to the job.
    Spared,
}

/// Decides about a process before or after a job.
///
/// The kernel and Slurm take precedence: a process in the cgroup of another job, or tracked for
/// another job, is spared, whatever its environment contains.
pub fn verdict(suspect: &Suspect, job: &Job, phase: Phase) -> Verdict {
    let Suspect { process, uids, files, uses_memory, mark, tracked_by } = suspect;
    if is_slurms_own(suspect) || tracked_by.as_ref().is_some_and(|id| *id != job.id) {
        return Verdict::Spared;
    }
    let cgroup = process.slurm_job();
    if cgroup.is_some_and(|cgroup| !job.is_named(&cgroup.id)) {
        return Verdict::Spared;
    }
    let is_users = uids.is_some_and(|uids| uids.may_be_signalled_by(job.uid));
    let is_marked = is_users && mark.as_ref() == Some(&job.id);
    let is_tracked = tracked_by.is_some();
    let leftover = |membership, why: &str| {
        let (process, why) = (process.clone(), format!("{why} {}", job.id));
        Verdict::Leftover(Box::new(Leftover { process, membership, why }))
    };
    match (cgroup, phase) {
        // Before the job, these are its own first processes.
        (Some(_), Phase::Before) => Verdict::Spared,
        (None, Phase::Before) if is_marked || is_tracked => Verdict::Spared,
        // A monitor of root may inspect the cgroup of a job from inside it.
        (Some(cgroup), Phase::After) if is_users || !files.is_empty() => {
            leftover(Membership::Cgroup(cgroup.cgroup.clone()), "in the cgroup of the ended job")
        }
        (None, Phase::After) if is_tracked && !is_users && !files.is_empty() => leftover(
            Membership::Holds(files.iter().cloned().collect()),
            "holds a device and belongs to the ended job",
        ),
        (None, Phase::After)
            if is_users && (is_tracked || is_marked && may_end_unseen(suspect)) =>
        {
            let mark = JobMark { id: job.id.clone(), uid: job.uid };
            leftover(Membership::Job(mark), "left over from the ended job")
        }
        _ if *uses_memory && !files.is_empty() => Verdict::Unclaimed,
        _ => Verdict::Spared,
    }
}

/// Returns a process as left over if it uses devices that Slurm has given to no other job; `None`
/// if it may be a daemon.
pub(crate) fn unclaimed(suspect: &Suspect, files: Vec<Arc<str>>) -> Option<Leftover> {
    let process = suspect.process.clone();
    let why = "holds a device that no other job has".to_owned();
    let membership = Membership::Holds(files);
    (!may_be_daemon(&process)).then_some(Leftover { process, membership, why })
}

/// Returns whether a process may be a daemon: a system service, or a process of a system account
/// outside of containers. Holding a device does not show that it is left over: any user can pass
/// descriptors to a daemon that receives them, such as the message bus.
fn may_be_daemon(process: &ProcessInfo) -> bool {
    let is_ordinary = process.uid.is_ok_and(|uid| uid >= FIRST_USER);
    process.service().is_some_and(|unit| !unit.by_user)
        || !is_ordinary && process.workload.is_none()
}

/// Returns whether a marked process is ended even without a device of the job. A job of root may
/// have restarted a service, and a process with a terminal may be an interactive session (`salloc`
/// on this node).
fn may_end_unseen(suspect: &Suspect) -> bool {
    let unattended = suspect.process.uid != Ok(0) && suspect.process.has_terminal == Ok(false);
    unattended || !suspect.files.is_empty()
}

/// Returns whether a process is the daemon or a step of Slurm, by its executable: a user can start
/// a root-owned (setuid) program under any name, but cannot install one that root owns.
fn is_slurms_own(Suspect { process, uids, .. }: &Suspect) -> bool {
    let is_slurms = |program: &Executable| {
        let name = program.name();
        let name = name.strip_suffix("-wlm").unwrap_or(name); // Debian
        program.is_roots()
            && in_system_dir(&program.path)
            && matches!(name, "slurmd" | "slurmstepd")
    };
    // It drops its privileges for a moment.
    let is_roots = process.uid == Ok(0) || uids.is_some_and(|uids| uids.real == 0);
    is_roots && process.executable.as_deref().is_ok_and(is_slurms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Pid, StartTime, Workload, WorkloadKind};

    fn job() -> Job {
        let sluid = Some("s5K1KKYAYG5D00".to_owned());
        Job { id: "7".to_owned(), uid: 1000, sluid, positions: vec![0] }
    }

    fn device() -> BTreeSet<Arc<str>> {
        ["/dev/nvidia0".into()].into()
    }

    /// A process of user 1000 that holds and uses the job's device.
    fn suspect() -> Suspect {
        let mut process = ProcessInfo::from_name(Pid(4711), "python");
        process.key.start = Some(StartTime(1));
        process.has_terminal = Ok(false);
        let (uids, mark, tracked_by) = (None, None, None);
        let files = device();
        of_user(Suspect { process, uids, files, uses_memory: true, mark, tracked_by }, 1000)
    }

    fn of_user(suspect: Suspect, user: u32) -> Suspect {
        with_uids(suspect, [user; 3])
    }

    fn with_uids(mut suspect: Suspect, [real, effective, saved]: [u32; 3]) -> Suspect {
        suspect.process.uid = Ok(effective);
        suspect.uids = Some(Uids { real, effective, saved });
        suspect
    }

    fn in_cgroup(mut suspect: Suspect, id: &str) -> Suspect {
        let (kind, cgroup) = (WorkloadKind::SlurmJob, format!("/slurm/uid_1/job_{id}"));
        let workload = Workload { kind, id: id.to_owned(), cgroup };
        suspect.process.workload = Some(Box::new(workload));
        suspect
    }

    fn marked(mut suspect: Suspect, id: &str) -> Suspect {
        suspect.mark = Some(id.to_owned());
        suspect
    }

    fn after(suspect: &Suspect) -> &'static str {
        outcome(verdict(suspect, &job(), Phase::After))
    }

    fn outcome(verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Leftover(leftover) => match leftover.membership {
                Membership::Job(_) => "marked",
                Membership::Cgroup(_) => "in cgroup",
                _ => "other",
            },
            Verdict::Unclaimed => "unclaimed",
            Verdict::Spared => "spared",
        }
    }

    #[test]
    fn marked_process_and_member_of_the_cgroup_are_left_over() {
        assert_eq!(after(&marked(suspect(), "7")), "marked");
        assert_eq!(after(&in_cgroup(suspect(), "7")), "in cgroup");
        assert_eq!(after(&in_cgroup(suspect(), "s5K1KKYAYG5D00")), "in cgroup");
        assert_eq!(after(&suspect()), "unclaimed");
        let mut worker = marked(suspect(), "7");
        (worker.files, worker.uses_memory) = (BTreeSet::new(), false);
        assert_eq!(after(&worker), "marked", "a worker without the device");
    }

    #[test]
    fn process_of_another_job_is_spared_despite_its_environment() {
        let forged = marked(suspect(), "7");
        assert_eq!(after(&in_cgroup(forged.clone(), "8")), "spared");
        assert_eq!(after(&in_cgroup(forged.clone(), "s5K1KKYAYG5D01")), "spared");
        let tracked = Suspect { tracked_by: Some("8".to_owned()), ..forged.clone() };
        assert_eq!(after(&tracked), "spared");
        assert_eq!(after(&in_cgroup(tracked, "7")), "spared");
        let own = Suspect { tracked_by: Some("7".to_owned()), ..forged };
        assert_eq!(after(&own), "marked");
        let unmarked = Suspect { mark: None, ..own };
        assert_eq!(after(&unmarked), "marked", "Slurm tracks it for the ended job");
        let mut other = of_user(unmarked, 1001);
        assert_eq!(after(&other), "other", "a program of another user in the job");
        other.files = BTreeSet::new();
        assert_eq!(after(&other), "spared");
    }

    #[test]
    fn mark_of_another_user_or_another_job_is_no_evidence() {
        let mut other = of_user(marked(suspect(), "7"), 1001);
        assert_eq!(after(&other), "unclaimed");
        (other.process.uid, other.uids) = (Err(gpu_core::Absent::NotPermitted), None);
        assert_eq!(after(&other), "unclaimed");
        assert_eq!(after(&marked(suspect(), "70")), "unclaimed");
        assert_eq!(after(&marked(suspect(), "")), "unclaimed");
        let monitor = Suspect { uses_memory: false, ..marked(suspect(), "8") };
        assert_eq!(after(&monitor), "spared");
    }

    #[test]
    fn process_belongs_to_users_allowed_to_signal_it() {
        for (uids, expected, is_daemon) in [
            ([1000, 0, 0], "marked", true),
            ([1000, 1001, 1001], "marked", false),
            ([1, 1000, 1000], "marked", false),
            ([0, 1000, 0], "unclaimed", false),
            ([0, 0, 0], "unclaimed", true),
            ([1001, 0, 0], "unclaimed", true),
        ] {
            let program = with_uids(suspect(), uids);
            assert_eq!(after(&marked(program.clone(), "7")), expected, "{uids:?}");
            assert_eq!(after(&marked(program.clone(), "8")), "unclaimed", "{uids:?}");
            assert_eq!(unclaimed(&program, Vec::new()).is_none(), is_daemon, "{uids:?}");
        }
    }

    #[test]
    fn slurm_itself_services_and_terminals_are_spared() {
        let mut step = in_cgroup(suspect(), "7");
        step.process.name = "slurmstepd".to_owned();
        assert_eq!(after(&step), "in cgroup", "a user can choose this name");
        let mut step = of_user(step, 0);
        for (path, owner, expected) in [
            ("/usr/sbin/slurmstepd", 0, "spared"),
            ("/opt/slurm/sbin/slurmstepd-wlm", 0, "spared"),
            ("/usr/bin/su", 0, "in cgroup"),
            ("/usr/sbin/slurmstepd", 1000, "in cgroup"),
            ("/home/alice/slurmstepd", 0, "in cgroup"),
        ] {
            step.process.executable = Ok(Box::new(gpu_core::Executable {
                path: path.to_owned(),
                file: gpu_core::FileId::Inode { dev: 1, ino: 2 },
                owner,
                writable_by_others: false,
                seen_by_caller: Err(gpu_core::Absent::NotRecorded),
            }));
            assert_eq!(after(&step), expected, "{path} of {owner}");
            let lowered = with_uids(step.clone(), [0, 1000, 0]);
            assert_eq!(after(&lowered), expected, "{path} of {owner}");
        }
        let mut monitor = of_user(in_cgroup(suspect(), "7"), 0);
        monitor.files = BTreeSet::new();
        assert_eq!(after(&monitor), "spared");
        let mut shell = marked(suspect(), "7");
        shell.process.has_terminal = Ok(true);
        assert_eq!(after(&shell), "marked", "it holds the device");
        (shell.files, shell.uses_memory) = (BTreeSet::new(), false);
        assert_eq!(after(&shell), "spared");
        let mut service = of_user(marked(suspect(), "7"), 0);
        service.files = BTreeSet::new();
        let roots = Job { uid: 0, ..job() };
        assert_eq!(outcome(verdict(&service, &roots, Phase::After)), "spared");
        service.files = device();
        assert_eq!(outcome(verdict(&service, &roots, Phase::After)), "marked");
    }

    #[test]
    fn before_a_job_its_own_processes_are_spared() {
        let before = |suspect: &Suspect| outcome(verdict(suspect, &job(), Phase::Before));
        assert_eq!(before(&in_cgroup(suspect(), "7")), "spared");
        assert_eq!(before(&marked(suspect(), "7")), "spared");
        let tracked = Suspect { tracked_by: Some("7".to_owned()), ..suspect() };
        assert_eq!(before(&tracked), "spared");
        assert_eq!(before(&marked(suspect(), "6")), "unclaimed", "left over from an earlier job");
    }
}
