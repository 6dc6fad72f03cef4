//! Output on a terminal: the layout at each width, colours, progress, and the status line of a
//! waiting claim.

use crate::live::{GPUWS, out, script};
use snapbox::Data;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a command in a pseudo-terminal of this width, and prints its output with `E` for the escape
/// character. When the output contains a text, it ends the command by SIGTERM.
const PTY: &str = "import fcntl, os, pty, signal, struct, sys, termios, time
columns, until, *command = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 50, int(columns), 0, 0))
    if until == 'background':
        pid = os.fork()
        if pid: os.waitpid(pid, 0); os._exit(0)
        os.setpgid(0, 0)
    os.execvp(command[0], command)
shown, asked = b'', False
signal.alarm(60)
while True:
    try: piece = os.read(terminal, 4096)
    except OSError: break
    if not piece: break
    shown += piece
    if until and not asked and until.encode() in shown:
        asked = True
        os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
print(shown.decode().replace('\\x1b', 'E').replace('\\r\\n', '\\n'), end='')
";

/// Returns the output of a command on a terminal of this width.
fn on_terminal(columns: usize, words: &[&str], set: &[(&str, &str)]) -> String {
    until(columns, "", words, set)
}

/// Like `on_terminal`, but the command is ended at this text, or runs in the `background`.
fn until(columns: usize, text: &str, words: &[&str], set: &[(&str, &str)]) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", PTY, &columns.to_string(), text, GPUWS]).args(words);
    for name in ["CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "GPUWS_SIM_SESSION", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.env("TZ", "UTC").env("TERM", "xterm").envs(set.iter().copied());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    out(&output)
}

const PLAIN: [(&str, &str); 1] = [("NO_COLOR", "1")];

fn hold(name: &str, what: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    snapbox::assert_data_eq!(what, Data::read_from(&path, None).raw());
}

#[test]
fn status_at_every_width_matches_golden_file() {
    for machine in
        ["labbox", "mig-a100", "lost-gpu", "p100-ghost", "gtx1080ti-x8-hoarder", "gb10-unified"]
    {
        let at = |columns| {
            let shown = on_terminal(columns, &["--sim", machine, "status"], &PLAIN);
            format!("{columns} columns\n{shown}")
        };
        hold(&format!("{machine}.narrow.txt"), &[100, 80, 79, 56, 48, 40].map(at).join("\n"));
    }
}

#[test]
fn matrix_and_text_are_fitted_to_the_terminal() {
    let at = |columns, words: &[&str]| {
        let shown = on_terminal(columns, words, &PLAIN);
        format!("{columns} columns: {}\n{shown}", words.join(" "))
    };
    let all = [
        at(40, &["--sim", "dgx1-v100", "topo"]),
        at(50, &["--sim", "p100-ghost", "reap"]),
        at(30, &["--sim", "p100-ghost", "reap"]),
        at(40, &["--sim", "p100-ghost", "holders"]),
        at(60, &["--sim", "driver-mismatch", "status"]),
        at(40, &["--sim", "no-driver", "status"]),
        at(60, &["--sim", "blocked-reset", "reset", "0"]),
    ];
    hold("fitted.txt", &all.join("\n"));
}

#[test]
fn terminal_gets_colours_unless_disabled() {
    let shown = |words: &[&str], set: &[(&str, &str)]| {
        on_terminal(80, &[&["--sim", "p100-ghost"], words].concat(), set)
    };
    assert!(shown(&["status"], &[]).contains("E[1m"), "{}", shown(&["status"], &[]));
    assert!(!shown(&["status"], &PLAIN).contains("E["));
    assert!(!shown(&["--color", "never", "status"], &[]).contains("E["));
    assert!(shown(&["--color", "always", "status"], &PLAIN).contains("E["));
}

/// A job with this many events and without segments.
fn events(count: usize) -> String {
    let head = "{\"schema\":1,\"kind\":\"memory-trace\"}\n".to_owned();
    let actions = ["alloc", "free_completed"].iter().cycle().take(count);
    let line = |action: &&str| {
        format!(
            "{{\"event\":{{\"action\":\"{action}\",\"address\":{},\"size_bytes\":1024}}}}\n",
            1_u64 << 30
        )
    };
    head + &actions.map(line).collect::<String>()
}

#[test]
fn long_search_shows_progress_only_on_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    for (count, shows) in [(16, false), (5000, false), (5001, true)] {
        let file = dir.path().join(format!("{count}.jsonl"));
        std::fs::write(&file, events(count)).unwrap();
        let words = ["mem", "fit", file.to_str().unwrap(), "--policy", "caching"];
        let shown = on_terminal(80, &words, &PLAIN);
        let text =
            format!("gpuws: finding the minimum memory for {count} events of {count}.jsonl\n");
        assert_eq!(shown.starts_with(&text), shows, "{count}: {shown}");
        let words = ["mem", "replay", file.to_str().unwrap(), "--policy", "caching"];
        assert!(!on_terminal(80, &words, &PLAIN).contains("gpuws: replaying"), "{count}");
    }
}

