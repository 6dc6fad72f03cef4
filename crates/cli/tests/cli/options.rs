//! Global options: those without effect are rejected, `--quiet` leaves out headings and
//! advice, and resource limits of the shell neither end gpuws nor reach the commands that it starts.

use crate::live::{GPUWS, out, reported, script, text};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn gpuws_in(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(GPUWS);
    command.args(words).current_dir(dir).env("NO_COLOR", "1").env("TZ", "UTC");
    command.env_remove("LD_LIBRARY_PATH").env_remove("GPUWS_SIM_SESSION");
    command.stdin(Stdio::null()).output().unwrap()
}

fn gpuws(words: &[&str]) -> Output {
    gpuws_in(Path::new("."), words)
}

#[test]
fn global_option_without_effect_is_rejected_with_reason() {
    for (words, why) in [
        ("--sim labbox demo", "--sim: demo takes the machine as an argument"),
        ("--sim labbox parse -", "--sim: this command queries no machine"),
        ("--sim labbox completions bash", "--sim: this command queries no machine"),
        ("--sim labbox man", "--sim: this command queries no machine"),
        ("--sim labbox sim labbox -- true", "--sim: sim takes the machine as an argument"),
        ("--json sim labbox -- true", "--json: the output is the command's"),
        ("--json --sim labbox query --help-query-gpu", "--json: query prints CSV"),
        ("--json --sim labbox status --format gpustat-json", "--json: --format selects"),
        ("--json demo", "--json: the output of this command is not data"),
        ("--json completions bash", "--json: the output of this command is not data"),
        ("--json man", "--json: the output of this command is not data"),
    ] {
        let output = gpuws(&words.split(' ').collect::<Vec<_>>());
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{words}");
        let expected = format!("gpuws: {}", why.replacen(':', " does not apply:", 1));
        assert!(reported(&output).starts_with(&expected), "{words}: {output:?}");
    }
    for words in ["demo labbox", "completions bash", "man", "query --help-query-gpu"] {
        let output = gpuws(&words.split(' ').collect::<Vec<_>>());
        assert!(output.status.success() && !output.stdout.is_empty(), "{words}: {output:?}");
    }
}

