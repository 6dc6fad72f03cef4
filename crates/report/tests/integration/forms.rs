//! Whole forms of one machine: every value has its position, its name and its unit, and every
//! absent one its reason. `SNAPSHOTS=overwrite` rewrites the golden files.

use crate::fixture::*;
use gpu_core::*;
use gpu_nvidia_driver::device_file;
use gpu_reaper::{Guard, Request, diagnose, plan};
use gpu_report::View;
use gpu_report::csv::{Query, Seen, Style, Subject};
use gpu_report::details::{Entry, Value, entries, head};
use gpu_report::{TimeZone, gpustat, json, write};
use gpu_steward::DeviceLeases;
use snapbox::Data;
use std::path::Path;

#[track_caller]
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    snapbox::assert_data_eq!(text.to_owned(), Data::read_from(&path, None).raw());
}

pub(crate) fn pretty(object: &impl serde::Serialize) -> String {
    let mut bytes = Vec::new();
    write::write(&mut bytes, object).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn inventory(snapshot: &Snapshot) -> Inventory {
    Inventory { driver: snapshot.driver.clone(), devices: snapshot.devices.clone() }
}

/// Returns the rows of a query about a snapshot.
fn rows(snapshot: &Snapshot, query: &Query, style: Style) -> Vec<String> {
    let machine = inventory(snapshot);
    let process = |pid| snapshot.process(pid).cloned();
    let seen = Seen {
        machine: &machine,
        devices: &machine.devices,
        zone: &TimeZone::UTC,
        at: snapshot.taken_at,
        process: &process,
    };
    query.rows(&seen, style)
}

/// Returns the first device's row of these fields.
fn first_row(snapshot: &Snapshot, fields: &str) -> String {
    let query = Query::parse(Subject::Gpu, fields).unwrap();
    rows(snapshot, &query, Style::default()).swap_remove(0)
}

#[test]
fn every_field_of_query_gpu_is_a_column() {
    let snapshot = snapshot();
    let mut text = String::new();
    for (names, about) in Subject::Gpu.help() {
        let query = Query::parse(Subject::Gpu, names[0]).unwrap();
        let rows = rows(&snapshot, &query, Style::default()).join(" | ");
        text.push_str(&format!("{}: {rows}  ({about})\n", query.head()));
    }
    assert_golden("query-gpu.txt", &text);
}

#[test]
fn every_field_of_the_other_queries_is_a_column() {
    let mut snapshot = snapshot();
    let details = snapshot.devices[0].details.as_mut().unwrap();
    let page = |address, double_bit| RetiredPage { address, double_bit };
    details.memory_health.as_mut().unwrap().retired_pages =
        Ok(vec![page(0x12_3000, false), page(0xfe_dcba_9000, true)]);
    let choice = |memory_mhz, graphics_mhz| ClockChoice { memory_mhz, graphics_mhz };
    details.supported_clocks.as_mut().unwrap().combinations =
        Ok(vec![choice(1593, vec![1410, 1395]), choice(405, vec![345])]);
    for subject in [
        Subject::ComputeApp,
        Subject::AccountedApp,
        Subject::RetiredPage,
        Subject::RemappedRows,
        Subject::SupportedClocks,
    ] {
        let names: Vec<&str> = subject.help().map(|(names, _)| names[0]).collect();
        let query = Query::parse(subject, &names.join(",")).unwrap();
        let bare = Style { nounits: true, ..Style::default() };
        let rows = |style| rows(&snapshot, &query, style);
        let text = [vec![query.head()], rows(Style::default()), rows(bare)];
        assert_golden(&format!("{}.txt", subject.options()[0]), &(text.concat().join("\n") + "\n"));
    }
}

#[test]
fn fabric_status_has_the_name_of_its_code() {
    let mut snapshot = snapshot();
    let shown = |snapshot: &mut Snapshot, state, code| {
        let details = snapshot.devices[0].details.as_mut().unwrap();
        details.fabric = Some(Fabric { state: Ok(state), status: Ok(code), ..Fabric::default() });
        first_row(snapshot, "fabric.status")
    };
    let names: Vec<String> =
        (0..19).map(|code| shown(&mut snapshot, FabricState::Completed, code)).collect();
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), 19, "{names:?}");
    assert!(names[0].ends_with("Success") && names[18].ends_with("Unknown Error"), "{names:?}");
    let pending = shown(&mut snapshot, FabricState::InProgress, 0);
    assert!(pending.ends_with("N/A"), "{pending}");
}

