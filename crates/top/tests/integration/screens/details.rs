//! The box with the details of a row.

use super::{boxed, machine, shown};
use crate::fixture::{key, options, press};
use gpu_core::{DeviceId, Pid, Process};
use gpu_reaper::{Advice, Confidence, Evidence, Finding, FindingKind, Sign, Suspect};
use gpu_top::Frame;
use gpu_top::rows::{Row, RowKey};
use ratatui_crossterm::crossterm::event::KeyCode;
use snapbox::{assert_data_eq, str};
use std::time::Duration;

fn finding(kind: FindingKind, frame: &Frame, suspect: Option<usize>) -> Finding {
    let evidence =
        |text: &str| Evidence { sign: Sign::UnexplainedMemory, text: text.to_owned(), code: None };
    let suspects = suspect.into_iter().map(|row| Suspect {
        process: frame.rows[row].process().unwrap(),
        confidence: Confidence::High,
        evidence: vec![evidence(
            "it has computed nothing for nine hours, although it has all of the memory",
        )],
    });
    Finding {
        kind,
        confidence: Confidence::High,
        devices: vec![DeviceId::from_index(if suspect.is_some() { 0 } else { 1 })],
        memory: None,
        suspects: suspects.collect(),
        evidence: vec![evidence("2.0 GiB are in use that no listed process accounts for")],
        advice: vec![Advice::ReapDevice(1)],
    }
}

/// Returns the box with the details of a row of these snapshots, which `change` has changed.
fn details(row: usize, size: (u16, u16), change: impl Fn(&mut Frame)) -> String {
    let frames = (1..6).map(|second| {
        let mut frame = machine(second * 1000);
        change(&mut frame);
        frame
    });
    let mut state = shown(options(), size, frames);
    let chosen = machine(1000).rows[row].key;
    while state.selected() != Some(chosen) {
        press(&mut state, "j");
    }
    state.update(key(KeyCode::Enter));
    boxed(&state)
}