/// Each case: the words, what only the whole output has, and what both have.
#[test]
fn quiet_leaves_out_headings_and_advice() {
    for (words, advice, answer) in [
        ("--sim p100-ghost", "gpuws --sim p100-ghost doctor", "15.5 GiB       1 h  ghost"),
        ("--sim p100-ghost doctor", "1 finding.", "GHOST"),
        ("--sim p100-ghost reap", "nothing was done.", "would send SIGTERM"),
        ("--sim p100-ghost holders", "f open, F open for writing", "t2t-decoder"),
        ("--sim labbox topo", "X     the device itself", "GPU0"),
        ("--sim labbox claim --gpu 1", "nothing was claimed.", "would claim GPU 1"),
        ("--sim labbox leases", "to claim GPUs:", "no leases and no waiting claims"),
        ("--sim labbox mem env --limit 6GiB --framework jax", "# limit 6 GiB", "export XLA"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let whole = out(&gpuws(&words));
        let quiet = out(&gpuws(&[&words[..], &["--quiet"]].concat()));
        assert!(whole.contains(advice) && whole.contains(answer), "{words:?}: {whole}");
        assert!(!quiet.contains(advice) && quiet.contains(answer), "{words:?}: {quiet}");
    }
}

#[test]
fn file_size_limit_is_an_error_not_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 1; exec \"$0\" --sim labbox record recorded", GPUWS]);
    let output = shell.current_dir(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(reported(&output).contains("File too large"), "{output:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The command of a session keeps the limit; a command that reads `/proc` raises its own.
#[test]
fn command_in_session_keeps_limit_of_open_files() {
    let limit = "ulimit -S -n 200; exec \"$0\" sim labbox -- sh -c 'ulimit -S -n'";
    let output = Command::new("sh").args(["-c", limit, GPUWS]).output().unwrap();
    assert_eq!(out(&output), "200\n", "{output:?}");
}

#[test]
fn failed_audit_log_stops_reap_as_not_permitted() {
    let output = script(
        "twelve-gpus",
        "head -c 200000 /dev/zero | tr '\\0' '\\n' > $GPUWS_SIM_SESSION/audit.jsonl\n\
         chmod 600 $GPUWS_SIM_SESSION/audit.jsonl\n\
         (use_gpu 500) & job=$!\n\
         listed() { \"$0\" status --json | tr -d ' \\n' | grep -q \"\\\"pid\\\":$job,\"; }\n\
         until_so listed; (ulimit -f 1; exec \"$0\" reap --pid $job --yes >&2); echo $?\n\
         kill -0 $job; echo $?; kill $job",
    );
    assert_eq!(out(&output), "4\n0\n", "{output:?}");
    assert!(reported(&output).contains("stopped: failed to write journal"), "{output:?}");
}

#[test]
fn interrupted_reap_sends_no_further_signal() {
    let output = script(
        "twelve-gpus",
        "(trap '' TERM; use_gpu 500) & job=$!\n\
         listed() { \"$0\" status --json | tr -d ' \\n' | grep -q \"\\\"pid\\\":$job,\"; }\n\
         until_so listed; \"$0\" reap --pid $job --grace 60 --yes > reaped & reaper=$!\n\
         until_so grep -q 'SIGTERM  ' reaped; kill -TERM $reaper; wait $reaper; echo $?\n\
         kill -0 $job; echo $?; kill -9 $job; cat reaped",
    );
    let output_text = out(&output);
    assert!(output_text.starts_with("1\n0\n"), "{output:?}");
    assert!(output_text.contains("stopped: interrupted; no further signal sent"), "{output:?}");
    assert!(!output_text.contains("SIGKILL  "), "{output:?}");
}

/// This machine has an account `nobody`; a simulated one ignores it.
#[test]
fn user_of_reap_must_exist_on_the_machine() {
    for (words, hint) in [
        ("--sim labbox reap --user nobody", "see who uses the GPUs: gpuws --sim labbox holders\n"),
        ("reap --pid 1 --user no-such-user", "see who uses the GPUs: gpuws holders"),
    ] {
        let output = gpuws(&words.split(' ').collect::<Vec<_>>());
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{words}");
        let reported = reported(&output);
        assert!(reported.contains("failed to reap for user 'no"), "{words}: {reported}");
        assert!(reported.contains(hint), "{words}: {reported}");
    }
    let output = gpuws(&["reap", "--pid", "1", "--user", "nobody"]);
    assert!(!reported(&output).contains("for user"), "{output:?}");
}

#[test]
fn unmatched_selector_is_reported() {
    for (words, warning) in [
        ("labbox status --user alicee", "gpuws: --user alicee: no such user, and no visible"),
        ("labbox doctor --ignore hoarder:9", "gpuws: --ignore names GPU 9, which does not exist"),
    ] {
        let words: Vec<&str> = ["--sim"].into_iter().chain(words.split(' ')).collect();
        let reported = reported(&gpuws(&words));
        assert!(reported.starts_with(warning), "{reported}");
    }
    let reported = reported(&gpuws(&["--sim", "labbox", "status", "--user", "alice,1002"]));
    assert!(!reported.contains("no such user"), "{reported}");
    let output = gpuws(&["--sim", "labbox", "watch", "--for", "5s", "--keep", "3d"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn unknown_machine_lists_names_but_broken_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("box")).unwrap();
    std::fs::write(dir.path().join("box/machine.toml"), "bad").unwrap();
    for (machine, lists) in [("no-such", true), ("./box", false), ("labbox", false)] {
        let output = gpuws_in(dir.path(), &["--sim", machine, "reset", "9"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(reported(&output).contains("\nmachines: "), lists, "{machine}: {output:?}");
    }
}

/// The suggested command selects the machine as the user did.
#[test]
fn suggested_command_names_machine_as_typed() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = gpuws_in(dir.path(), &["--sim", "p100-ghost", "record", "my box", "--names"]);
    assert_eq!(
        out(&recorded),
        "1 sample written to my box\nreplay it: gpuws --sim 'my box' doctor\n"
    );
    let of = |words: &[&str]| gpuws_in(dir.path(), &[&["--sim", "./my box"], words].concat());
    assert!(out(&of(&["status"])).contains("gpuws --sim './my box' doctor --gpu 0"));
    let claim = out(&of(&["claim", "--accept-used"]));
    assert!(claim.contains("   gpuws sim './my box' --live -- gpuws run --accept-used"), "{claim}");
    for words in
        [&["run", "--", "true"][..], &["claim", "--hold"], &["claim", "--release", "abc123"]]
    {
        let refused = of(words);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let hint = "hint: use a live simulation: gpuws sim './my box' --live -- gpuws run …";
        assert!(reported(&refused).contains(hint), "{words:?}: {refused:?}");
    }
}

#[test]
fn record_counts_samples_and_reports_omissions() {
    let dir = tempfile::tempdir().unwrap();
    let record = |words: &[&str]| {
        gpuws_in(dir.path(), &[&["--sim", "labbox", "record", "--every", "1"], words].concat())
    };
    assert!(out(&record(&["a", "--looks", "3"])).starts_with(
        "3 samples written to a\nwithout process names and command lines; user names replaced by \
         anon-1, …\n\
         replay it: gpuws --sim a doctor"
    ));
    assert_eq!(out(&record(&["b", "--quiet"])), "");
    let json: serde_json::Value =
        serde_json::from_slice(&record(&["c", "--json", "--names", "--looks", "2"]).stdout)
            .unwrap();
    assert_eq!((&json["sample_count"], &json["look_count"]), (&2.into(), &2.into()), "{json}");
    let head = |name: &str| {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    assert_ne!(head("a"), head("c"), "the recording tells whether it has names");
}

#[test]
fn hostile_name_of_a_machine_is_quoted() {
    let output = gpuws(&["--sim", "a b;\u{1b}[2J", "claim"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!text(&output.stderr).contains('\u{1b}'), "{output:?}");
}
