//! `gpuws sim`: programs on a simulated NVML, and real processes that stand for simulated ones.

use std::fs;
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
fn the_code_of_the_command_is_passed() {
    let code =
        |command: &[&str]| gpuws(&[&["sim", "labbox", "--"], command].concat()).status.code();
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["/nobody/has/this"]), Some(127));
    assert_eq!(code(&["/dev/null"]), Some(126));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    for (arguments, code) in [
        (vec!["sim", "no-such-machine", "--", "true"], 2),
        (vec!["sim", "labbox", "--library", "/no/such.so", "--", "true"], 2),
        (vec!["sim", "labbox", "--fault", "nvmlInit_v2=sometimes", "--", "true"], 2),
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
fn the_folder_is_private_and_gone_in_the_end() {
    let script = r#"echo "$GPUWS_SIM_SESSION"; stat -c %a "$GPUWS_SIM_SESSION"
                    readlink "$GPUWS_SIM_SESSION/libnvidia-ml.so.1""#;
    let output = gpuws(&["sim", "labbox", "--", "sh", "-c", script]);
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let [folder, mode, library] = lines[..] else { panic!("{output:?}") };
    assert_eq!(mode, "700");
    assert!(Path::new(library).is_file() && !Path::new(folder).exists(), "{said}");
}

#[test]
fn a_look_through_nvml_shows_what_a_look_without_it_shows() {
    for machine in ["labbox", "p100-ghost", "mig-a100", "lost-gpu", "driver-mismatch"] {
        for view in [&["status", "--json"][..], &["doctor", "--json"]] {
            let through = within(&[machine, "--at", "0"], view);
            let direct = gpuws(&[&["--sim", machine], view].concat());
            assert_eq!(through.status.code(), direct.status.code(), "{machine}: {through:?}");
            if direct.stdout.is_empty() {
                continue;
            }
            let (mut through, mut direct) = (json(&through), json(&direct));
            // The next command to type names the machine by --sim where it was chosen by that.
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
            // In whose words a device says that it is lost differs too.
            let told = |item: &serde_json::Value| item.as_str().is_some_and(is_failure);
            items.retain(|item| !told(item));
            items.iter_mut().for_each(forget_words);
        }
        _ => {}
    }
}

fn is_failure(text: &str) -> bool {
    text.starts_with("failed to ")
}

#[test]
fn the_first_line_says_that_it_is_simulated() {
    let output = within(&["p100-ghost"], &["doctor"]);
    assert!(text(&output.stdout).starts_with("simulated machine p100-ghost"), "{output:?}");
}

#[test]
fn calls_are_counted_for_each_program() {
    let folder = tempfile::tempdir().unwrap();
    let counts = folder.path().join("calls.jsonl");
    within(&["labbox", "--count-calls", counts.to_str().unwrap()], &["status"]);
    let lines = fs::read_to_string(&counts).unwrap();
    let line: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(line["calls"]["nvmlInit_v2"], 1, "{line}");
}

#[test]
fn a_whole_reap_runs_on_real_processes_through_the_real_backend() {
    let output =
        within(&["p100-ghost", "--live"], &["reap", "--gpu", "0", "--grace", "1", "--yes"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said.contains("SIGKILL"), "it ignores SIGTERM: {said}");
    assert!(said.contains("15,849 → 25 MiB"), "{said}");
}

/// A process of this machine that has nothing to do with any simulation.
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
fn within_a_simulation_no_other_real_process_is_reached() {
    let mut stranger = Stranger::new();
    let pid = stranger.0.id().to_string();
    for live in [true, false] {
        let sim: &[&str] = if live { &["p100-ghost", "--live"] } else { &["p100-ghost"] };
        let output = within(sim, &["reap", "--pid", &pid, "--grace", "0", "--yes"]);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        assert!(stranger.lives(), "{output:?}");
    }
}

#[test]
fn without_placeholders_nothing_can_be_ended() {
    let output = within(&["p100-ghost"], &["reap", "--gpu", "0", "--yes"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("only simulated"), "{said}");
    assert!(!said.contains("freed 15"), "{said}");
}

#[test]
fn a_machine_cannot_name_files_outside_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("hostile");
    fs::create_dir(&machine).unwrap();
    let victim = folder.path().join("victim");
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
fn a_request_to_end_reaches_the_command_and_the_folder_goes() {
    let folder = tempfile::tempdir().unwrap();
    let (started, ended) = (folder.path().join("started"), folder.path().join("ended"));
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
            _ => std::thread::yield_now(),
        }
    };
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(ended.exists() && !session.exists());
}
