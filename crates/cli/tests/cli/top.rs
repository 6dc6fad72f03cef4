//! `gpuws top` on a pseudo-terminal: it shows the machine, and restores the terminal on every exit
//! path.

use crate::live::{GPUWS, out};
use std::process::{Command, Stdio};

/// Runs a command as a job of a shell on a pseudo-terminal. Whenever the output since the last step
/// contains a text, the next step follows: text that is typed, or a signal. `fg` follows when the
/// job has stopped. Prints how the job ended and, for the stop and the end, whether the settings of
/// the terminal are those from before; then the output, with `E` for the escape character.
const SHELL: &str = "import fcntl, os, pty, select, signal, struct, sys, termios, time
rows, columns, steps, *command = sys.argv[1:]
steps = [step.split('=', 1) for step in steps.split('|') if step]
signal.alarm(60)
message, tell = os.pipe()
shell, terminal = pty.fork()
if shell == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', int(rows), int(columns), 0, 0))
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    before = termios.tcgetattr(0)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0); os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(command[0], command)
    os.write(tell, b'job %d\\n' % job)
    while True:
        status = os.waitpid(job, os.WUNTRACED)[1]
        same = termios.tcgetattr(0) == before
        os.tcsetpgrp(0, os.getpid())
        if not os.WIFSTOPPED(status): break
        os.write(tell, b'stopped, same settings: %s\\n' % str(same).encode())
        time.sleep(0.2)
        os.tcsetpgrp(0, job); os.kill(job, signal.SIGCONT)
    os.write(tell, b'ended with %d, same settings: %s\\n'
        % (os.waitstatus_to_exitcode(status), str(same).encode()))
    os._exit(0)
os.close(tell)
message = os.fdopen(message)
job = int(message.readline().split()[1])
shown, since = b'', 0
while True:
    if steps and steps[0][0].encode() in shown[since:]:
        action = steps.pop(0)[1]
        since = len(shown)
        if action.startswith('SIG'): os.kill(job, getattr(signal, action))
        else: os.write(terminal, action.encode().decode('unicode_escape').encode())
    try: piece = os.read(terminal, 65536)
    except OSError: break
    if not piece: break
    shown += piece
os.waitpid(shell, 0)
print(message.read(), end='')
print(shown.decode().replace('\\x1b', 'E'), end='')
";

/// Runs `gpuws` with these words on a terminal of this size.
pub(crate) fn on_terminal((columns, rows): (u16, u16), steps: &str, words: &[&str]) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", SHELL, &rows.to_string(), &columns.to_string(), steps, GPUWS]).args(words);
    for name in ["CUDA_VISIBLE_DEVICES", "GPUWS_SIM_SESSION", "NO_COLOR", "COLUMNS", "LINES"] {
        command.env_remove(name);
    }
    // Do not use the settings of the user who runs the tests.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command.env("TZ", "UTC").env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    out(&output)
}

pub(crate) const TOP: [&str; 3] = ["--sim", "labbox", "top"];

/// The last output of the program: the default colours, no mouse, no bracketed paste, the main
/// screen, a visible cursor.
pub(crate) const RESTORED: &str = "E[0mE[?1006lE[?1000lE[?2004lE[?1049lE[?25h";

#[test]
fn terminal_is_restored_on_every_way_out() {
    for (step, end) in [
        ("q", "ended with 0"),
        ("\\x03", "ended with 0"),
        ("SIGTERM", "ended with -15"),
        ("SIGHUP", "ended with -1"),
        ("SIGINT", "ended with -2"),
        ("SIGQUIT", "ended with -3"),
    ] {
        let shown = on_terminal((80, 24), &format!("21044={step}"), &TOP);
        let head = format!("{end}, same settings: True\nE[?1049h");
        assert!(shown.starts_with(&head), "{step}: {shown}");
        assert!(shown.contains("simulated machine labbox"), "{step}: {shown}");
        assert!(shown.ends_with(RESTORED), "{step}: {shown}");
        assert_eq!(shown.matches("E[?1049l").count(), 1, "{step}: {shown}");
    }
}

#[test]
fn stopped_job_gives_the_terminal_back_and_takes_it_again() {
    let shown = on_terminal((80, 24), "21044=\\x1a|1049l=|21044=q", &TOP);
    let head = "stopped, same settings: True\nended with 0, same settings: True\n";
    assert!(shown.starts_with(head), "{shown}");
    assert!(shown.matches("E[?1049h").count() >= 2, "{shown}");
    assert!(shown.ends_with(RESTORED), "{shown}");
}

