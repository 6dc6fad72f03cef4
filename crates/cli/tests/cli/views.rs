//! Views of the devices: selected processes and columns, lists and streams as nvidia-smi prints
//! them.

use crate::golden::{hold, transcript};
use crate::live::{GPUWS, out};
use gpu_text::{Document, Hint, Kind, Value as Cell};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn gpuws(words: &str) -> Output {
    let mut command = Command::new(GPUWS);
    command.args(words.split(' ')).env("NO_COLOR", "1").env("TZ", "UTC");
    command.env_remove("LD_LIBRARY_PATH").env_remove("GPUWS_SIM_SESSION");
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns the transcripts of several commands.
fn transcripts(commands: &[&str]) -> String {
    let each = commands.iter().map(|words| transcript(&words.split(' ').collect::<Vec<_>>()));
    each.collect::<Vec<_>>().join("\n")
}

#[test]
fn filter_leaves_out_processes_and_counts_them() {
    let commands = [
        "--sim shared-lab --user dave,1006 --quiet",
        "--sim shared-lab --mine -i 5-7",
        "--sim shared-lab --pid 18310,18500 --user erin -i 2",
        "--sim p100-ghost --user nobody",
        "--sim driver-mismatch --user nobody",
    ];
    hold("views.filter.txt", transcripts(&commands));
    let json = out(&gpuws("--sim shared-lab status --user dave --holders --json"));
    let status: Value = serde_json::from_str(&json).unwrap();
    let all: Value = serde_json::from_str(&out(&gpuws("--sim shared-lab --json"))).unwrap();
    let rows = |status: &Value| -> Vec<u64> {
        let gpus = status["gpus"].as_array().unwrap().iter();
        let processes = gpus.flat_map(|gpu| gpu["processes"].as_array().unwrap());
        processes.map(|process| process["pid"].as_u64().unwrap()).collect()
    };
    assert_eq!(rows(&status), [18310, 18411]);
    let left_out = rows(&all).len() - 2;
    assert_eq!(status["left_out_process_count"], left_out);
    assert_eq!(all["left_out_process_count"], Value::Null);
    assert_eq!(status["gpus"][1]["memory_unexplained_bytes"], 0, "memory of others is explained");
    let holders = status["holders"].as_array().unwrap().iter();
    assert!(holders.clone().count() > 0 && holders.clone().all(|holder| holder["user"] == "dave"));
    let details = out(&gpuws("--sim shared-lab -q -i 2 --pid 18411"));
    assert!(details.contains("Process ID 18411") && !details.contains("Process ID 18310"));
    assert!(details.ends_with("\nfilter: only processes with PID 18411; 2 rows left out\n"));
}

#[test]
fn tables_have_the_requested_columns() {
    let commands = [
        "--sim labbox --columns name,fan,pstate,sm-clock,user,cpu,job,command",
        "--sim lost-gpu --quiet --columns fan,encoder --user alice",
        "--sim mig-a100 --quiet --columns mig,gpu-memory",
        "--sim labbox --columns fan,speed",
        "--sim labbox --columns fan --json",
    ];
    hold("views.columns.txt", transcripts(&commands));
}

/// Parses the output of a command as nvidia-smi's, and checks that every line was read.
fn parsed(words: &str, kind: Kind) -> Document {
    let output = gpuws(words);
    assert!(output.status.success(), "{words}: {output:?}");
    let document = gpu_text::parse(&output.stdout, &Hint::default()).unwrap();
    assert_eq!((document.kind, document.unread.len()), (kind, 0), "{words}: {document:?}");
    document
}

#[test]
fn list_of_devices_parses_back() {
    let document = parsed("--sim mig-a100 -L", Kind::List);
    let uuid = document.gpus[0].uuid.as_deref().unwrap();
    assert!(uuid.starts_with("GPU-") && document.gpus[0].index == Some(0));
    let migs: Vec<_> = document.mig_devices.iter().map(|mig| mig.profile.as_deref()).collect();
    assert_eq!(migs, [Some("3g.20gb"), Some("2g.10gb"), Some("2g.10gb")]);
    assert!(document.mig_devices.iter().all(|mig| mig.uuid.is_some()));
    let lost = parsed("--sim lost-gpu status --list-gpus", Kind::List);
    assert_eq!((lost.gpus.len(), lost.errors.len()), (3, 1), "{lost:?}");
    assert_eq!(parsed("--sim lost-gpu -L -i 1", Kind::List).gpus.len(), 1);
    let output = gpuws("--sim labbox -L --json");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn peer_access_parses_back_and_unreported_is_an_error() {
    for (option, cells) in
        [("-p2p r", ["OK", "TNS"]), ("-p2p w", ["OK", "TNS"]), ("-p n", ["OK", "NS"])]
    {
        let words = format!("--sim dgx1-v100 topo {option}");
        let topology = parsed(&words, Kind::P2p).topology.unwrap();
        let cell = |to: &str| topology.matrix["GPU0"][to].as_deref();
        assert_eq!([cell("GPU1"), cell("GPU5")], cells.map(Some), "{words}");
        assert_eq!(cell("GPU0"), Some("X"));
    }
    for words in ["--sim dgx1-v100 topo -p2p a", "--sim labbox topo --p2p p"] {
        let output = gpuws(words);
        assert_eq!(output.status.code(), Some(3), "{words}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("failed to query the peer-to-peer status"), "{words}: {text}");
    }
    for words in ["topo -p2p x", "topo -p2p r --json", "topo -p2p r --svg -"] {
        let output = gpuws(&format!("--sim dgx1-v100 {words}"));
        assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
    }
}

#[test]
fn streams_parse_back() {
    let rows = |words: &str, kind| parsed(words, kind).rows;
    let devices = rows("--sim labbox dmon -c 3 -d 10ms -s pucvmet", Kind::Dmon);
    assert_eq!((devices.len(), &devices[4]["pwr"]), (12, &Cell::Integer(312)));
    assert_eq!(rows("--sim lost-gpu dmon --count 1 --id 1-2", Kind::Dmon).len(), 2);
    let processes = rows("--sim shared-lab pmon -c 2 -d 10ms -s um", Kind::Pmon);
    assert_eq!(processes.len(), 40);
    assert_eq!(processes[5]["command"], Cell::Text("python".to_owned()));
    // The header is repeated before the second sample.
    let text = out(&gpuws("--sim shared-lab pmon -c 2 -d 10ms"));
    assert_eq!(text.matches("# gpu").count(), 2, "{text}");
    for words in ["dmon -i 9 -c 2 -d 10ms", "pmon -i 9 -c 1"] {
        let none = gpuws(&format!("--sim labbox {words}"));
        assert_eq!(none.status.code(), Some(3), "{words}");
        let lines = out(&none);
        assert!(lines.lines().all(|line| line == "No devices were found"), "{words}: {lines}");
        assert!(!lines.is_empty(), "{words}");
    }
    let lost = gpuws("--sim lost-gpu pmon -c 1");
    let message = String::from_utf8_lossy(&lost.stderr);
    assert!(message.contains("GPU 2 did not answer"), "{message}");
    assert_eq!(lost.status.code(), Some(3));
    for words in ["dmon -c 0", "dmon -s x", "pmon -s p", "dmon -c 1 --json", "pmon -d 0"] {
        let output = gpuws(&format!("--sim labbox {words}"));
        assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
    }
}

#[test]
fn processes_and_unexplained_memory_appear_in_mig_instance() {
    let status: Value = serde_json::from_str(&out(&gpuws("--sim mig-a100 --json"))).unwrap();
    let gpu = &status["gpus"][0];
    let place = |process: &Value| {
        let id = |name: &str| process[name].as_u64();
        (process["pid"].as_u64(), id("gpu_instance_id"), id("compute_instance_id"))
    };
    let processes: Vec<_> = gpu["processes"].as_array().unwrap().iter().map(place).collect();
    assert_eq!(processes, [(Some(15010), Some(1), Some(0)), (Some(15077), None, None)]);
    let part = |mig: &Value| {
        let profile = mig["profile"].as_str().unwrap().to_owned();
        (profile, mig["memory_unexplained_bytes"].as_u64().unwrap() >> 20)
    };
    let parts: Vec<_> = gpu["mig_devices"].as_array().unwrap().iter().map(part).collect();
    let expected = [("3g.20gb", 0), ("2g.10gb", 5132), ("2g.10gb", 0)];
    assert_eq!(parts, expected.map(|(profile, mib)| (profile.to_owned(), mib)));
}
