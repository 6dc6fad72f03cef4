//! The streams of `dmon` and `pmon`.

use crate::fixture::*;
use crate::forms::assert_golden;
use gpu_core::*;
use gpu_report::monitor::{Dmon, Page, Pmon, Release, Rows, Sample};
use gpu_text::{Hint, Kind, Value};

fn lines(rows: &dyn Rows, page: &mut Page, snapshot: &Snapshot) -> Vec<String> {
    let process = |pid| snapshot.process(pid).cloned();
    let release = Release::of(&snapshot.driver);
    page.lines(rows, &Sample { devices: &snapshot.devices, process: &process, release })
}

/// The text of one sample.
fn text(rows: &dyn Rows, snapshot: &Snapshot) -> String {
    let lines = lines(rows, &mut Page::default(), snapshot);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn rows_have_every_column() {
    let snapshot = snapshot();
    let all = [
        text(&Dmon::parse("pucvmet").unwrap(), &snapshot),
        text(&Dmon::parse("tut").unwrap(), &snapshot),
        text(&Pmon::parse("u").unwrap(), &snapshot),
        text(&Pmon::parse("um").unwrap(), &snapshot),
        text(&Pmon::parse("mu").unwrap(), &snapshot),
        text(&Pmon::parse("m").unwrap(), &snapshot),
    ];
    assert_golden("monitor.txt", &all.join("\n"));
}

#[test]
fn rows_parse_back() {
    let snapshot = snapshot();
    let parse = |text: String, kind| {
        let document = gpu_text::parse(text.as_bytes(), &Hint::default()).unwrap();
        assert_eq!((document.kind, document.unread.as_slice()), (kind, &[][..]), "{text}");
        document.rows
    };
    let devices = parse(text(&Dmon::parse("pucvmet").unwrap(), &snapshot), Kind::Dmon);
    assert_eq!(devices.len(), 3);
    assert_eq!((&devices[0]["pwr"], &devices[0]["sm"]), (&Value::Integer(61), &Value::Integer(37)));
    assert_eq!((&devices[0]["pviol"], &devices[2]["sm"]), (&Value::Null, &Value::Null));
    let processes = parse(text(&Pmon::parse("um").unwrap(), &snapshot), Kind::Pmon);
    assert_eq!(processes.len(), 4);
    assert_eq!(processes[0]["command"], Value::Text("python".to_owned()));
    assert_eq!(
        (&processes[0]["fb"], &processes[0]["sm"]),
        (&Value::Integer(1000), &Value::Integer(12))
    );
    assert_eq!((&processes[2]["pid"], &processes[2]["command"]), (&Value::Null, &Value::Null));
}

#[test]
fn header_is_repeated_after_24_rows() {
    let mut snapshot = snapshot();
    snapshot.devices = (0..10).map(full_device).collect();
    let (rows, mut page) = (Dmon::parse("p").unwrap(), Page::default());
    let counts = [(); 4].map(|()| lines(&rows, &mut page, &snapshot).len());
    assert_eq!(counts, [12, 10, 12, 10]);
}

#[test]
fn names_of_processes_are_short_and_harmless() {
    let mut snapshot = snapshot();
    let listed = snapshot.devices[0].processes.as_mut().unwrap();
    listed[0].pid = Pid(5);
    listed[0].name = Ok("/opt/a/long_name_of_a_program".to_owned());
    listed[1].kind = DeviceProcessKind::ComputeAndGraphics;
    let hostile = ProcessInfo { name: "a\x1b[2J\n0".to_owned(), ..process(700, "") };
    snapshot.processes.insert(Pid(700), Process::from(Ok(hostile)));
    let rows = lines(&Pmon::parse("u").unwrap(), &mut Page::default(), &snapshot);
    assert!(rows[2].ends_with("    long_name_of_a_"), "{rows:?}");
    assert!(rows[3].contains("   C+G ") && rows[3].ends_with("    a\\x1b[2J\\n0    "), "{rows:?}");
}

#[test]
fn only_requested_groups_are_read() {
    assert_eq!(Dmon::parse("v").unwrap().groups(), Groups::NONE);
    assert_eq!(Pmon::parse("um").unwrap().groups(), Groups::NONE);
    let wanted: Groups = [Group::Thermal, Group::Clocks].into_iter().collect();
    assert_eq!(Dmon::parse("pc").unwrap().groups(), wanted);
    for (parsed, error) in [
        (Dmon::parse("px").err(), "unknown group 'x'; expected p, u, c, v, m, e, t"),
        (Pmon::parse("").err(), "no group is named; expected u, m"),
    ] {
        assert_eq!(parsed.as_deref(), Some(error));
    }
}