#[test]
fn recorder_shows_its_progress_once_a_second_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let past = dir.path().join("past");
    let words = ["--sim", "labbox", "record", "--for", "2h", past.to_str().unwrap()];
    let shown = on_terminal(80, &words, &PLAIN);
    assert!(shown.contains("7200 samples written to "), "{shown}");
    assert!(shown.matches("E[K").count() < 120, "not for each sample: {}", shown.len());
    for line in shown.split('\r').filter(|line| line.contains("left: ")) {
        assert!(line.contains(" samples, ") && line.contains(", simulated time left: "), "{line}");
    }
}

#[test]
fn recorder_in_the_background_or_a_quiet_one_shows_no_progress() {
    let dir = tempfile::tempdir().unwrap();
    // In real time: it is shown after one second.
    let record = |name: &str, text: &str, more: &[&str]| {
        let session = ["--quiet", "sim", "p100-ghost", "--live", "--", GPUWS];
        let past = dir.path().join(name);
        let words = ["record", "--for", "3s", past.to_str().unwrap()];
        until(80, text, &[&session, more, &words].concat(), &PLAIN)
    };
    let shown = record("shown", "", &[]);
    assert!(shown.contains("\rE[K2 samples, ") || shown.contains("\rE[K3 samples, "), "{shown}");
    for (name, text, more) in [("back", "background", &[][..]), ("quiet", "", &["--quiet"])] {
        let shown = record(name, text, more);
        assert!(!shown.contains('\r') && !shown.contains("left: "), "{name}: {shown}");
    }
}

#[test]
fn session_is_announced_on_a_terminal() {
    let words = ["sim", "p100-ghost", "--live", "--", "echo", "ran"];
    let text = "gpuws: simulated machine p100-ghost; real placeholders for ";
    assert!(on_terminal(80, &words, &PLAIN).starts_with(text));
    assert_eq!(on_terminal(80, &[&["--quiet"], &words[..]].concat(), &PLAIN), "ran\n");
    assert_eq!(on_terminal(80, &["sim", "labbox", "--", "echo", "ran"], &PLAIN), "ran\n");
}

#[test]
fn notes_about_a_scheduler_are_printed_unless_quiet() {
    let set = [("NO_COLOR", "1"), ("SLURM_JOB_ID", "4711")];
    let words = ["--sim", "twelve-gpus", "claim", "-n", "2"];
    let (shown, quiet) = (
        on_terminal(80, &words, &set),
        on_terminal(80, &[&words[..], &["--quiet"]].concat(), &set),
    );
    assert!(shown.contains("gpuws: ") && shown.contains("would claim"), "{shown}");
    assert!(quiet.starts_with("simulated machine twelve-gpus\nwould claim"), "{quiet}");
}

/// Runs gpuws on a terminal while all twelve devices are leased and another claim waits.
fn waiting(columns: usize, until: &str, words: &str) -> String {
    let output = script(
        "twelve-gpus",
        &format!(
            "cat > at.py << 'END'\n{PTY}END\n\
             \"$0\" run -n 12 -- sh -c 'touch runs; exec sleep 300' 2> /dev/null & front=$!\n\
             until_so test -e runs\n\
             \"$0\" run -n 12 -- true 2> /dev/null & first=$!\n\
             waits() {{ leases | grep -q '\"ahead_count\":0'; }}; until_so waits\n\
             python3 at.py {columns} {until} \"$0\" {words}; kill $first; wait $first\n\
             kill $front; wait $front"
        ),
    );
    out(&output)
}

#[test]
fn status_line_fits_terminal_advances_and_is_erased() {
    for (words, end) in [
        ("run -n 3 -- true", "gpuws: interrupted; nothing was claimed\n"),
        ("claim -n 3 --hold", ""),
    ] {
        let shown = waiting(40, "0:03", words);
        let pieces: Vec<&str> = shown.split("\rE[K").collect();
        let [head, first, second, .., last] = pieces[..] else { panic!("{words}: {shown}") };
        assert!(!head.contains("waiting"), "{words}: {shown}");
        assert!(first.starts_with("gpuws: waiting for 3 GPUs; 2nd"), "{words}: {shown}");
        assert!(first.contains("… ⠋ 0:0") && second.contains("… ⠙ 0:0"), "{words}: {shown}");
        assert_eq!((first.chars().count(), second.chars().count()), (39, 39), "{words}: {shown}");
        // About 30 pieces; the wait itself checks for changes three times a second.
        assert!(pieces.len() > 17, "it is updated ten times a second: {words}: {shown}");
        assert_eq!(last.trim_start_matches("E[K"), end, "{words}: {shown}");
    }
}

