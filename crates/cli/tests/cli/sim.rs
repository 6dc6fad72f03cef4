//! `gpuws sim`: programs on a simulated NVML, and real placeholder processes for simulated ones.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn gpuws(arguments: &[&str]) -> Output {
    let output = command(arguments).output().unwrap();
    assert!(output.status.code().is_some(), "ended by a signal: {output:?}");
    output
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(arguments).env_remove("LD_LIBRARY_PATH").env_remove("GPUWS_SIM_SESSION");
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// Runs gpuws in a session of a machine.
fn within(sim: &[&str], inner: &[&str]) -> Output {
    let own = env!("CARGO_BIN_EXE_gpuws");
    gpuws(&[&["sim"], sim, &["--", own], inner].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn demo_of_two_claims_shows_exclusion() {
    let claims = tempfile::tempdir().unwrap();
    for dir in [None, Some(claims.path())] {
        let mut demo = command(&["demo", "claims"]);
        let demo = demo.env_remove("GPUWS_CLAIMS").envs(dir.map(|dir| ("GPUWS_CLAIMS", dir)));
        let shown = demo.env("CUDA_VISIBLE_DEVICES", "7").output().unwrap();
        let text = text(&shown.stdout);
        assert_eq!(shown.status.code(), Some(0), "{shown:?}");
        assert_eq!(text.matches("Exclusion works").count(), 2, "{text}");
        assert_eq!(text.matches("exit 0\n").count(), 3, "{text}");
        assert_eq!(text.matches("exit 75\n").count(), 1, "{text}");
    }
}

#[test]
fn exit_code_of_command_is_propagated() {
    let code =
        |command: &[&str]| gpuws(&[&["sim", "labbox", "--"], command].concat()).status.code();
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["/nobody/has/this"]), Some(127));
    assert_eq!(code(&["/dev/null"]), Some(126));
}

#[test]
fn invalid_arguments_are_rejected_before_command_runs() {
    for (arguments, code) in [
        (vec!["sim", "no-such-machine", "--", "true"], 2),
        (vec!["sim", "labbox", "--library", "/no/such.so", "--", "true"], 2),
        (vec!["sim", "labbox", "--fault", "nvmlInit_v2=sometimes", "--", "true"], 2),
        (vec!["sim", "labbox", "--fault", "nvmlFoo=15", "--", "true"], 2),
        (vec!["sim", "labbox"], 2),
        (vec!["--nvml", "/no/such.so", "status"], 2),
        (vec!["--sim", "labbox", "sim", "labbox", "--", "true"], 2),
        (vec!["--json", "sim", "labbox", "--", "true"], 2),
    ] {
        let output = gpuws(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn session_dir_is_private_and_removed() {
    let script = r#"echo "$GPUWS_SIM_SESSION"; stat -c %a "$GPUWS_SIM_SESSION"
                    readlink "$GPUWS_SIM_SESSION/libnvidia-ml.so.1""#;
    let output = gpuws(&["sim", "labbox", "--", "sh", "-c", script]);
    let output_text = text(&output.stdout);
    let lines: Vec<&str> = output_text.lines().collect();
    let [dir, mode, library] = lines[..] else { panic!("{output:?}") };
    assert_eq!(mode, "700");
    assert!(Path::new(library).is_file() && !Path::new(dir).exists(), "{output_text}");
}

#[test]
fn output_through_nvml_matches_direct_simulation() {
    for machine in ["labbox", "p100-ghost", "mig-a100", "lost-gpu", "driver-mismatch"] {
        for view in [&["status", "--json"][..], &["doctor", "--json"]] {
            let through = within(&[machine, "--at", "0"], view);
            let direct = gpuws(&[&["--sim", machine], view].concat());
            assert_eq!(through.status.code(), direct.status.code(), "{machine}: {through:?}");
            if direct.stdout.is_empty() {
                continue;
            }
            let (mut through, mut direct) = (json(&through), json(&direct));
            // The suggested command has --sim if the machine was selected by it.
            forget_words(&mut through);
            forget_words(&mut direct);
            assert_eq!(through, direct, "{machine} {view:?}");
        }
    }
}

fn forget_words(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.retain(|name, _| name != "command" && name != "fault");
            fields.values_mut().for_each(forget_words);
        }
        serde_json::Value::Array(items) => {
            // The description of a lost device differs, too.
            let reported = |item: &serde_json::Value| item.as_str().is_some_and(is_failure);
            items.retain(|item| !reported(item));
            items.iter_mut().for_each(forget_words);
        }
        _ => {}
    }
}

fn is_failure(text: &str) -> bool {
    text.starts_with("failed to ")
}

#[test]
fn output_is_labelled_as_simulated() {
    let output = within(&["p100-ghost"], &["doctor"]);
    assert!(text(&output.stdout).starts_with("simulated machine p100-ghost"), "{output:?}");
}

#[test]
fn calls_are_counted_per_program() {
    let dir = tempfile::tempdir().unwrap();
    let counts = dir.path().join("calls.jsonl");
    within(&["labbox", "--count-calls", counts.to_str().unwrap()], &["status"]);
    let lines = fs::read_to_string(&counts).unwrap();
    let line: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(line["calls"]["nvmlInit_v2"], 1, "{line}");
}

#[test]
fn live_reap_ends_real_placeholders_through_nvml() {
    let output =
        within(&["p100-ghost", "--live"], &["reap", "--gpu", "0", "--grace", "1", "--yes"]);
    let output_text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output_text.contains("SIGKILL"), "it ignores SIGTERM: {output_text}");
    assert!(output_text.contains("15,849 → 25 MiB"), "{output_text}");
}