#[test]
fn mouse_and_colours_follow_the_options() {
    let words = [&TOP[..], &["--no-mouse", "--ascii", "--color", "never"]].concat();
    let shown = on_terminal((80, 24), "21044=q", &words);
    let screen = shown.split("E[?1049h").nth(1).unwrap();
    assert!(!screen.contains("E[?1000h") && screen.is_ascii(), "{shown}");
    assert!(!screen.contains("E[38;5;"), "{shown}");
    let coloured = on_terminal((80, 24), "21044=q", &TOP);
    // Clicks, but no moves.
    assert!(coloured.contains("E[?1000h") && !coloured.contains("E[?1003h"), "{coloured}");
    assert!(coloured.contains("E[38;5;3"), "{coloured}");
}

#[test]
fn terminal_of_unknown_size_is_drawn_as_a_usual_one() {
    let shown = on_terminal((0, 0), "21044=q", &TOP);
    assert!(shown.contains("21044"), "{shown}");
}

#[test]
fn only_selected_devices_and_users_are_shown() {
    let words = [&TOP[..], &["-i", "2-3", "--user", "bob"]].concat();
    let shown = on_terminal((80, 24), "18250=q", &words);
    assert!(!shown.contains("21044") && !shown.contains("71.0/80.0 GiB"), "{shown}");
    // Memory without a listed process is never hidden.
    assert!(shown.contains("19777"), "{shown}");
}

#[test]
fn keys_are_answered_while_the_driver_hangs() {
    // The first two snapshots make eight of these calls.
    let hang = "nvmlDeviceGetUtilizationRates=hang,from=9";
    let words = ["sim", "labbox", "--fault", hang, "--", GPUWS, "top"];
    let shown = on_terminal((120, 24), "nvmlDeviceGetUtilizationRates=m|▼=q", &words);
    assert!(shown.starts_with("ended with 0, same settings: True\n"), "{shown}");
    assert!(shown.ends_with(RESTORED), "{shown}");
}

#[test]
fn view_is_drawn_and_quits_without_any_snapshot() {
    let hang = "nvmlDeviceGetUtilizationRates=hang";
    let words = ["sim", "labbox", "--fault", hang, "--", GPUWS, "top"];
    let shown = on_terminal((80, 24), "looking=q", &words);
    assert!(shown.starts_with("ended with 0, same settings: True\n"), "{shown}");
    assert!(shown.ends_with(RESTORED) && !shown.contains("GiB"), "{shown}");
}

#[test]
fn view_ends_process_of_session_and_its_memory_is_freed() {
    let words = ["sim", "labbox", "--live", "--", "sh", "-c"];
    let then =
        r#""$0" top; "$0" query --query-gpu=index,memory.used --format=csv,noheader,nounits"#;
    let words = [&words[..], &[then, GPUWS]].concat();
    // Blanks may be missing on the screen, because only changes are written. The result is printed
    // when the view has ended.
    let steps = "notebook.py=jj|notebook.py=K|requested=\\ry|seen=q";
    let shown = on_terminal((100, 30), steps, &words);
    assert!(shown.starts_with("ended with 0, same settings: True\n"), "{shown}");
    let (_, after) = shown.rsplit_once(RESTORED).expect(&shown);
    for message in ["SIGTERM", "exited after", "24,580 → 4 MiB   freed 24,576 MiB", "\n2, 4"] {
        assert!(after.contains(message), "{message}: {shown}");
    }
}

#[test]
fn read_only_view_shows_no_way_to_end_processes() {
    let words = [&TOP[..], &["--read-only"]].concat();
    let shown = on_terminal((100, 60), "21044=jK\\x1b[20~?|screen=q", &words);
    assert!(!shown.contains("SIGTERM") && !shown.contains("F9"), "{shown}");
}

/// Runs `gpuws top` without a terminal, with settings of this text and mode.
fn with_settings(text: &str, mode: u32) -> (Option<i32>, String) {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gpuws/top.toml");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", SHELL, "24", "80", "21044=q", GPUWS]).args(TOP);
    command.env("XDG_CONFIG_HOME", dir.path()).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    command.env_remove("NO_COLOR").env_remove("GPUWS_SIM_SESSION");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let shown = out(&output);
    let code = shown.lines().next().and_then(|line| line.split([' ', ',']).nth(2)?.parse().ok());
    (code, shown)
}

