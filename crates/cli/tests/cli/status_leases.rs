//! `gpuws status` and the leases of each device.

use crate::live::{out, reported, script};
use serde_json::Value;

#[test]
fn status_shows_lease_owner() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --gpu 3 --mem 6GiB -- sh -c 'touch runs; exec sleep 300' & front=$!\n\
         until_so test -e runs\n\
         \"$0\" claim --gpu 5 --export > words; . ./words; touch inner\n\
         \"$0\" run -- sh -c 'rm inner; exec sleep 300' & inner=$!\n\
         until_so test ! -e inner\n\
         COLUMNS=80 \"$0\" status; echo ====; \"$0\" status --json\n\
         kill $front $inner; wait $front $inner",
    );
    let output_text = out(&output);
    let (table, json) = output_text.split_once("====\n").unwrap_or_else(|| panic!("{output:?}"));
    assert!(table.contains("12 GPUs, 10 free"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let line = |index: usize| {
        let mut lines = table.lines();
        lines.find(|line| line.starts_with(&format!("{index:>2}  "))).expect("a line per device");
        lines.next().expect("another follows").to_owned()
    };
    assert!(line(3).starts_with("    claimed by ") && line(3).contains(" · 6.0 GiB · "), "{table}");
    assert!(line(3).ends_with("exec sleep 300"), "{table}");
    assert!(line(5).starts_with("    claimed by ") && !line(5).contains("GiB"), "{table}");
    let claims = table.lines().filter(|line| line.contains("claimed by")).count();
    assert_eq!(claims, 2, "a nested lease is not listed separately: {table}");
    let json: Value = serde_json::from_str(json).expect("valid JSON");
    assert_eq!(json["lease_error"], Value::Null);
    let gpus = json["gpus"].as_array().expect("a list");
    for gpu in gpus {
        let leases = gpu["leases"].as_array().expect("leases is an array");
        let expected = usize::from(gpu["index"] == 3 || gpu["index"] == 5);
        assert_eq!((leases.len(), &gpu["free"]), (expected, &Value::from(expected == 0)), "{gpu}");
    }
    assert_eq!(gpus[3]["leases"][0]["share_bytes"], 6_u64 << 30);
    assert_eq!(gpus[5]["leases"][0]["share_bytes"], Value::Null);
}

#[test]
fn many_leases_on_one_device_are_summarized() {
    let output = script(
        "twelve-gpus",
        "for n in 1 2 3 4 5 6; do \"$0\" claim --gpu 0 --mem 1GiB --for $$ --export > /dev/null; done\n\
         \"$0\" status -i 0",
    );
    let output_text = out(&output);
    assert_eq!(output_text.matches("claimed by").count(), 4, "{output_text}");
    assert!(output_text.contains("    and 2 more claims: gpuws leases\n"), "{output_text}");
}

#[test]
fn unreadable_leases_are_a_note_not_an_error() {
    let output = script(
        "twelve-gpus",
        "export GPUWS_CLAIMS=/no/such/directory\n\
         \"$0\" status; \"$0\" status > /dev/null; echo $?\n\
         \"$0\" status --json; echo $?",
    );
    let output_text = out(&output);
    let (table, json) = output_text.split_once("\n0\n").unwrap_or_else(|| panic!("{output:?}"));
    assert!(table.contains("leases unknown: failed to"), "{output_text}");
    let json = json.strip_suffix("0\n").unwrap_or_else(|| panic!("{output:?}"));
    let json: Value = serde_json::from_str(json).expect("valid JSON");
    assert!(json["lease_error"]["what"].as_str().is_some_and(|what| what.contains("/no/such")));
    assert_eq!(json["gpus"][0]["leases"], Value::Null);
    assert!(json["gpus"][0]["absent"]["leases"].is_string(), "{json}");
    assert_eq!(reported(&output), "");
}

#[test]
fn hostile_lease_text_is_escaped() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --gpu 0 -- sh -c 'touch runs; sleep 300; :' \"$(printf 'a\\033[31mb')\" & front=$!\n\
         until_so test -e runs; \"$0\" status -i 0; kill $front; wait $front",
    );
    assert!(out(&output).contains("claimed by"), "{output:?}");
    assert!(!out(&output).contains('\x1b'), "{output:?}");
}

/// Writes a live lease that names the first device 500 times, and every second one.
const REPEAT: &str = "
import fcntl, json, os, sys
uuids = open('uuids').read().split()
own = os.environ['GPUWS_SIM_SESSION'] + f'/claims/u{os.getuid()}'
lease = {'schema': 1, 'id': '0123456789ab', 'ticket': 1, 'root': {'pid': os.getppid()}, 'command': 'x',
         'claim': {'count': 1, 'share': 'whole', 'accept_used': False}, 'since_unix_ms': 1,
         'devices': uuids[:1] * 500 + uuids[::2]}
file = open(own + '/lease-0123456789ab', 'w')
file.write(json.dumps(lease, separators=(',', ':')))
file.flush()
fcntl.lockf(file, fcntl.LOCK_EX)
open('written', 'w')
sys.stdin.read()
";

#[test]
fn repeated_device_is_one_in_the_table() {
    let output = script(
        "twelve-gpus",
        &format!(
            "cat > repeat.py <<'END'{REPEAT}END\n\
             \"$0\" query --query-gpu=uuid --format=csv,noheader > uuids\n\
             \"$0\" claim --gpu 11 --export > /dev/null\n\
             mkfifo end; python3 repeat.py < end & exec 3> end; until_so test -e written\n\
             COLUMNS=120 \"$0\" leases; echo ====; \"$0\" leases --json; exec 3>&-; wait"
        ),
    );
    let output_text = out(&output);
    let (table, json) = output_text.split_once("====\n").unwrap_or_else(|| panic!("{output:?}"));
    assert!(table.contains("0, 2, 4, 6, 8, 10") && !table.contains("0, 0"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    let json: Value = serde_json::from_str(json).expect("valid JSON");
    let leases = json["leases"].as_array().expect("a list");
    let repeated = leases.iter().find(|lease| lease["id"] == "0123456789ab").expect("it is alive");
    assert_eq!(repeated["gpus"].as_array().map(Vec::len), Some(6), "{json}");
}