/// A process of this machine that is unrelated to any simulation.
struct Stranger(Child);

impl Stranger {
    fn new() -> Self {
        Stranger(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn simulation_never_reaches_foreign_processes() {
    let mut stranger = Stranger::new();
    let pid = stranger.0.id().to_string();
    for live in [true, false] {
        let sim: &[&str] = if live { &["p100-ghost", "--live"] } else { &["p100-ghost"] };
        let output = within(sim, &["reap", "--pid", &pid, "--grace", "0", "--yes"]);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        assert!(stranger.lives(), "{output:?}");
    }
}

/// Creates a library whose loading hangs: a FIFO without a writer.
fn hanging_library(dir: &Path) -> String {
    let library = dir.join("hangs.so");
    assert!(Command::new("mkfifo").arg(&library).status().unwrap().success());
    library.to_str().unwrap().to_owned()
}

#[test]
fn silent_library_does_not_make_machine_real() {
    let dir = tempfile::tempdir().unwrap();
    let library = hanging_library(dir.path());
    let mut stranger = Stranger::new();
    let pid = stranger.0.id().to_string();
    for silent in [&["--nvml", &library, "--deadline", "0.3"][..], &["--deadline", "0.0001"]] {
        for sim in [&["p100-ghost", "--live"][..], &["p100-ghost"]] {
            let output = within(sim, &[silent, &["status"]].concat());
            let output_text = text(&output.stdout);
            assert!(output_text.starts_with("simulated machine p100-ghost"), "{output:?}");
            assert!(output_text.contains("nvidia0"), "its processes are message: {output_text}");
            let output = within(sim, &[silent, &["status", "--json"]].concat());
            assert_eq!(json(&output)["machine"], "p100-ghost", "{output:?}");

            let reap = ["reap", "--pid", &pid, "--grace", "0", "--yes"];
            let output = within(sim, &[silent, &reap].concat());
            assert_ne!(output.status.code(), Some(0), "{output:?}");
            let output_text = text(&output.stdout);
            assert!(output_text.starts_with("simulated machine p100-ghost"), "{output:?}");
            assert!(stranger.lives(), "{output:?}");
        }
    }
}

/// Restarting the program instead would take a quarter of the time of a snapshot.
#[test]
fn driver_is_queried_by_fork_of_program() {
    let dir = tempfile::tempdir().unwrap();
    let library = hanging_library(dir.path());
    let child_of = "\"$0\" status --nvml \"$1\" --deadline 100 >/dev/null 2>&1 & parent=$!\n\
         until child=$(cat /proc/$parent/task/$parent/children) && [ \"$child\" ]; do :; done\n\
         sleep 0.2; tr '\\0' ' ' < /proc/${child% }/cmdline; kill $parent ${child% }";
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", child_of, env!("CARGO_BIN_EXE_gpuws"), &library]).output();
    let output = text(&output.expect("there is a shell").stdout);
    assert!(output.contains(" status --nvml "), "{output}");
}

/// Runs a shell script in a session, with gpuws as `$0`.
fn script(sim: &[&str], script: &str) -> Output {
    let own = env!("CARGO_BIN_EXE_gpuws");
    gpuws(&[&["sim"], sim, &["--", "sh", "-c", script, own]].concat())
}

#[test]
fn session_without_its_library_is_rejected() {
    for view in ["status", "holders", "reap --yes", "status --format gpustat-json"] {
        let output = script(&["labbox"], &format!("unset LD_LIBRARY_PATH; \"$0\" {view}"));
        let output_text = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output_text.contains("the loaded NVML is not simulated"), "{output_text}");
        assert!(
            output_text.contains("start it with 'gpuws sim', or unset GPUWS_SIM_SESSION"),
            "{output_text}"
        );
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn simulated_library_requires_absolute_session_path() {
    for unnamed in [
        "unset GPUWS_SIM_SESSION",
        "GPUWS_SIM_SESSION=",
        "cd $GPUWS_SIM_SESSION/..; GPUWS_SIM_SESSION=$(basename $GPUWS_SIM_SESSION)",
        "cd $GPUWS_SIM_SESSION; unset GPUWS_SIM_SESSION",
        "cd $GPUWS_SIM_SESSION; GPUWS_SIM_SESSION=.",
    ] {
        let output = script(&["labbox"], &format!("{unnamed}; \"$0\" status"));
        let output_text = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{unnamed}: {output:?}");
        assert!(output_text.contains("the session path must be absolute"), "{output_text}");
    }
}

#[test]
fn session_writable_by_others_is_rejected() {
    for dir in ["", "/session.json"] {
        let open = format!("chmod go+w $GPUWS_SIM_SESSION{dir}; \"$0\" status");
        let output = script(&["labbox"], &open);
        let output_text = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output_text.contains("gpuws: failed to read session"), "{output_text}");
        assert!(output_text.contains("is writable by others"), "{output_text}");
    }
}

#[test]
fn session_dir_requires_trusted_parent() {
    let dir = |name: &str, mode| {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap().join(name);
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
        (dir, place)
    };
    let (_own, own) = dir("own", 0o700);
    let (_shared, shared) = dir("shared", 0o777);
    let (_sticky, sticky) = dir("sticky", 0o1777);
    let made = |runtime: &Path, temporary: &Path| {
        let mut command = command(&["sim", "labbox", "--", "sh", "-c", "echo $GPUWS_SIM_SESSION"]);
        command.env("XDG_RUNTIME_DIR", runtime).env("TMPDIR", temporary);
        command.output().unwrap()
    };
    let uid = rustix::process::geteuid().as_raw();
    let own_in_sticky = sticky.join(format!("gpuws-sim-of-{uid}"));
    for (runtime, temporary, place) in [
        (&own, &shared, &own),
        (&sticky, &own, &own),
        (&shared, &own, &own),
        (&own.join("none"), &sticky, &own_in_sticky),
        (&sticky, &sticky, &own_in_sticky),
    ] {
        let output = made(runtime, temporary);
        let session = PathBuf::from(text(&output.stdout).trim_end());
        assert_eq!(session.parent(), Some(place.as_path()), "{output:?}");
    }
    assert!(own_in_sticky.is_dir(), "no other user gets the name of a session");
    fs::remove_dir(&own_in_sticky).unwrap();
    std::os::unix::fs::symlink(&own, &own_in_sticky).unwrap();
    let output = made(&sticky, &sticky);
    assert_eq!(output.status.code(), Some(2), "a link may be another user's: {output:?}");
    let output = made(&shared, &shared);
    let output_text = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        output.stdout.is_empty() && output_text.contains("is writable by others"),
        "{output:?}"
    );
    assert!(output_text.contains("hint: set TMPDIR to a directory that you own"), "{output_text}");
}

#[test]
fn non_simulating_library_is_rejected_before_command_runs() {
    let dir = tempfile::tempdir().unwrap();
    let words = dir.path().join("words.so");
    fs::write(&words, "\0gpuwsSimulatedMachine\0").unwrap();
    let pipe = hanging_library(dir.path());
    for library in ["/bin/sh", "/dev/zero", "/", words.to_str().unwrap(), &pipe] {
        let output = gpuws(&["sim", "labbox", "--library", library, "--", "echo", "ran"]);
        assert_eq!(output.status.code(), Some(2), "{library}: {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{output:?}");
    }
    let output = script(&["labbox"], "readlink -n $GPUWS_SIM_SESSION/libnvidia-ml.so.1");
    let simulated = text(&output.stdout);
    let output = gpuws(&["sim", "labbox", "--library", &simulated, "--", "echo", "ran"]);
    assert_eq!(text(&output.stdout), "ran\n", "{output:?}");
}

#[test]
fn reap_without_live_placeholders_has_no_effect() {
    let output = within(&["p100-ghost"], &["reap", "--gpu", "0", "--yes"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output_text = text(&output.stdout) + &text(&output.stderr);
    assert!(output_text.contains("it is simulated"), "{output_text}");
    assert!(!output_text.contains("freed 15"), "{output_text}");
}

#[test]
fn suggested_command_depends_on_live_mode() {
    for (sim, next) in [
        (&["p100-ghost"][..], "to act on real placeholder processes, use gpuws sim --live"),
        (&["p100-ghost", "--live"], "gpuws reap --gpu 0 --yes"),
    ] {
        let output = within(sim, &["reap", "--gpu", "0"]);
        let output_text = text(&output.stdout);
        let last = output_text.lines().last().unwrap_or_default();
        assert!(last.starts_with("nothing was done") && last.ends_with(next), "{output:?}");
    }
}

#[test]
fn machine_cannot_create_files_outside_session() {
    let dir = tempfile::tempdir().unwrap();
    let machine = dir.path().join("hostile");
    fs::create_dir(&machine).unwrap();
    let victim = dir.path().join("victim");
    let climb = format!("/dev/../../../../../../../../../..{}", victim.display());
    for path in [climb.as_str(), victim.to_str().unwrap()] {
        let text = format!(
            "description = \"made: hostile\"\nclock = 2025-01-01T00:00:00Z\n\
             [[gpu]]\nindex = 0\nmemory_total_mib = 100\n\
             [[process]]\npid = 4711\nname = \"a\"\nfiles = {{ \"{path}\" = \"F...m\" }}\n\
             memory = [{{ gpu = 0, mib = 10 }}]\n"
        );
        fs::write(machine.join("machine.toml"), text).unwrap();
        let output = gpuws(&["sim", machine.to_str().unwrap(), "--live", "--", "true"]);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        assert!(!victim.exists(), "{path} was made: {output:?}");
    }
}

#[test]
fn sigterm_is_forwarded_and_session_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (started, ended) = (dir.path().join("started"), dir.path().join("ended"));
    let script = format!(
        "trap 'touch {}; exit 3' TERM; echo $GPUWS_SIM_SESSION >{}; while :; do sleep 0.05; done",
        ended.display(),
        started.display(),
    );
    let mut child =
        command(&["sim", "labbox", "--live", "--", "sh", "-c", &script]).spawn().unwrap();
    let session = loop {
        match fs::read_to_string(&started) {
            Ok(path) if path.ends_with('\n') => break PathBuf::from(path.trim_end()),
            _ => assert_eq!(child.try_wait().unwrap(), None, "it waits"),
        }
    };
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(ended.exists() && !session.exists());
}

#[test]
fn unused_killed_session_is_removed_by_next_session() {
    let runtime = tempfile::tempdir().unwrap();
    let command = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("XDG_RUNTIME_DIR", runtime.path());
        command
    };
    let script = "echo $GPUWS_SIM_SESSION; exec cat";
    let mut killed = command(&["sim", "labbox", "--live", "--", "sh", "-c", script]);
    // The command ends with its input, also if this test fails.
    let mut killed = killed.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input = killed.stdin.take();
    let mut output = BufReader::new(killed.stdout.take().unwrap());
    let mut session = String::new();
    output.read_line(&mut session).unwrap();
    let session = Path::new(session.trim_end());
    assert!(session.starts_with(runtime.path()), "{}", session.display());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let next = || command(&["sim", "labbox", "--", "true"]).status().unwrap().code();
    assert_eq!((next(), session.join("session.json").exists()), (Some(0), true), "it is in use");
    drop(input);
    // The placeholders end by themselves.
    for _ in 0..500 {
        assert_eq!(next(), Some(0));
        if !session.exists() {
            return;
        }
    }
    panic!("{} is still there", session.display());
}

#[test]
fn copied_session_is_not_removed() {
    let place = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        let mut command = command(&["sim", "labbox", "--", "sh", "-c", script]);
        command.env("XDG_RUNTIME_DIR", place.path()).output().unwrap()
    };
    let output = run("cp -r $GPUWS_SIM_SESSION $XDG_RUNTIME_DIR/gpuws-sim-saved");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(run("true").status.code(), Some(0));
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].path().join("session.json").exists(), "{left:?}");
}