/// The values of 580 are those of an H200 and the output of its nvidia-smi
/// (docs/hardware/2026-11-27-h200.md).
#[test]
fn values_follow_the_release_of_the_driver() {
    let mut snapshot = snapshot();
    snapshot.devices[0].sample.as_mut().unwrap().memory = MemoryInfo {
        total: Ok(Bytes(150_754_820_096)),
        used: Ok(Bytes(12_079_988_736)),
        reserved: Ok(Bytes(644_939_776)),
    };
    let details = snapshot.devices[0].details.as_mut().unwrap();
    details.fabric =
        Some(Fabric { state: Ok(FabricState::None), status: Ok(0), ..Fabric::default() });
    details.modes.as_mut().unwrap().display_attached = Ok(true);
    let fields = "memory.total,memory.reserved,memory.used,memory.free,fabric.state,\
                  fabric.status,display_mode,display_attached";
    for (version, expected) in [
        (
            "580.159.04",
            "143771 MiB, 616 MiB, 11521 MiB, 131636 MiB, N/A, N/A, \
             [Requested functionality has been deprecated], Yes",
        ),
        (
            "535.261.03",
            "143771 MiB, 615 MiB, 11520 MiB, 131635 MiB, state  N/A, status N/A, Enabled, Yes",
        ),
    ] {
        snapshot.driver.as_mut().unwrap().version = Ok(version.to_owned());
        assert_eq!(first_row(&snapshot, fields), expected, "{version}");
    }
}

#[test]
fn csv_style_and_fields_are_parsed() {
    let style = |noheader, nounits| Ok(Style { noheader, nounits });
    assert_eq!(Style::parse("csv"), style(false, false));
    assert_eq!(Style::parse("noheader, csv"), style(true, false));
    assert_eq!(Style::parse("csv,nounits,noheader"), style(true, true));
    assert_eq!(Style::parse("nounits").unwrap_err(), "csv is mandatory");
    assert!(Style::parse("csv,json").is_err());
    assert_eq!(Query::parse(Subject::Gpu, " ,index").unwrap().head(), "index");
    assert_eq!(Query::parse(Subject::Gpu, "index,none").unwrap_err(), "none");
    assert_eq!(Query::parse(Subject::Gpu, ",").unwrap_err(), "");
    assert!(Query::parse(Subject::Gpu, "index").unwrap().groups().is_empty());
    assert!(Query::parse(Subject::Gpu, "vbios_version").unwrap().groups().has(Group::Product));
}

fn outline(entries: &[Entry], depth: usize, text: &mut String) {
    for Entry { name, value } in entries {
        text.push_str(&"    ".repeat(depth));
        match value {
            Value::Known(value) => text.push_str(&format!("{name}: {value}\n")),
            Value::Absent(absent) => text.push_str(&format!("{name}: ({absent})\n")),
            Value::Group(entries) => {
                text.push_str(&format!("{name}\n"));
                outline(entries, depth + 1, text);
            }
        }
    }
}

#[test]
fn details_list_every_value() {
    let snapshot = snapshot();
    let mut text = String::new();
    outline(&head(&snapshot, snapshot.devices.len(), &TimeZone::UTC), 0, &mut text);
    for device in &snapshot.devices {
        text.push_str(&format!("{}\n", device.id()));
        outline(&entries(&snapshot, device), 1, &mut text);
    }
    assert_golden("details.txt", &text);
}

#[test]
fn status_has_every_value_or_its_reason() {
    let snapshot = snapshot();
    let diagnosis = diagnose(std::slice::from_ref(&snapshot));
    let name = |uid: u32| format!("user {uid}");
    let view = View::of(&snapshot, &snapshot, &diagnosis, DeviceLeases::none(), &name);
    assert_golden("status.json", &pretty(&view.json(true)));
}

#[test]
fn doctor_and_reap_show_evidence_and_plan() {
    let snapshot = snapshot();
    let snapshots = std::slice::from_ref(&snapshot);
    let diagnosis = diagnose(snapshots);
    let devices: Vec<&DeviceState> = snapshot.devices.iter().collect();
    let doctor = json::Doctor::of(&snapshot, &devices, &diagnosis, "--sim a ");
    assert_golden("doctor.json", &pretty(&doctor));
    let mut host = MockHost::new();
    host.expect_own_ancestry().returning(|| Ok(vec![]));
    let guard = Guard::new(&host, vec![]).unwrap();
    let request = Request { pids: vec![Pid(200), Pid(700)], ..Request::default() };
    let plan = plan(snapshots, &diagnosis, &guard, &request);
    assert_golden("reap.json", &pretty(&json::Reap::of(&snapshot, &plan, None)));
}