#[test]
fn status_line_is_erased_before_an_error() {
    let shown = waiting(80, "''", "run -n 3 --timeout 1s -- true");
    let last = shown.split("\rE[K").last().unwrap();
    assert!(last.starts_with("gpuws: failed to claim 3 GPUs: not available within"), "{shown}");
    assert!(shown.contains("gpuws: waiting for 3 GPUs; 2nd in the queue; leased by "), "{shown}");
    let quiet = waiting(80, "''", "run --quiet -n 3 --timeout 1s -- true");
    assert!(quiet.starts_with("gpuws: failed to claim 3 GPUs: not available within"), "{quiet}");
}

#[test]
fn background_job_never_overwrites_the_command_line() {
    let shown = waiting(80, "background", "run -n 3 --timeout 3s -- true");
    assert_eq!(
        shown.matches("gpuws: waiting for 3 GPUs; 2nd in the queue; leased by ").count(),
        1,
        "{shown}"
    );
    assert!(!shown.contains('\r') && !shown.contains("E["), "{shown}");
}

#[test]
fn unchanged_status_is_reported_once_and_a_change_soon() {
    let output = script(
        "twelve-gpus",
        "hold() { \"$0\" run -n 6 --gpu $1 -- sh -c \"touch runs-$2; exec sleep 300\" 2> /dev/null & }\n\
         hold 0-5 a; first=$!; hold 6-11 b; second=$!\n\
         until_so test -e runs-a; until_so test -e runs-b\n\
         \"$0\" run --quiet -n 12 --timeout 3s -- true 2> quiet\n\
         \"$0\" run -n 12 -- true 2> message & waiter=$!\n\
         until_so grep -q waiting message; sleep 4.5; grep -c waiting message\n\
         kill $first; changed() { [ $(grep -c waiting message) = 2 ]; }\n\
         until_so changed; kill $waiter; wait $waiter; kill $second; wait\n\
         cut -c -34 message; grep -c 'waiting for' quiet",
    );
    let line = "gpuws: waiting for 12 GPUs; leased";
    let expected = format!(
        "1\ngpuws: simulated machine twelve-gp\n{line}\n{line}\ngpuws: interrupted; nothing was cl\n"
    );
    assert!(out(&output).starts_with(&expected), "{output:?}");
    assert!(out(&output).ends_with("\n0\n"), "{output:?}");
}

#[test]
fn narrow_terminal_omits_columns_of_leases() {
    let output = script(
        "twelve-gpus",
        &format!(
            "cat > at.py << 'END'\n{PTY}END\n\
             \"$0\" claim --gpu 2,3 -n 2 --export --for $$ > /dev/null\n\
             for columns in 59 60; do python3 at.py $columns '' \"$0\" leases; done"
        ),
    );
    let output_text = out(&output);
    let heads: Vec<String> = output_text
        .lines()
        .filter(|line| line.contains(" since "))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let whole = "user GPUs share since process command";
    assert_eq!(heads, ["user GPUs since command", whole], "{output_text}");
    // A command to copy is not cut.
    let mut rows = output_text.lines().filter(|line| !line.contains("gpuws claim"));
    assert!(rows.all(|line| line.chars().count() <= 60), "{output_text}");
}

#[test]
fn repeated_status_replaces_the_last_one_on_a_terminal() {
    let mut command = Command::new("python3");
    let words = ["--sim", "labbox", "status", "-l", "1s"];
    // The second view starts a simulated second later.
    command.args(["-c", PTY, "80", "10:00:01", GPUWS]).args(words);
    command.env("TZ", "UTC").env("TERM", "xterm").env("NO_COLOR", "1").stdin(Stdio::null());
    let shown = out(&command.output().unwrap());
    let views: Vec<&str> = shown.split("E[HE[J").skip(1).collect();
    assert!(
        views.len() >= 2 && views[0].starts_with("simulated machine labbox\n2025-03-03 10:00:00\n"),
        "{shown}"
    );
    assert!(views[1].starts_with("simulated machine labbox\n2025-03-03 10:00:01\n"), "{shown}");
}

#[test]
fn repeated_json_has_one_object_per_line() {
    let output = script(
        "labbox",
        "\"$0\" --json -l 250ms > lines & until_so sh -c 'test $(wc -l < lines) -ge 2'\n\
         kill $!; wait\n\
         head -n 2 lines | cut -c 1-13",
    );
    assert_eq!(out(&output), "{\"schema\":1,\"\n".repeat(2), "{output:?}");
}
