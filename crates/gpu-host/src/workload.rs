//! Containers, pods and jobs, from cgroup paths.
//!
//! Every runtime puts the name of its workload into the cgroup path, each in its own form. The
//! result is a scope for signals, so a cgroup that can contain more than the one container, pod or
//! job does not count: no user slice, no login session, no cgroup of a runtime.

use gpu_core::{Absent, Reading, Workload, WorkloadKind};
use procfs::ProcessCGroup;

/// Returns the cgroup path of a process and the workload that it names.
///
/// The version 2 path comes first, then `memory`, `pids` and the other hierarchies of version 1. On
/// hosts with both versions a runtime may use either, so the first path that names a workload takes
/// precedence over those that name none.
pub(crate) fn find_workload(cgroups: &[ProcessCGroup]) -> (Reading<String>, Option<Workload>) {
    let rank = |group: &&ProcessCGroup| {
        let controls = |name: &str| group.controllers.iter().any(|controller| controller == name);
        match group.hierarchy {
            0 => 0,
            _ if controls("memory") => 1,
            _ if controls("pids") => 2,
            _ => 3,
        }
    };
    let mut groups: Vec<_> = cgroups.iter().collect();
    groups.sort_by_key(rank);
    for group in &groups {
        if let Some(workload) = workload(&group.pathname) {
            return (Ok(group.pathname.clone()), Some(workload));
        }
    }
    let first = groups.iter().find(|group| group.pathname != "/").or(groups.first());
    (first.map(|group| group.pathname.clone()).ok_or(Absent::NotFound), None)
}

/// Returns the container, pod or job that a cgroup path names.
///
/// The innermost one counts, but a named cgroup inside a pod or a job is part of that, because its
/// programs may create cgroups of any name. Only the jobs of a Slurm that runs in a pod count
/// inside it.
pub(crate) fn workload(path: &str) -> Option<Workload> {
    let mut found: Option<Workload> = None;
    let mut inside = Inside::default();
    let mut end = 0;
    for part in path.split('/') {
        end += part.len();
        if let Some((kind, id)) = inside.name(part) {
            let is_part = match found.as_ref().map(|outer| outer.kind) {
                None | Some(WorkloadKind::Container) => false,
                Some(WorkloadKind::Pod) => kind != WorkloadKind::SlurmJob,
                Some(WorkloadKind::SlurmJob) => true,
            };
            if !is_part {
                found = Some(Workload { kind, id, cgroup: path[..end].to_owned() });
            }
        }
        inside.enter(part);
        end += 1;
    }
    found
}

/// The information from the parent cgroups.
#[derive(Default)]
struct Inside<'a> {
    kubernetes: bool,
    slurm: bool,
    parent: &'a str,
}

impl<'a> Inside<'a> {
    fn enter(&mut self, part: &'a str) {
        self.kubernetes |= part.contains("kubepods");
        // Version 1: `slurm[_NODE]/uid_N/job_N`. Version 2: `[NODE_]slurmstepd.scope/job_N`.
        let version_1 = (self.parent == "slurm" || self.parent.starts_with("slurm_"))
            && part.strip_prefix("uid_").is_some_and(is_number);
        self.slurm = version_1 || part.ends_with("slurmstepd.scope");
        self.parent = part;
    }

    fn name(&self, part: &str) -> Option<(WorkloadKind, String)> {
        if self.slurm {
            let job = part.strip_prefix("job_").filter(|job| is_number(job));
            let job = job.or_else(|| Some(part).filter(|part| self.is_sluid(part)))?;
            return Some((WorkloadKind::SlurmJob, job.to_owned()));
        }
        if let Some(pod) = self.pod(part) {
            return Some((WorkloadKind::Pod, pod));
        }
        self.container(part).map(|id| (WorkloadKind::Container, id.to_owned()))
    }