#[test]
fn settings_of_the_user_are_applied_and_wrong_ones_are_named() {
    let (code, shown) = with_settings("theme = 'light'\nsort = 'user'\nmouse = false\n", 0o644);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("E[38;5;1") && !shown.contains("E[38;5;3"), "no yellow: {shown}");
    assert!(shown.contains("USER▲") && !shown.contains("E[?1000h"), "{shown}");
    let (code, shown) = with_settings("sorted = 'pid'\n", 0o644);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("unknown setting 'sorted'; did you mean 'sort'?"), "{shown}");
    let (code, shown) = with_settings("sort = 'user'\n", 0o666);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("which is writable by others"), "{shown}");
    assert!(!shown.contains("USER▲"), "{shown}");
}

/// Records five minutes of a simulated machine, from 10:00:00 on.
fn history() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let machine = gpu_sim::Simulation::embedded("labbox").unwrap();
    let descriptor = std::fs::File::open(dir.path()).unwrap();
    let mut writer =
        gpu_history::Writer::open(descriptor, gpu_history::Retention::default()).unwrap();
    for _ in 0..300 {
        let snapshot = gpu_core::observe(&machine, &machine, &machine);
        writer.add(&gpu_history::Frame { snapshot, leases: Ok(Vec::new()) }).unwrap();
        gpu_core::Clock::sleep(&machine, std::time::Duration::from_secs(1));
    }
    dir
}

#[test]
fn history_is_played_from_a_time_and_sought() {
    let dir = history();
    let path = dir.path().to_str().unwrap();
    let words = ["top", "--replay", path, "--at", "10:02"];
    // A stop is shown after the frame of the jump; then the whole screen is redrawn.
    let steps = "10:02:0=g10:04:30\\rz|pause=\\x0c|10:04:3=K?|forward=q";
    let shown = on_terminal((120, 50), steps, &words);
    assert!(shown.starts_with("ended with 0, same settings: True\n"), "{shown}");
    assert!(shown.contains("recording of simulated machine labbox"), "{shown}");
    assert!(!shown.contains("SIGTERM") && !shown.contains("F9"), "{shown}");
    assert!(shown.ends_with(RESTORED), "{shown}");
    let words = ["top", "--replay", path, "--at", "10:04", "--speed", "60"];
    let shown = on_terminal((80, 24), "end=q", &words);
    assert!(shown.starts_with("ended with 0") && shown.contains("×60"), "{shown}");
    let shown = on_terminal((80, 24), "", &[&TOP[..], &["--replay", path]].concat());
    assert!(shown.starts_with("ended with 2") && shown.contains("cannot be used with"), "{shown}");
    for (at, message) in [("noon", "expected e.g."), ("10:09", "it covers 2025-03-03 10:00:00")] {
        let shown = on_terminal((80, 24), "", &["top", "--replay", path, "--at", at]);
        assert!(shown.starts_with("ended with 2") && shown.contains(message), "{at}: {shown}");
    }
    let empty = tempfile::tempdir().unwrap();
    let words = ["top", "--replay", empty.path().to_str().unwrap()];
    let shown = on_terminal((80, 24), "", &words);
    assert!(shown.contains("it has no sample"), "{shown}");
}

#[test]
fn replayed_frame_is_judged_with_the_minute_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("past");
    let path = path.to_str().unwrap();
    let words = ["--sim", "shared-lab", "record", "--names", "--for", "16m", "--every", "5s"];
    let recorded = Command::new(GPUWS).args(words).arg(path).output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    // Its GPU is idle and its CPU is not, so one frame is not enough evidence. A stop is shown
    // after the frame of the jump.
    for steps in ["finetune=q", "finetune=[|pause=\\x0c|finetune=q"] {
        let words = ["top", "--replay", path, "--at", "10:15:50"];
        let shown = on_terminal((120, 50), steps, &words);
        let row = shown.rsplit("29410").next().and_then(|after| after.split("30001").next());
        let row = row.expect(&shown);
        assert!(row.contains("finetune.py") && !row.contains("idle holder"), "{shown}");
    }
}

#[test]
fn output_without_a_terminal_is_refused() {
    let mut command = Command::new(GPUWS);
    let output = command.args(TOP).stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("gpuws status prints the same as text") && output.stdout.is_empty(),
        "{error}"
    );
    let mut command = Command::new(GPUWS);
    let output = command.args(["top", "-d", "1ms"]).stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("must be from 0.1s to 1d"), "the limits of the settings: {error}");
    let mut command = Command::new(GPUWS);
    let output = command.args(["top", "--json"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
