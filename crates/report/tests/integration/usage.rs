//! The forms of `gpuws report`.

use gpu_accounting::{Accounts, Day};
use gpu_core::*;
use gpu_report::TimeZone;
use gpu_report::json;
use gpu_report::usage::{By, Usage};
use quick_xml::events::Event;
use snapbox::{assert_data_eq, str};
use std::time::Duration;

const HOSTILE: &str = "=1+<b>\"x\",&amp;\u{1b}[2J\u{202e}</b>";

/// 2026-11-23T22:00:00Z.
const START: u64 = 1_795_471_200_000;

/// A machine with two GPUs: one computes for alice, the other is held by the given user; an hour in
/// between is missing, and 3,000 MiB are not listed for any process.
fn accounts(user: &str, hours: u64) -> (Accounts, Snapshot) {
    let mut accounts = Accounts::new(Duration::from_secs(300));
    let mut last = Snapshot::empty(Origin::Simulated("lab<box>".into()), Timestamp(START));
    for minute in (0..hours * 60).filter(|minute| !(120..180).contains(minute)) {
        last = snapshot_at(minute, user);
        let day = Day { year: 2026, month: 11, day: if minute < 120 { 23 } else { 24 } };
        accounts.add(&last, &[], day);
    }
    (accounts, last)
}

fn snapshot_at(minute: u64, user: &str) -> Snapshot {
    let at = Timestamp(START + minute * 60_000);
    let mut snapshot = Snapshot::empty(Origin::Simulated("lab<box>".into()), at);
    let users = [(1, "alice", 0, 40_960), (2, user, 1, 24_576)];
    for (pid, user, _, _) in users {
        let mut info = ProcessInfo::from_name(Pid(pid), user);
        info.key.start = Some(StartTime(u64::from(pid)));
        info.user = Ok(user.to_owned());
        info.command_line = Ok(["python", &format!("/x/{user}.py")].map(str::to_owned).into());
        snapshot.processes.insert(Pid(pid), Process::from(Ok(info)));
    }
    snapshot.devices = users.map(|(pid, _, index, mib)| device(index, pid, mib, minute)).into();
    snapshot
}

fn device(index: u32, pid: u32, mib: u64, minute: u64) -> DeviceState {
    let busy = Percent::new(if index == 0 { 50 + minute % 50 } else { 0 }).ok_or(Absent::Failed);
    let mut sample = DeviceSample::absent(Absent::NotSupported);
    sample.memory.used = Ok(Bytes::from_mib(mib + if index == 0 { 3_000 } else { 4 }));
    sample.memory.total = Ok(Bytes::from_mib(81_920));
    sample.power_draw = Ok(Milliwatts(300_000));
    sample.utilization = busy;
    let process = DeviceProcess {
        pid: Pid(pid),
        kind: DeviceProcessKind::Compute,
        memory: Ok(Bytes::from_mib(mib)),
        utilization: busy,
        name: Err(Absent::NotRecorded),
        gpu_instance: None,
        compute_instance: None,
    };
    let id = DeviceId::from_index(index);
    DeviceState {
        info: DeviceInfo { name: Ok("NVIDIA A100".into()), ..DeviceInfo::unknown(id) },
        sample: Ok(sample),
        processes: Ok(vec![process]),
        partitions: Ok(vec![]),
        details: Ok(DeviceDetails::default()),
    }
}

fn table(usage: &Usage<'_>, by: By) -> String {
    let lines = usage.table(by, 80, false);
    let lines: Vec<&str> = lines.iter().map(|line| line.text().trim_end()).collect();
    lines.join("\n") + "\n"
}

