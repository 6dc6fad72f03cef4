//! What the frames of a replayed history prove together.

use gpu_core::{Clock, HolderSearch, Observation, Pid, ProcessDetail, observe_in_detail};
use gpu_history::{Frame, Reader, Retention, Writer};
use gpu_reaper::{Diagnosis, FindingKind};
use gpu_report::replay::{EVERY, Watched};
use gpu_sim::Simulation;
use std::fs::File;
use std::time::Duration;
use tempfile::TempDir;

/// A process with an idle GPU and a busy CPU, which a single frame does not show.
const COMPUTES: Pid = Pid(29410);

/// Records 100 samples of a machine, five seconds apart; the last `last` of them in a separate run,
/// without a pause.
fn history(last: usize) -> (TempDir, Reader) {
    let dir = tempfile::tempdir().unwrap();
    let open = || File::open(dir.path()).unwrap();
    let machine = Simulation::embedded("shared-lab").unwrap();
    // No process is accused in the first minutes.
    machine.sleep(Duration::from_secs(600));
    for samples in [100 - last, last] {
        let mut writer = Writer::open(open(), Retention::default()).unwrap();
        for _ in 0..samples {
            let observation = Observation {
                groups: gpu_reaper::defect_groups(),
                holders: HolderSearch::IfUnexplained,
                processes: ProcessDetail::Whole,
                driver_messages: false,
            };
            let snapshot = observe_in_detail(&machine, &machine, &machine, observation);
            writer.add(&Frame { snapshot, leases: Ok(Vec::new()) }).unwrap();
            machine.sleep(EVERY);
        }
    }
    let reader = Reader::open(open()).unwrap();
    (dir, reader)
}

fn diagnosis(watched: &mut Watched, reader: &mut Reader, number: usize) -> Diagnosis {
    let snapshot = reader.frame(number).unwrap().snapshot;
    watched.diagnose(reader, number, &snapshot)
}

/// Returns whether the computing process is accused.
fn errs(diagnosis: &Diagnosis) -> bool {
    diagnosis.findings.iter().any(|finding| {
        finding.kind == FindingKind::Hoarder
            && finding.suspects.iter().any(|suspect| suspect.process.pid == COMPUTES)
    })
}

/// Returns the maximum number of samples behind a finding.
fn samples(diagnosis: &Diagnosis) -> usize {
    let suspects = diagnosis.findings.iter().flat_map(|finding| &finding.suspects);
    let evidence = suspects.flat_map(|suspect| &suspect.evidence);
    let words = evidence.map(ToString::to_string).collect::<Vec<_>>();
    let counts = words.iter().flat_map(|text| {
        text.match_indices(" samples")
            .filter_map(|(at, _)| text[..at].rsplit(' ').next()?.parse().ok())
    });
    counts.max().unwrap_or(1)
}

#[test]
fn jump_is_judged_with_the_minute_before_it() {
    let (_dir, mut reader) = history(50);
    let alone = |reader: &mut Reader, number| {
        gpu_reaper::diagnose(&[reader.frame(number).unwrap().snapshot])
    };
    let mut watched = Watched::default();
    for number in [40, 41, 45, 30, 99] {
        assert!(errs(&alone(&mut reader, number)), "{number}");
        assert!(!errs(&diagnosis(&mut watched, &mut reader, number)), "{number}");
    }
}

#[test]
fn playing_adds_to_what_is_known_and_a_new_run_begins_anew() {
    let (_dir, mut reader) = history(50);
    let mut watched = Watched::default();
    for (number, known) in [
        (30, 13),
        (31, 14),
        // This skips frames.
        (35, 15),
        (20, 13),
        (49, 14),
        // The state before the start of a recorder is unknown.
        (50, 1),
        (51, 2),
        (49, 13),
        (53, 4),
        (54, 5),
    ] {
        assert_eq!(samples(&diagnosis(&mut watched, &mut reader, number)), known, "{number}");
    }
}
