//! The tables of `status --columns`.

use crate::fixture::*;
use crate::forms::assert_golden;
use gpu_core::*;
use gpu_reaper::diagnose;
use gpu_report::Columns;
use gpu_report::View;
use gpu_steward::DeviceLeases;
use std::time::Duration;

const ALL: &str = "name,temp,power,power-limit,util,memory,fan,pstate,sm-clock,memory-clock,\
                   memory-util,encoder,decoder,bus-id,persistence,display,ecc,compute-mode,user,\
                   type,gpu-memory,gpu-util,mig,age,cpu,host-memory,job,command";

fn tables(now: &Snapshot, before: Option<&Snapshot>, columns: &str, room: usize) -> String {
    let columns = Columns::parse(columns).unwrap();
    let diagnosis = diagnose(std::slice::from_ref(now));
    let mut view = View::of(now, now, &diagnosis, DeviceLeases::none(), &|uid| uid.to_string());
    (view.columns, view.before) = (Some(&columns), before);
    let lines = view.rows(room);
    assert!(lines.iter().all(|line| line.width() <= room));
    lines.iter().map(|line| format!("{}\n", line.text())).collect()
}

/// A process in a container, one of a service, and one in a Slurm job, in MIG instances.
fn workplaces() -> Snapshot {
    let mut snapshot = snapshot();
    let workload = |kind, id: &str| {
        Some(Box::new(Workload { kind, id: id.to_owned(), cgroup: "/a".to_owned() }))
    };
    let id = "0123456789abcdef0123456789abcdef";
    for (pid, workload, cgroup) in [
        (100, workload(WorkloadKind::Container, id), "/a"),
        (200, workload(WorkloadKind::SlurmJob, "4711"), "/a"),
        (700, None, "/system.slice/display.service"),
    ] {
        let process = snapshot.processes.get_mut(&Pid(pid)).unwrap().info_mut().unwrap();
        (process.workload, process.cgroup) = (workload, Ok(cgroup.to_owned()));
    }
    let listed = snapshot.devices[0].processes.as_mut().unwrap();
    (listed[0].gpu_instance, listed[0].compute_instance) = (Some(3), Some(1));
    snapshot
}

#[test]
fn tables_have_every_column_and_are_split_to_fit() {
    let snapshot = workplaces();
    let text = tables(&snapshot, None, ALL, usize::MAX) + "\n" + &tables(&snapshot, None, ALL, 60);
    assert_golden("columns.txt", &text);
    assert_eq!(tables(&snapshot, None, " pstate,, ", 80).lines().count(), 4);
}

#[test]
fn pod_with_a_name_is_shown_by_it() {
    let mut snapshot = workplaces();
    let process = snapshot.processes.get_mut(&Pid(100)).unwrap().info_mut().unwrap();
    process.pod = Some(Box::new(gpu_core::PodName {
        namespace: "lab".to_owned(),
        name: "train-0".to_owned(),
        container: Some("main".to_owned()),
        evidence: gpu_core::PodEvidence::Uid,
    }));
    let text = tables(&snapshot, None, "user,job", 80);
    assert!(text.contains("pod lab/train-0 (main)"), "{text}");
}

#[test]
fn groups_are_read_only_for_their_columns() {
    let groups = |columns| Columns::parse(columns).unwrap().groups();
    assert_eq!(groups("name,temp,util,cpu,host-memory,job"), Groups::NONE);
    let both: Groups = [Group::Thermal, Group::Clocks].into_iter().collect();
    assert_eq!(groups("fan,sm-clock,memory-clock"), both);
}

#[test]
fn cpu_is_since_start_or_previous_snapshot() {
    let cpu = |now: &Snapshot, before| {
        let table = tables(now, before, "cpu", 80);
        let row = table.lines().find(|line| line.contains(" 100 ")).unwrap();
        row.split_whitespace().nth(2).unwrap().to_owned()
    };
    let before = snapshot();
    assert_eq!(cpu(&before, None), "0", "half a second in an hour");
    let mut now = before.clone();
    now.taken_at = Timestamp(now.taken_at.0 + 2_000);
    let process = now.processes.get_mut(&Pid(100)).unwrap();
    process.info_mut().unwrap().cpu_time = Ok(Duration::from_millis(3_500));
    assert_eq!(cpu(&now, Some(&before)), "150");
    // Another process with the same PID.
    let process = now.processes.get_mut(&Pid(100)).unwrap();
    process.info_mut().unwrap().key.start = Some(StartTime(7));
    assert_eq!(cpu(&now, Some(&before)), "0");
}

#[test]
fn columns_have_the_names_of_top_too() {
    for (name, in_top) in gpu_report::COLUMN_ALIASES {
        let names = [name, in_top].map(|name| format!("{:?}", Columns::parse(name).unwrap()));
        assert_eq!(names[0], names[1]);
    }
}

#[test]
fn unknown_column_is_an_error_with_all_names() {
    for (columns, error) in [("fan,speed", "there is no column 'speed'; "), (", ", "no column is")]
    {
        let error_text = Columns::parse(columns).unwrap_err();
        assert!(error_text.starts_with(error), "{error_text}");
        assert!(ALL.split(',').all(|name| error_text.contains(name)), "{error_text}");
    }
}