#[test]
fn table_has_each_kind_of_row_within_80_columns() {
    let (accounts, last) = accounts("bob", 10);
    let mut usage = Usage::of(&accounts, &last, TimeZone::UTC);
    usage.damage.push("12 samples of 2026-11-23 are damaged".to_owned());
    assert_data_eq!(
        table(&usage, By::User),
        str![[r#"
simulated machine lab<box>, 2026-11-23 22:00:00 to 2026-11-24 07:59:00
2 GPUs, 8 h 58 min watched in 540 samples

user            held h  used h  idle h      peak    energy
bob                9.0       0     9.0  24.0 GiB     0 kWh
alice              8.4     6.7       0  40.0 GiB  2.00 kWh
unlisted           0.6       0       0   2.9 GiB     0 kWh
not attributed       -       -       -         -  3.38 kWh
total             17.9     6.7     9.0  66.9 GiB  5.38 kWh

1 gap of 61 min not watched, from 2026-11-23 23:59:00
12 samples of 2026-11-23 are damaged

"#]]
    );
    assert_data_eq!(
        table(&usage, By::Job),
        str![[r#"
simulated machine lab<box>, 2026-11-23 22:00:00 to 2026-11-24 07:59:00
2 GPUs, 8 h 58 min watched in 540 samples

job              of     held h  used h  idle h      peak    energy
python bob.py    bob       9.0       0     9.0  24.0 GiB     0 kWh
python alice.py  alice     8.4     6.7       0  40.0 GiB  2.00 kWh
unlisted                   0.6       0       0   2.9 GiB     0 kWh
not attributed               -       -       -         -  3.38 kWh
total                     17.9     6.7     9.0  66.9 GiB  5.38 kWh

1 gap of 61 min not watched, from 2026-11-23 23:59:00
12 samples of 2026-11-23 are damaged

"#]]
    );
    assert_data_eq!(
        table(&usage, By::Gpu),
        str![[r#"
simulated machine lab<box>, 2026-11-23 22:00:00 to 2026-11-24 07:59:00
2 GPUs, 8 h 58 min watched in 540 samples

gpu     held h  used h  idle h      peak    energy
0 A100     9.0     6.7       0  42.9 GiB  2.69 kWh
1 A100     9.0       0     9.0  24.0 GiB  2.69 kWh
total     17.9     6.7     9.0  66.9 GiB  5.38 kWh

1 gap of 61 min not watched, from 2026-11-23 23:59:00
12 samples of 2026-11-23 are damaged

"#]]
    );
    assert_data_eq!(
        table(&usage, By::Day),
        str![[r#"
simulated machine lab<box>, 2026-11-23 22:00:00 to 2026-11-24 07:59:00
2 GPUs, 8 h 58 min watched in 540 samples

day         held h  used h  idle h      peak    energy
2026-11-23     4.0     1.4     2.0  66.9 GiB  1.19 kWh
2026-11-24    14.0     5.3     7.0  66.9 GiB  4.19 kWh
total         17.9     6.7     9.0  66.9 GiB  5.38 kWh

1 gap of 61 min not watched, from 2026-11-23 23:59:00
12 samples of 2026-11-23 are damaged

"#]]
    );
    for by in By::ALL {
        assert!(table(&usage, by).lines().all(|line| line.chars().count() <= 80));
    }
}

#[test]
fn csv_has_a_record_for_each_row() {
    let (accounts, last) = accounts("bob", 10);
    let usage = Usage::of(&accounts, &last, TimeZone::UTC);
    let csv = usage.csv(By::User);
    assert!(csv.lines().count() == 5 && csv.ends_with("\r\n"), "{csv}");
    assert_data_eq!(
        csv.replace("\r\n", "\n"),
        str![[r#"
user,held_gpu_hours,used_gpu_hours,idle_gpu_hours,peak_memory_bytes,energy_kwh
bob,8.966667,0.000000,8.966667,25769803776,0.000000
alice,8.354747,6.683333,0.000000,42949672960,2.005000
unlisted,0.611920,0.000000,0.000000,3145728000,0.000000
not attributed,0.000000,0.000000,0.000000,0,3.375000

"#]]
    );
    assert_data_eq!(
        usage.csv(By::Job).replace("\r\n", "\n"),
        str![[r#"
job,user,held_gpu_hours,used_gpu_hours,idle_gpu_hours,peak_memory_bytes,energy_kwh
python bob.py,bob,8.966667,0.000000,8.966667,25769803776,0.000000
python alice.py,alice,8.354747,6.683333,0.000000,42949672960,2.005000
unlisted,,0.611920,0.000000,0.000000,3145728000,0.000000
not attributed,,0.000000,0.000000,0.000000,0,3.375000

"#]]
    );
}

/// Returns the text of a page, after checking that it is well-formed XML without scripts and
/// external resources.
fn checked(page: &str) -> String {
    let mut reader = quick_xml::Reader::from_str(page);
    let (mut open, mut text) = (Vec::new(), String::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) => {
                let name = tag.name().as_ref().to_owned();
                assert_ne!(name, "script");
                for attribute in tag.attributes() {
                    let key = attribute.unwrap();
                    let key: &str = key.key.as_ref();
                    assert!(!["src", "href", "onload", "style"].contains(&key), "{key}");
                }
                open.push(name);
            }
            Event::End(tag) => {
                let name = tag.name().as_ref().to_owned();
                assert_eq!(open.pop(), Some(name));
            }
            Event::Text(part) => text.push_str(&part),
            Event::GeneralRef(entity) => {
                text.push(match &entity[..] {
                    "lt" => '<',
                    "gt" => '>',
                    "amp" => '&',
                    "quot" => '"',
                    "#39" => '\'',
                    other => panic!("{other:?}"),
                });
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(open, [""; 0]);
    for elsewhere in ["http://", "https://", "url(", "@import"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    text
}

#[test]
fn page_is_well_formed_and_self_contained() {
    let (accounts, last) = accounts("bob", 10);
    let page = Usage::of(&accounts, &last, TimeZone::UTC).html();
    let text = checked(&page);
    for part in [
        "simulated machine lab<box>, 2026-11-23 22:00:00 to 2026-11-24 07:59:00",
        "2 GPUs, 8 h 58 min watched in 540 samples",
        "1 gap of 61 min not watched, from 2026-11-23 23:59:00",
        "unlisted",
        "python alice.py",
        "not attributed",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(page.matches("<svg ").count(), 3);
    // A table scrolls on a narrow screen.
    let tables = page.matches("<table>").count();
    assert_eq!((tables, page.matches("<div class=\"scroll\"><table>").count()), (4, 4));
    assert!(page.contains(".scroll{overflow-x:auto}") && page.contains("@media (max-width:480px)"));
    // The unwatched hour splits each area in two.
    let areas: Vec<&str> = page.split("<path class=\"c0\" d=\"").skip(1).collect();
    assert_eq!(areas.len(), 2);
    assert!(areas.iter().all(|area| area.split('"').next().unwrap().matches('Z').count() == 2));
}

/// A label is 72 units wide, and the picture 760.
#[test]
fn labels_of_times_end_within_the_picture() {
    for (hours, last) in [(10, "mid"), (27, "end")] {
        let (accounts, snapshot) = accounts("bob", hours);
        let page = Usage::of(&accounts, &snapshot, TimeZone::UTC).html();
        let used = page.split("<svg ").nth(2).unwrap();
        let labels: Vec<(&str, f64)> = (used.split("<text class=\"axis ").skip(1))
            .map(|label| label.split('"').collect::<Vec<_>>())
            .map(|parts| (parts[0], parts[2].parse().unwrap()))
            .collect();
        let right = |(anchor, at): &(&str, f64)| if *anchor == "mid" { at + 36.0 } else { *at };
        assert!(labels.iter().all(|label| right(label) <= 760.0), "{labels:?}");
        assert_eq!(labels.last().unwrap().0, last, "{labels:?}");
    }
}

#[test]
fn hostile_names_stay_text() {
    let (accounts, last) = accounts(HOSTILE, 1);
    let usage = Usage::of(&accounts, &last, TimeZone::UTC);
    let page = usage.html();
    let text = checked(&page);
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}') && !page.contains("<b>"));
    assert!(text.contains("=1+<b>\"x\",&amp;\\x1b[2J"), "{text}");
    for by in By::ALL {
        let table = table(&usage, by);
        assert!(!table.contains(['\u{1b}', '\u{202e}']), "{table}");
        let csv = usage.csv(by);
        assert!(!csv.contains(['\u{1b}', '\u{202e}']) && !csv.contains("\n="), "{csv}");
    }
}

#[test]
fn page_of_impossible_times_is_drawn() {
    let mut accounts = Accounts::new(Duration::MAX);
    let day = Day { year: 2026, month: 11, day: 23 };
    let mut last = snapshot_at(0, "bob");
    for at in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX, 0] {
        last.taken_at = Timestamp(at);
        accounts.add(&last, &[], day);
    }
    let usage = Usage::of(&accounts, &last, TimeZone::UTC);
    assert_eq!(usage.html().matches("<svg ").count(), 3);
    checked(&usage.html());
}

#[test]
fn empty_page_says_so() {
    let accounts = Accounts::new(Duration::from_secs(300));
    let last = Snapshot::empty(Origin::Live, Timestamp(START));
    let usage = Usage::of(&accounts, &last, TimeZone::UTC);
    assert!(checked(&usage.html()).contains("No user held a GPU in this period."));
    assert_eq!(usage.csv(By::Day).lines().count(), 1);
}

#[test]
fn json_has_the_same_amounts() {
    let (accounts, last) = accounts("bob", 10);
    let usage = Usage::of(&accounts, &last, TimeZone::UTC);
    let object = serde_json::to_value(json::Report::of(&usage)).unwrap();
    let held = |row: &serde_json::Value| row["held_ms"].as_u64().unwrap();
    let rows = |name: &str| object[name].as_array().unwrap().iter().map(held).sum::<u64>();
    // Nanoseconds are divided, milliseconds are printed.
    let total = held(&object["total"]);
    assert!((total - 3..=total).contains(&rows("users")));
    assert_eq!((rows("gpus"), rows("days")), (total, total));
    assert_eq!(total, 2 * 538 * 60_000);
    assert_eq!(object["gaps"][0]["from"], "2026-11-23T23:59:00.000Z");
    assert_eq!(object["machine"], "lab<box>");
    assert_eq!(object["users"][2]["user"], "bob");
    assert_eq!(object["users"][1]["unlisted"], true);
    assert_eq!(object["jobs"][0]["kind"], "command");
}