#[test]
fn topology_is_shown_as_words_and_scores() {
    let nvlink = Link::NvLink(4);
    let topology = Topology {
        links: vec![vec![Link::Itself, nvlink], vec![nvlink, Link::Itself]],
        peers: vec![vec![PeerAccess::Itself, PeerAccess::Ok]; 2],
        paths: vec![vec![Link::Itself, Link::Sys], vec![Link::Sys, Link::Itself]],
    };
    assert_golden("topo.json", &pretty(&json::Topo::of(&snapshot(), &topology)));
    let bare = Topology { peers: vec![], paths: vec![], ..topology };
    let text = pretty(&json::Topo::of(&snapshot(), &bare));
    assert!(text.contains("\"paths\": null") && text.contains("\"peer_access\": null"), "{text}");
}

#[test]
fn gpustat_form_has_its_names() {
    let snapshot = snapshot();
    let reads = std::cell::Cell::new(0);
    let read = |pid: Pid| {
        reads.set(reads.get() + 1);
        let later = std::time::Duration::from_millis(500 + 10 * reads.get());
        snapshot.process(pid).map(|info| ProcessInfo { cpu_time: Ok(later), ..info.clone() })
    };
    let processes = gpustat::Processes::look_up(&snapshot.devices, read, || reads.set(5));
    let machine = gpustat::Machine::of(
        snapshot.hostname.clone(),
        &inventory(&snapshot),
        &snapshot.devices,
        &processes,
        snapshot.taken_at,
        &TimeZone::UTC,
    );
    let mut bytes = Vec::new();
    write::write_as_python(&mut bytes, &machine).unwrap();
    assert_golden("gpustat.json", &String::from_utf8(bytes).unwrap());
    let groups = gpustat::groups();
    assert!(groups.has(Group::Activity) && groups.has(Group::Thermal));
    assert!(!groups.has(Group::Product));
}

#[test]
fn holders_are_shown_with_files_and_owners() {
    let snapshot = snapshot();
    let found: Vec<json::FoundHolder> = snapshot
        .holders()
        .iter()
        .map(|holder| json::FoundHolder {
            holder: holder.clone(),
            info: snapshot
                .process(holder.process.pid)
                .cloned()
                .map_err(|absent| Error::new(absent, "look")),
        })
        .collect();
    assert_eq!(
        (found[0].command(), found[0].user()),
        ("/usr/bin/ghost --fast".into(), "alice".into())
    );
    let with = |change: fn(&mut ProcessInfo)| {
        let mut info = process(200, "ghost");
        change(&mut info);
        json::FoundHolder { holder: found[0].holder.clone(), info: Ok(info) }
    };
    let bare = with(|info| {
        info.command_line = Ok(vec![].into());
        info.user = Err(Absent::NotFound);
    });
    assert_eq!((bare.command(), bare.user()), ("ghost".into(), "1000".into()));
    let hidden = json::FoundHolder {
        holder: found[0].holder.clone(),
        info: Err(Error::new(ProcessFault::NotPermitted, "look")),
    };
    assert_eq!(hidden.command(), "(not permitted)");
    assert_eq!((hidden.user(), hidden.pid()), ("(not permitted)".into(), Pid(200)));
    let files = vec![
        device_file("/dev/nvidia0", Err(Absent::NotFound)),
        device_file("/dev/nvidiactl", Ok(FileId::Device { major: 195, minor: 255 })),
    ];
    let holders = json::Holders::of(&snapshot.origin, &files, &found, &snapshot.unreadable);
    assert_golden("holders.json", &pretty(&holders));
}

#[test]
fn head_of_pasted_text_makes_no_claim_about_the_machine() {
    let mut snapshot = snapshot();
    snapshot.origin = Origin::Pasted;
    let head = pretty(&json::Head::of(&snapshot));
    assert!(head.contains("\"taken_at\": null"), "{head}");
    assert!(head.contains("\"unreadable_process_count\": null"), "{head}");
    snapshot.origin = Origin::Simulated("a100".into());
    let head = pretty(&json::Head::of(&snapshot));
    assert!(head.contains("\"machine\": \"a100\""), "{head}");
    assert!(head.contains("\"unreadable_process_count\": 2"), "{head}");
    snapshot.holders = Err(Error::new(ErrorKind::Io, "walk").fault());
    assert!(pretty(&json::Head::of(&snapshot)).contains("\"unreadable_process_count\": null"));
}