#[test]
fn details_of_a_process_show_its_uses_its_past_and_its_findings() {
    let with_findings = |frame: &mut Frame| {
        let findings = vec![
            finding(FindingKind::Hoarder, frame, Some(0)),
            finding(FindingKind::Orphan, frame, Some(1)),
            finding(FindingKind::Ghost, frame, None),
        ];
        frame.diagnosis.findings = findings;
        frame.rows[0].cpu_time = Some(Duration::from_millis(frame.snapshot.taken_at.0 * 5 / 2));
        frame.rows[0].sm = Some((frame.snapshot.taken_at.0 / 100) as u8);
    };
    assert_data_eq!(
        details(0, (80, 40), with_findings),
        str![[r#"
┌─ details ────────────────────────────────────────────────────────────────────┐
│ 71 python train.py --epochs 90                                               │
│ user         alice                                                           │
│ GPU 0        40 GiB, SM 50 %, type C                                         │
│ host         12 GiB, CPU 250 %                                               │
│ SM                                                                           │
│                                                                          ⢀⣴⣿ │
│ memory                                                                       │
│                                                                          ⢸⣿⣿ │
│ CPU ≤300%                                                                 ⣶⣶ │
│                                                                           ⣿⣿ │
│                -2m                                                       now │
│ started      1970-01-01 00:00:00, 3 h ago                                    │
│                                                                              │
│ idle holder, confidence high                                                 │
│   2.0 GiB are in use that no listed process accounts for                     │
│   71: it has computed nothing for nine hours, although it has all of the     │
│     memory                                                                   │
│ next         gpuws --sim NAME reap --gpu 1                                   │
│              shows the plan; add --yes to execute                            │
└──────────────────────────────────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help  Enter Details  K End  z Pause

"#]]
    );
    assert_data_eq!(
        details(0, (40, 40), with_findings),
        str![[r#"
┌─ details ────────────────────────────┐
│ 71 python train.py --epochs 90       │
│ user         alice                   │
│ GPU 0        40 GiB, SM 50 %, type C │
│ host         12 GiB, CPU 250 %       │
│ SM                                   │
│                                  ⢀⣴⣿ │
│ memory                               │
│                                  ⢸⣿⣿ │
│ CPU ≤300%                         ⣶⣶ │
│                                   ⣿⣿ │
│                -40s              now │
│ started      1970-01-01 00:00:00, 3  │
│              h ago                   │
│                                      │
│ idle holder, confidence high         │
│   2.0 GiB are in use that no listed  │
│   process accounts for               │
│   71: it has computed nothing for    │
│     nine hours, although it has all  │
│     of the memory                    │
│ next         gpuws --sim NAME reap   │
│              --gpu 1                 │
│              shows the plan; add     │
│              --yes to execute        │
└──────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help

"#]]
    );
    assert_data_eq!(
        details(0, (18, 40), with_findings),
        str![[r#"
made · …  00:00:05
71 python train.py
--epochs 90
user         alice
GPU 0        40
GiB, SM 50 %, type
C
host         12
GiB, CPU 250 %
SM
               ⢀⣴⣿
memory
               ⢸⣿⣿
CPU ≤300%       ⣶⣶
                ⣿⣿
               now
started
1970-01-01
00:00:00, 3 h ago

idle holder,
confidence high
  2.0 GiB are in
  use that no
  listed process
  accounts for
  71: it has
    computed
    nothing for
    nine hours,
    although it
    has all of the
    memory
next         gpuws
--sim NAME reap
--gpu 1
             shows
the plan; add
--yes to execute
Esc Close

"#]]
    );
    assert_data_eq!(
        details(2, (60, 16), |_| {}),
        str![[r#"
┌─ details ────────────────────────────────────────────────┐
│ 4194300 jupyter                                          │
│ user         bob                                         │
│ GPU 1        3 GiB, SM 7 %, type C                       │
│ host         –, CPU 0 %                                  │
│ SM                                                       │
│                                                      ⢀⣀⣀ │
│ memory                                                   │
│                                                      ⢀⣀⣀ │
│ CPU ≤100%                                                │
│                                                       ⣀⣀ │
│                          -1m                         now │
│ started      1970-01-01 00:00:00                         │
└──────────────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help  Enter Details  K End

"#]]
    );
}

#[test]
fn details_of_a_process_show_all_of_its_devices_and_its_ancestors() {
    let change = |frame: &mut Frame| {
        let second = frame.rows[0].clone();
        frame.rows.push(Row {
            key: RowKey { gpu: Some(1), ..second.key },
            mig: Some(2),
            sm: None,
            memory: None,
            ..second
        });
        let mut info = frame.snapshot.process(Pid(71)).unwrap().clone();
        info.parent = Ok(Pid(72));
        let kind = gpu_core::WorkloadKind::SlurmJob;
        let (id, cgroup) = ("4711".to_owned(), String::new());
        info.workload = Some(Box::new(gpu_core::Workload { kind, id, cgroup }));
        frame.snapshot.processes.insert(Pid(71), Process::from(Ok(info)));
    };
    assert_data_eq!(
        details(0, (80, 30), change),
        str![[r#"
┌─ details ────────────────────────────────────────────────────────────────────┐
│ 71 python train.py --epochs 90                                               │
│ user         alice                                                           │
│ GPU 0        40 GiB, SM 7 %, type C                                          │
│ GPU 1:2      –, SM –, type C                                                 │
│ host         12 GiB, CPU 0 %                                                 │
│ SM                                                                           │
│                                                                          ⢀⣀⣀ │
│ memory                                                                       │
│                                                                          ⢸⣿⣿ │
│ CPU ≤100%                                                                    │
│                                                                           ⣀⣀ │
│                -2m                                                       now │
│ started      1970-01-01 00:00:00, 3 h ago                                    │
│ Slurm job    4711                                                            │
│ parents      72 vllm serve                                                   │
└──────────────────────────────────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help  Enter Details  K End  z Pause

"#]]
    );
}

#[test]
fn details_of_other_memory_name_its_holders_and_its_finding() {
    let ghost = |frame: &mut Frame| {
        let findings = vec![
            finding(FindingKind::Ghost, frame, None),
            finding(FindingKind::DriverLeak, frame, None),
        ];
        frame.diagnosis.findings = findings;
        frame.rows[3].finding = Some(FindingKind::Ghost);
    };
    assert_data_eq!(
        details(3, (70, 24), ghost),
        str![[r#"
┌─ details ──────────────────────────────────────────────────────────┐
│ 2 GiB of GPU 1 is used, but no listed process accounts for it      │
│ users        ?                                                     │
│ holders      88 python                                             │
│                                                                    │
│ ghost, confidence high                                             │
│   2.0 GiB are in use that no listed process accounts for           │
│ next         gpuws --sim NAME reap --gpu 1                         │
│              shows the plan; add --yes to execute                  │
└────────────────────────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help  Enter Details  K End  z Pause

"#]]
    );
    assert_data_eq!(
        details(3, (70, 24), |_| {}),
        str![[r#"
┌─ details ──────────────────────────────────────────────────────────┐
│ 2 GiB of GPU 1 is used, but no listed process accounts for it      │
│ users        ?                                                     │
│ holders      88 python                                             │
└────────────────────────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help  Enter Details  K End  z Pause

"#]]
    );
    assert_data_eq!(
        details(4, (70, 24), |_| {}),
        str![[r#"
┌─ details ──────────────────────────────────────────────────────────┐
│ ? of GPU 2, listed as host PID 99, not visible here                │
└────────────────────────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help  Enter Details  K End  z Pause

"#]]
    );
}