#[test]
fn sim_works_with_low_fd_limit() {
    let own = env!("CARGO_BIN_EXE_gpuws");
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 90; exec \"$0\" sim labbox -- echo ran", own]);
    let output = shell.env_remove("GPUWS_SIM_SESSION").output().unwrap();
    assert_eq!(text(&output.stdout), "ran\n", "{output:?}");
}

#[test]
fn machine_of_a_session_is_found_from_any_directory() {
    let dir = tempfile::tempdir().unwrap();
    // A directory does not hide the shipped machine of its name.
    for name in ["box", "labbox"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let text = "description = 'made'\nclock = 2025-03-03T10:00:00Z\n\
                [[gpu]]\nindex = 0\nmemory_total_mib = 100\n";
    fs::write(dir.path().join("box/machine.toml"), text).unwrap();
    for (machine, count) in [("./box", 1), ("labbox", 4)] {
        let script = "cd /; \"$0\" query --query-gpu=index --format=csv,noheader";
        let words = ["sim", machine, "--", "sh", "-c", script, env!("CARGO_BIN_EXE_gpuws")];
        let output = command(&words).current_dir(dir.path()).output().unwrap();
        assert_eq!(text_lines(&output), count, "{machine}: {output:?}");
    }
}

fn text_lines(output: &Output) -> usize {
    text(&output.stdout).lines().count()
}

#[test]
fn time_of_a_session_starts_with_it() {
    let output = within(&["labbox"], &["query", "--query-gpu=timestamp", "--format=csv,noheader"]);
    assert!(text(&output.stdout).starts_with("2025/03/03 10:00:"), "{output:?}");
}

#[test]
fn command_without_nvml_has_no_counts() {
    let dir = tempfile::tempdir().unwrap();
    let counts = dir.path().join("calls.jsonl");
    let output = gpuws(&["sim", "labbox", "--count-calls", counts.to_str().unwrap(), "--", "true"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{output:?}");
    assert_eq!(fs::read(&counts).unwrap(), b"");
}

/// One process of the driver answers all queries of a loop, and ends with it.
#[test]
fn one_child_answers_a_repeated_query() {
    let dir = tempfile::tempdir().unwrap();
    let counts = dir.path().join("calls.jsonl");
    for view in ["status", "query --query-gpu=index --format=csv", "status --format gpustat-json"] {
        let script = format!("\"$0\" {view} --loop-ms 1 2> /dev/null | head -n 200 | tail -n 1");
        let counts = counts.to_str().unwrap();
        let own = env!("CARGO_BIN_EXE_gpuws");
        let _ = fs::remove_file(counts);
        let output =
            gpuws(&["sim", "labbox", "--count-calls", counts, "--", "sh", "-c", &script, own]);
        assert_eq!(text_lines(&output), 1, "{view}: {output:?}");
        let lines = fs::read_to_string(counts).unwrap();
        let pids: Vec<&str> = lines.lines().filter_map(|line| line.split(',').next()).collect();
        assert!(pids.len() > 1, "{view}: {lines}");
        assert!(pids.iter().all(|pid| pid == &pids[0]), "{view}: {pids:?}");
    }
}

#[test]
fn plan_without_targets_suggests_doctor() {
    let output = within(&["healthy-box"], &["reap"]);
    let last = text(&output.stdout).lines().last().unwrap_or_default().to_owned();
    assert_eq!(last, "nothing was done.   gpuws doctor", "{output:?}");
}

#[test]
fn holders_are_searched_if_requested() {
    let searched = |words: &[&str]| {
        let output = gpuws(&[&["--sim", "healthy-box", "--json", "status"], words].concat());
        json(&output)
    };
    let (plain, holders) = (searched(&[]), searched(&["--holders"]));
    assert_ne!(plain, holders, "{plain}");
    assert_eq!(searched(&["--holders", "-q"]), searched(&["-q"]));
}

/// Without a real nvidia-smi, a session has one: this program in its place.
#[test]
fn nvidia_smi_of_a_session_shows_the_simulated_machine() {
    let answer = |words: &[&str]| {
        let output = gpuws(&[&["sim", "labbox", "--", "nvidia-smi"], words].concat());
        let label = format!("{}{}", text(&output.stderr), text(&output.stdout));
        assert!(label.contains("simulated machine labbox"), "{output:?}");
        assert!(output.status.success(), "{words:?}: {output:?}");
        text(&output.stdout)
    };
    assert_eq!(answer(&["-L"]).lines().count(), 4);
    let rows = answer(&["--query-gpu=index,memory.total", "--format=csv,noheader", "-i", "1"]);
    assert_eq!(rows, "1, 81920 MiB\n");
    assert!(
        answer(&[]).contains("| NVIDIA-SMI 535.261.03             Driver Version: 535.261.03 ")
    );
    assert!(answer(&["-i", "2"]).contains("|   2  NVIDIA A100-SXM4-80GB          On  |"));
    // safe-gpu reads these two lines.
    let details = answer(&["-q", "-i", "1"]);
    for line in ["Attached GPUs                         : 4\n", "    Display Mode "] {
        assert!(details.contains(line), "{details}");
    }
    assert!(answer(&["-q", "-x"]).contains("<attached_gpus>4</attached_gpus>"));
    assert!(answer(&["dmon", "-c", "1"]).starts_with("# gpu "));
    let refused = gpuws(&["sim", "labbox", "--", "nvidia-smi", "--no-such-option"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// A real nvidia-smi in `PATH` takes precedence: it uses the simulated NVML.
#[test]
fn real_nvidia_smi_takes_precedence_in_a_session() {
    let output = script(
        &["labbox"],
        "cd \"$GPUWS_SIM_SESSION\" && mkdir real && printf '#!/bin/sh\\necho real $*\\n' > real/nvidia-smi \
         && chmod +x real/nvidia-smi && PATH=$PWD/real:$PATH nvidia-smi -L",
    );
    assert_eq!(text(&output.stdout), "real -L\n", "{output:?}");
}
