//! The summary of a finished `gpuws run`.

use crate::live::{each_at_once, out, reported, script};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn report_file_contains_exit_code_of_gpuws() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --report report.json -- sh -c 'echo noise >&2; exit 42' 2> noise; echo $?\n\
         cat report.json; grep -c noise report.json; grep -c '^noise$' noise; grep -c '[{]' noise\n\
         \"$0\" run --report report.json -- sh -c 'kill -TERM $$'; echo $?; cat report.json\n\
         \"$0\" run --report report.json --time-limit 1s -- sleep 300; echo $?; cat report.json",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [code, report, in_report, in_noise, braces, killed_code, killed, limit_code, limit] =
        lines[..]
    else {
        panic!("{output:?}")
    };
    assert_eq!((in_report, in_noise, braces), ("0", "1", "0"), "{output:?}");
    for (code, report, expected, command, signal, limit_hit) in [
        (code, report, 42, Some(42), None, false),
        (killed_code, killed, 143, None, Some(15), false),
        (limit_code, limit, 124, None, Some(15), true),
    ] {
        let report = json(report);
        assert_eq!(code, expected.to_string(), "{output:?}");
        assert_eq!(report["exit_code"], expected, "{report}");
        assert_eq!(report["origin"], "simulated", "{report}");
        assert_eq!(report["command_exit_code"], Value::from(command), "{report}");
        assert_eq!(report["command_signal_code"], Value::from(signal), "{report}");
        assert_eq!(report["limit_hit"], limit_hit, "{report}");
    }
}

#[test]
fn unwritable_report_fails_before_job_starts() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --report /no/such/directory/report -- touch ran; echo $?; test -e ran; echo $?\n\
         echo old > report; \"$0\" run -n 13 --report report -- true; echo $?",
    );
    assert_eq!(out(&output), "125\n1\n2\n", "{output:?}");
    assert!(
        reported(&output).contains("failed to write '/no/such/directory/report'"),
        "{output:?}"
    );
}

#[test]
fn time_limit_reports_ended_processes_without_leftovers() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --time-limit 1s --grace 1s -- sh -c 'trap \"\" TERM; sleep 300 & wait; wait'",
    );
    let reported = reported(&output);
    assert!(reported.contains("SIGKILL to ") && !reported.contains("left behind"), "{reported}");
    assert!(
        reported.contains("of it were ended") || reported.contains("of it was ended"),
        "{reported}"
    );
}

#[test]
fn exceeding_memory_share_is_reported() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --gpu 2 --mem 1GiB --report report -- sh -c \"$(cat <<'END'\n\
         \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:3000 & user=$!\n\
         until python3 let-go.py 2> /dev/null; do sleep 0.05; done\n\
         kill $user; wait\n\
         END\n\
         )\"; cat report",
    );
    let reported = reported(&output);
    assert!(reported.contains("peak 2.9 of 1.0 GiB"), "{reported}");
    assert!(
        reported.contains("warning: used 2.9 GiB of its 1.0 GiB share of GPU 2;"),
        "{reported}"
    );
    let report = json(&out(&output));
    assert_eq!(report["gpus"][0]["share_bytes"], 1_u64 << 30, "{report}");
}

#[test]
fn non_executable_file_gets_chmod_hint_not_sudo() {
    let output = script("twelve-gpus", "\"$0\" run -- /etc/passwd; echo $?");
    assert_eq!(out(&output), "126\n", "{output:?}");
    assert!(reported(&output).contains("hint: not executable; try: chmod +x"), "{output:?}");
    assert!(!reported(&output).contains("sudo"), "{output:?}");
}

#[test]
fn topo_accepts_nvidia_smi_matrix_option() {
    let output = script(
        "dgx1-v100",
        "\"$0\" topo > plain; \"$0\" topo -m | cmp - plain; echo $?; \"$0\" topo -m --svg -; echo $?",
    );
    assert_eq!(out(&output), "0\n2\n", "{output:?}");
}

/// The job ends another process on its device, whose memory is free at once, late or never.
#[test]
fn unfreed_memory_is_awaited_and_reported() {
    let cases = [
        ("memory_returns_after_ms = 100", false, false),
        ("memory_returns_after_ms = 3000", true, false),
        ("leaks_memory = true", true, true),
    ];
    each_at_once(cases, |(memory, waits, lost)| {
        let dir = tempfile::tempdir().unwrap();
        let machine = format!(
            "description = 'made: one process'\nclock = 2025-03-03T10:00:00Z\n\
             [driver]\nversion = '535.261.03'\ncuda = '12.2'\n\
             [[gpu]]\nindex = 0\nmemory_total_mib = 40960\n\
             [[process]]\npid = 1001\nname = 'other'\nuid = 1000\n\
             memory = [{{ gpu = 0, mib = 6000 }}]\n{memory}\n"
        );
        std::fs::write(dir.path().join("machine.toml"), machine).unwrap();
        let output = script(
            dir.path().to_str().unwrap(),
            // The job ends when the driver no longer lists the other process.
            "cat > job << 'END'\n\
             own=$1; listed() { \"$own\" query --query-compute-apps=pid --format=csv,noheader 2> /dev/null; }\n\
             kill -9 $(listed); while listed | grep -q .; do sleep 0.05; done\n\
             END\n\
             \"$0\" run --accept-used --gpu 0 -- sh job \"$0\"; echo $?",
        );
        assert_eq!(out(&output), "0\n", "{memory}: {output:?}");
        let reported = reported(&output);
        let count = |line: &str| reported.matches(line).count();
        let waiting = count("gpuws: waiting for GPU memory to be freed …\n");
        assert_eq!(waiting, usize::from(waits), "{memory}: {reported}");
        let warned = count("gpuws: warning: memory was not freed; for details: gpuws doctor\n");
        assert_eq!(warned, usize::from(lost), "{memory}: {reported}");
    });
}
