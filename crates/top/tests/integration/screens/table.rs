//! The table of the users of the devices, and the notes below it.

use super::{machine, shown, watched};
use crate::fixture::{Made, key, lines, made, options, press};
use gpu_core::{ErrorKind, Fault};
use gpu_reaper::FindingKind;
use gpu_top::rows::{Column, Row, RowKey, Subject};
use gpu_top::{Options, State};
use ratatui_crossterm::crossterm::event::KeyCode;
use snapbox::{assert_data_eq, str};

/// Returns the table: the lines from the titles on, without the last one.
fn table(state: &State) -> String {
    let screen = lines(state);
    let all: Vec<&str> = screen.lines().collect();
    let from = all.iter().position(|line| line.contains("PID")).unwrap();
    let table = all[from..all.len() - 1].iter().copied();
    table.take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

#[test]
fn wide_screen_shows_every_column() {
    assert_data_eq!(
        table(&watched((150, 30))),
        str![[r#"
GPU▲    PID USER             GPU-MEM  SM%  CPU%      HOST    AGE TYPE NOTE        JOB              COMMAND
  0      71 alice           40.0 GiB    7     0  12.0 GiB    3 h C    leased      Slurm 4711       python train.py --epochs 90
  0      72 bartholomew-v…   700 MiB    –     0         –    9 s C    idle holder                  vllm serve
  1 4194300 bob              3.0 GiB    7     0         –      – C                                 jupyter
  1       – ?                2.0 GiB    –     –         –      – -    unlisted                     not listed: 88 python
  2       – ?                      –    –     –         –      – -    foreign                      listed as host PID 99, not visible here

"#]]
    );
}

#[test]
fn narrow_screen_drops_the_least_important_columns() {
    assert_data_eq!(
        table(&watched((100, 30))),
        str![[r#"
GPU▲    PID USER             GPU-MEM  SM%  CPU%    AGE TYPE NOTE        JOB              COMMAND
  0      71 alice           40.0 GiB    7     0    3 h C    leased      Slurm 4711       python tra…
  0      72 bartholomew-v…   700 MiB    –     0    9 s C    idle holder                  vllm serve
  1 4194300 bob              3.0 GiB    7     0      – C                                 jupyter
  1       – ?                2.0 GiB    –     –      – -    unlisted                     not listed…
  2       – ?                      –    –     –      – -    foreign                      listed as …

"#]]
    );
    assert_data_eq!(
        table(&watched((70, 30))),
        str![[r#"
GPU▲    PID USER             GPU-MEM  SM%    AGE NOTE        COMMAND
  0      71 alice           40.0 GiB    7    3 h leased      python t…
  0      72 bartholomew-v…   700 MiB    –    9 s idle holder vllm ser…
  1 4194300 bob              3.0 GiB    7      –             jupyter
  1       – ?                2.0 GiB    –      – unlisted    not list…
  2       – ?                      –    –      – foreign     listed a…

"#]]
    );
    assert_data_eq!(
        table(&watched((50, 30))),
        str![[r#"
GPU▲    PID USER             GPU-MEM  SM% COMMAND
  0      71 alice           40.0 GiB    7 python …
  0      72 bartholomew-v…   700 MiB    – vllm se…
  1 4194300 bob              3.0 GiB    7 jupyter
  1       – ?                2.0 GiB    – not lis…
  2       – ?                      –    – listed …

"#]]
    );
    assert_data_eq!(
        table(&watched((36, 30))),
        str![[r#"
GPU▲    PID USER             GPU-MEM
  0      71 alice           40.0 GiB
  0      72 bartholomew-v…   700 MiB
  1 4194300 bob              3.0 GiB
  1       – ?                2.0 GiB
  2       – ?                      –

"#]]
    );
    assert_data_eq!(
        table(&watched((20, 30))),
        str![[r#"
GPU▲    PID  GPU-MEM
  0      71 40.0 GiB
  0      72  700 MiB
  1 4194300  3.0 GiB
  1       –  2.0 GiB
  2       –        –

"#]]
    );
}

#[test]
fn mark_is_on_each_tagged_row_and_the_order_on_its_title() {
    let mut state = watched((76, 30));
    press(&mut state, "jj jj u");
    assert_data_eq!(
        table(&state),
        str![[r#"
  GPU     PID USER▲            GPU-MEM  SM%    AGE TYPE NOTE        COMMAND
    1       – ?                2.0 GiB    –      – -    unlisted    not lis…
    2       – ?                      –    –      – -    foreign     listed …
    0      71 alice           40.0 GiB    7    3 h C    leased      python …
*   0      72 bartholomew-v…   700 MiB    –    9 s C    idle holder vllm se…
    1 4194300 bob              3.0 GiB    7      – C                jupyter

"#]]
    );
    press(&mut state, "Umr");
    assert_data_eq!(
        table(&state),
        str![[r#"
GPU     PID USER            GPU-MEM▲  SM%    AGE TYPE NOTE        COMMAND
  0      72 bartholomew-v…   700 MiB    –    9 s C    idle holder vllm serve
  1       – ?                2.0 GiB    –      – -    unlisted    not liste…
  1 4194300 bob              3.0 GiB    7      – C                jupyter
  0      71 alice           40.0 GiB    7    3 h C    leased      python tr…
  2       – ?                      –    –      – -    foreign     listed as…

"#]]
    );
}

#[test]
fn table_scrolls_with_the_selection() {
    let rows: Vec<Made> = (10..50).map(|pid| Made::new(0, pid, "bob", 1, "job")).collect();
    let mut state = shown(options(), (60, 14), [made(1, &rows, 1000)]);
    state.update(key(KeyCode::PageDown));
    state.update(key(KeyCode::PageDown));
    state.update(key(KeyCode::PageDown));
    assert_data_eq!(
        table(&state),
        str![[r#"
GPU▲    PID USER   GPU-MEM  SM%    AGE COMMAND
  0      16 bob      1 MiB    7    1 s job
  0      17 bob      1 MiB    7    1 s job
  0      18 bob      1 MiB    7    1 s job
  0      19 bob      1 MiB    7    1 s job
  0      20 bob      1 MiB    7    1 s job

"#]]
    );
    state.update(key(KeyCode::PageUp));
    assert_data_eq!(
        table(&state),
        str![[r#"
GPU▲    PID USER   GPU-MEM  SM%    AGE COMMAND
  0      15 bob      1 MiB    7    1 s job
  0      16 bob      1 MiB    7    1 s job
  0      17 bob      1 MiB    7    1 s job
  0      18 bob      1 MiB    7    1 s job
  0      19 bob      1 MiB    7    1 s job

"#]]
    );
}

#[test]
fn index_of_a_part_widens_the_column_of_devices() {
    let mut frame = machine(1000);
    frame.rows[0].mig = Some(3);
    frame.rows[2].key.gpu = Some(11);
    frame.rows[2].mig = Some(10);
    assert_data_eq!(
        table(&shown(options(), (64, 24), [frame])),
        str![[r#"
 GPU▲     PID USER             GPU-MEM  SM%    AGE COMMAND
    0      72 bartholomew-v…   700 MiB    –    1 s vllm serve
  0:3      71 alice           40.0 GiB    7    3 h python train…
    1       – ?                2.0 GiB    –      – not listed: …
    2       – ?                      –    –      – listed as ho…
11:10 4194300 bob              3.0 GiB    7      – jupyter

"#]]
    );
}

#[test]
fn note_is_the_finding_or_else_what_the_row_is() {
    let row = |finding, subject, is_leased| {
        let row = machine(1000).rows.remove(0);
        Row { finding, is_leased, key: RowKey { gpu: Some(0), subject }, ..row }.note()
    };
    let process = machine(1000).rows[0].key.subject;
    assert_eq!(row(None, process, false), "");
    assert_eq!(row(None, process, true), "leased");
    assert_eq!(row(None, Subject::Unlisted, true), "unlisted");
    let notes = FindingKind::ALL.map(|kind| {
        let note = row(Some(kind), Subject::Unlisted, true);
        assert_eq!(note, row(Some(kind), process, false));
        format!("{}: {note}\n", kind.name())
    });
    assert_data_eq!(
        notes.concat(),
        str![[r#"
device-fault: device fault
memory-errors: memory errors
nvlink-down: NVLink down
driver-error: driver error
no-mig-instance: no MIG instance
compute-prohibited: compute prohibited
ghost: ghost
driver-leak: leak
not-permitted: denied
foreign-namespace: foreign
listed-but-gone: gone
zombie-holder: zombie
stuck-holder: stuck
orphan: orphan
hoarder: idle holder
memory-growth: grows
host-bound: waits
busy-without-process: busy without process
throttled: throttled
slow-pcie: slow PCIe
pending-reset: pending reset
blocked-reset: blocked reset

"#]]
    );
}

#[test]
fn notes_below_the_rows_name_what_is_not_known() {
    let mut frame = made(1, &[], 1000);
    assert_data_eq!(
        table(&shown(options(), (70, 20), [frame.clone()])),
        str![[r#"
GPU▲    PID USER   GPU-MEM  SM%    AGE NOTE      COMMAND
 no process uses these GPUs

"#]]
    );
    frame.unknown = vec![format!("leases unknown: failed to read {}", "/run/leases ".repeat(9))];
    frame.snapshot.unreadable.add(gpu_core::Absent::NotPermitted, 2);
    assert_data_eq!(
        table(&shown(options(), (70, 20), [frame.clone()])),
        str![[r#"
GPU▲    PID USER   GPU-MEM  SM%    AGE NOTE      COMMAND
 leases unknown: failed to read /run/leases /run/leases /run/leases
 /run/leases /run/leases /run/leases /run/leases /run/leases
 /run/leases
 2 processes could not be inspected

"#]]
    );
    assert_data_eq!(
        table(&shown(options(), (70, 9), [frame.clone()])),
        str![[r#"
GPU▲    PID USER   GPU-MEM  SM%    AGE NOTE      COMMAND
 leases unknown: failed to read /run/leases /run/leases /run/leases
 /run/leases /run/leases /run/leases /run/leases /run/leases
 /run/leases

"#]]
    );
    frame.only = Some("only processes of eve; 2 rows left out".to_owned());
    frame.devices.clear();
    frame.snapshot.driver = Err(Fault {
        kind: ErrorKind::Machine(gpu_core::MachineFault::DriverNotLoaded),
        text: "load the driver's library: not found".to_owned(),
    });
    assert_data_eq!(
        table(&shown(options(), (70, 20), [frame])),
        str![[r#"
GPU▲    PID USER   GPU-MEM  SM%    AGE NOTE      COMMAND
 only processes of eve; 2 rows left out
 remedy: sudo modprobe nvidia; if that fails, see sudo dmesg
 leases unknown: failed to read /run/leases /run/leases /run/leases
 /run/leases /run/leases /run/leases /run/leases /run/leases
 /run/leases
 2 processes could not be inspected

"#]]
    );
    let mut state = watched((80, 20));
    press(&mut state, "/zzz");
    assert_data_eq!(
        table(&state),
        str![[r#"
GPU▲    PID USER             GPU-MEM  SM%    AGE TYPE NOTE        COMMAND
 no row matches the filter

"#]]
    );
}

#[test]
fn unknown_values_come_last_in_either_order() {
    let order = |column, reversed| {
        let options = Options { sort: (column, reversed), ..options() };
        let state = shown(options, (150, 30), [machine(1000)]);
        let label = |row: &Row| match row.key.subject {
            Subject::Process(key) => key.pid.to_string(),
            Subject::Foreign(_) => "foreign".to_owned(),
            Subject::Unlisted => "unlisted".to_owned(),
        };
        state.rows().map(label).collect::<Vec<_>>()
    };
    let orders = Column::ALL.map(|(column, name, _)| {
        let [plain, reversed] = [false, true].map(|reversed| order(column, reversed).join(" "));
        format!("{name}: {plain} | {reversed}\n")
    });
    assert_data_eq!(
        orders.concat(),
        str![[r#"
gpu: 71 72 4194300 unlisted foreign | foreign 4194300 unlisted 71 72
pid: 71 72 4194300 unlisted foreign | 4194300 72 71 unlisted foreign
user: unlisted foreign 71 72 4194300 | 4194300 72 71 unlisted foreign
gpu-mem: 71 4194300 unlisted 72 foreign | 72 unlisted 4194300 71 foreign
sm: 71 4194300 72 unlisted foreign | 71 4194300 72 unlisted foreign
cpu: 71 72 4194300 unlisted foreign | 71 72 4194300 unlisted foreign
host: 71 72 4194300 unlisted foreign | 71 72 4194300 unlisted foreign
age: 71 72 4194300 unlisted foreign | 72 71 4194300 unlisted foreign
type: unlisted foreign 71 72 4194300 | 71 72 4194300 unlisted foreign
note: foreign 72 71 unlisted 4194300 | unlisted 71 72 foreign 4194300
job: 71 72 4194300 unlisted foreign | 71 72 4194300 unlisted foreign
command: 4194300 foreign unlisted 71 72 | 72 71 unlisted foreign 4194300

"#]]
    );
}