    /// Returns whether a part is the identifier that names a job since Slurm 26.05: `s` and 13 digits
    /// of Crockford's base 32, as in `SLURM_JOB_SLUID`. Only version 2 has it.
    fn is_sluid(&self, part: &str) -> bool {
        let is_digit = |byte: u8| {
            byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte))
        };
        self.parent.ends_with("slurmstepd.scope")
            && part
                .strip_prefix('s')
                .is_some_and(|digits| digits.len() == 13 && digits.bytes().all(is_digit))
    }

    /// Parses `podUID` (cgroupfs driver) or `kubepods-burstable-podUID.slice` (systemd driver,
    /// where the UID has `_` for `-`).
    fn pod(&self, part: &str) -> Option<String> {
        let uid = match part.strip_suffix(".slice") {
            Some(slice) if slice.contains("kubepods") => slice.rsplit_once("-pod")?.1,
            None if self.kubernetes => part.strip_prefix("pod")?,
            _ => return None,
        };
        // A pod of the API server has a UUID, a static pod a hash.
        let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
        let dashes = uid.bytes().filter(|byte| matches!(byte, b'-' | b'_')).count();
        let is_uid = digits == 32 && matches!(dashes, 0 | 4) && digits + dashes == uid.len();
        is_uid.then(|| uid.replace('_', "-"))
    }

    /// Parses `ID`, `RUNTIME-ID[.scope]`, `SLICE:RUNTIME:ID` and the cgroups of LXC.
    ///
    /// Docker, containerd, CRI-O and Podman all name a container by 64 hexadecimal digits. The
    /// monitors (`conmon`) of the last two belong to the runtime.
    fn container<'p>(&self, part: &'p str) -> Option<&'p str> {
        if let Some(name) = part.strip_prefix("lxc.payload.") {
            return Some(name).filter(|name| !name.is_empty());
        }
        if matches!(self.parent, "lxc" | "lxc.payload") && !part.is_empty() {
            return Some(part);
        }
        let scope = part.strip_suffix(".scope").unwrap_or(part);
        let id = scope.rsplit([':', '-']).next()?;
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let runtime = scope.strip_suffix(id)?;
        (is_id && !runtime.ends_with("conmon-")).then_some(id)
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use WorkloadKind::{Container, Pod, SlurmJob};

    const A: &str = "4c01db0b339c4c01db0b339c4c01db0b339c4c01db0b339c4c01db0b339c4c01";
    const B: &str = "e90e34656806e90e34656806e90e34656806e90e34656806e90e34656806e90e";
    const UID: &str = "2f44e1c1-8a5b-4c0e-9d0e-5f3b6a7c8d9e";

    /// Expands `{A}` and `{B}` (container IDs), `{U}` (a pod's UID) and `{u}` (the same in
    /// systemd's form).
    fn written_out(path: &str) -> String {
        let uid = UID.replace('-', "_");
        path.replace("{A}", A).replace("{B}", B).replace("{U}", UID).replace("{u}", &uid)
    }

    #[test]
    fn every_container_runtime_is_recognised() {
        // The workload's own cgroup ends at '|'.
        for (what, path, kind, id) in [
            ("docker, cgroupfs", "/docker/{A}|", Container, A),
            ("docker, systemd", "/system.slice/docker-{A}.scope|", Container, A),
            ("docker, own parent", "/lab.slice/docker-{A}.scope|/init.scope", Container, A),
            ("docker in docker", "/docker/{A}/docker/{B}|", Container, B),
            ("containerd, ctr", "/default/{A}|", Container, A),
            ("nerdctl", "/user.slice/nerdctl-{A}.scope|", Container, A),
            ("podman, root", "/machine.slice/libpod-{A}.scope|/container", Container, A),
            (
                "podman, rootless",
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope|/x",
                Container,
                A,
            ),
            ("podman, cgroupfs", "/libpod_parent/libpod-{A}|", Container, A),
            ("ECS", "/ecs/0123456789/{A}|", Container, A),
            ("containerd by name", "/system.slice/x.slice:cri-containerd:{A}|", Container, A),
            ("lxc", "/lxc/web-1|/system.slice", Container, "web-1"),
            ("lxd", "/lxc.payload.gpu|/init.scope", Container, "gpu"),
            ("lxc 4", "/lxc.payload/gpu|", Container, "gpu"),
            ("kubernetes, cgroupfs", "/kubepods/burstable/pod{U}|/{A}", Pod, UID),
            ("kubernetes, guaranteed", "/kubepods/pod{U}|/{A}", Pod, UID),
            (
                "kubernetes, systemd",
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{u}.slice|/cri-containerd-{A}.scope",
                Pod,
                UID,
            ),
            (
                "kubernetes, CRI-O",
                "/kubepods.slice/kubepods-pod{u}.slice|/crio-{A}.scope/container",
                Pod,
                UID,
            ),
            (
                "kind",
                "/docker/{A}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{u}.slice|/cri-containerd-{B}.scope",
                Pod,
                UID,
            ),
            ("docker in a pod", "/kubepods/pod{U}|/{A}/docker/{B}", Pod, UID),
            (
                "static pod",
                "/kubepods/burstable/pod0123456789abcdef0123456789abcdef|/{A}",
                Pod,
                "0123456789abcdef0123456789abcdef",
            ),
            ("slurm, v1", "/slurm/uid_1000/job_4711|/step_0/task_0", SlurmJob, "4711"),
            ("slurm, v1, nodes", "/slurm_gpu01/uid_1000/job_4711|/step_batch", SlurmJob, "4711"),
            (
                "slurm, v2",
                "/system.slice/slurmstepd.scope/job_4711|/step_0/user/task_0",
                SlurmJob,
                "4711",
            ),
            (
                "slurm, v2, nodes",
                "/system.slice/gpu01_slurmstepd.scope/job_4711|/step_0",
                SlurmJob,
                "4711",
            ),
            (
                "slurm, v2, 26.05",
                "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00|/step_batch/user/task_0",
                SlurmJob,
                "s5K1KKYAYG5D00",
            ),
            (
                "slurm in a container",
                "/docker/{A}/system.slice/slurmstepd.scope/job_5|/step_0",
                SlurmJob,
                "5",
            ),
            ("slurm in a pod", "/kubepods/pod{U}/{A}/slurm/uid_1/job_7|/step_0", SlurmJob, "7"),
            // A program in a pod or job that may create cgroups cannot name another one.
            (
                "pod named in a pod",
                "/kubepods/pod{U}|/{A}/kubepods/pod0123456789abcdef0123456789abcdef/{B}",
                Pod,
                UID,
            ),
            ("pod named in a job", "/slurm/uid_1/job_6|/kubepods/pod{U}/{A}", SlurmJob, "6"),
            ("job named in a job", "/slurm/uid_1/job_6|/slurm/uid_2/job_7", SlurmJob, "6"),
            ("container in a slurm job", "/slurm/uid_1/job_6|/step_0/docker/{A}", SlurmJob, "6"),
        ] {
            let path = written_out(path);
            let (cgroup, _) = path.split_once('|').unwrap();
            let expected = Workload { kind, id: id.to_owned(), cgroup: cgroup.to_owned() };
            assert_eq!(workload(&path.replace('|', "")), Some(expected), "{what}");
        }
    }

    #[test]
    fn sessions_and_services_are_not_workloads() {
        for path in [
            "",
            "/",
            "/../..",
            "/init.scope",
            "/user.slice/user-1000.slice/session-3.scope",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope",
            "/system.slice/docker.service",
            "/system.slice/slurmd.service",
            "/system.slice/slurmstepd.scope/system",
            "/slurm/uid_1000",
            "/slurm/job_7",
            "/home/uid_1000/job_7",
            "/system.slice/slurmstepd.scope/job_x",
            "/system.slice/slurmstepd.scope/s5K1KKYAYG5D0",
            "/system.slice/slurmstepd.scope/sIK1KKYAYG5D00",
            "/system.slice/slurmd.service/s5K1KKYAYG5D00",
            "/slurm/uid_1000/s5K1KKYAYG5D00",
            "/kubepods.slice/kubepods-burstable.slice",
            "/kubepods/burstable",
            "/kubepods/podman",
            "/kubepods/pod0123456789abcdef",
            "/kubepods/pod{U}x",
            "/kubepods/pod{A}",
            "/kubepods/pod2f44e1c18-a5b-4c0e9d0e5f3b6a7c8d9e",
            "/lab.slice/lab-pod{u}.slice",
            "/lxc.payload.",
            "/docker/{A}0",
            "/docker/x{A}",
            "/slurm/uid_/job_7",
            "/slurm/uid_1/job_",
            "/slurmd/uid_1/job_7",
            "/lxc",
            "/lxc.monitor.gpu",
            "/docker/4c01db0b339c",
            "/machine.slice/libpod-conmon-{A}.scope",
            "/kubepods.slice/crio-conmon-{A}.scope",
            "/user.slice/pod{U}",
        ] {
            assert_eq!(workload(&written_out(path)), None, "{path}");
        }
    }

    #[test]
    fn named_cgroup_v1_path_takes_precedence_over_v2() {
        let group = |hierarchy, controllers: &[&str], pathname: &str| ProcessCGroup {
            hierarchy,
            controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
            pathname: pathname.to_owned(),
        };
        let slurmd = group(0, &[], "/system.slice/slurmd.service");
        let job = group(4, &["memory"], "/slurm/uid_1/job_2/step_0");
        let (path, found) = find_workload(&[job, slurmd.clone()]);
        assert_eq!(path.as_deref(), Ok("/slurm/uid_1/job_2/step_0"));
        assert_eq!(found.map(|workload| workload.id).as_deref(), Some("2"));

        let cpu = group(2, &["cpu"], "/cpu");
        let memory = group(3, &["memory"], "/memory");
        assert_eq!(
            find_workload(&[cpu.clone(), memory.clone(), slurmd.clone()]).0,
            Ok(slurmd.pathname)
        );
        let root = group(0, &[], "/");
        assert_eq!(find_workload(&[cpu, memory, root.clone()]).0.as_deref(), Ok("/memory"));
        assert_eq!(find_workload(&[root]).0.as_deref(), Ok("/"));
        assert_eq!(find_workload(&[]).0, Err(Absent::NotFound));
    }
}
