//! The exit status that the caller gets, and jobs that cannot start.

use crate::Test;
use crate::fixture::{Fixture, end_of, how};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

pub(crate) const TESTS: &[Test] = &[
    ("exit_codes_are_propagated", exit_codes_are_propagated),
    ("terminating_signals_are_propagated", terminating_signals_are_propagated),
    ("unstartable_job_exits_126_or_127", unstartable_job_exits_126_or_127),
    ("script_without_shebang_is_run_by_shell", script_without_shebang_is_run_by_shell),
    (
        "environment_and_working_directory_are_inherited",
        environment_and_working_directory_are_inherited,
    ),
    ("stdio_is_inherited", stdio_is_inherited),
    ("job_process_state_matches_direct_start", job_process_state_matches_direct_start),
    ("job_runs_without_terminal", job_runs_without_terminal),
];

fn exit_codes_are_propagated() {
    for code in [0, 1, 3, 130, 255] {
        let fixture = Fixture::new();
        assert_eq!(how(&mut fixture.shell("plain", &format!("exit {code}"))), code);
        assert_eq!(fixture.count(&format!("ended Code({code})")), 1);
        assert_eq!(fixture.count("empty"), 1);
    }
}

fn terminating_signals_are_propagated() {
    // These signals stop a shell script; for the others it gets an exit code.
    for (signal, end) in [(15, -15), (2, -2), (1, -1), (9, 137), (6, 134), (10, 138)] {
        let fixture = Fixture::new();
        let script = format!("ulimit -c 0; kill -{signal} $$");
        assert_eq!(how(&mut fixture.shell("plain", &script)), end, "signal {signal}");
        assert_eq!(fixture.count(&format!("ended Signal({signal})")), 1);
    }
}

fn unstartable_job_exits_126_or_127() {
    let fixture = Fixture::new();
    fs::write(fixture.dir().join("text"), "x").unwrap();
    let bad = fixture.dir().join("bad");
    fs::write(&bad, "#!/nowhere/at-all\n").unwrap();
    fs::set_permissions(&bad, fs::Permissions::from_mode(0o755)).unwrap();
    for (program, code) in
        [("no-such-program", 127), ("./none", 127), ("./text", 126), ("/", 126), ("./bad", 127)]
    {
        let mut front = fixture.front("plain", &[program]).spawn().unwrap();
        assert_eq!(how(&mut front), code, "{program}");
    }
    let failed = fixture.report().iter().filter(|line| line.starts_with("failed")).count();
    assert_eq!(failed, 5);
}

fn script_without_shebang_is_run_by_shell() {
    let fixture = Fixture::new();
    let text = fixture.dir().join("text");
    fs::write(&text, "echo \"$1\" > said; exit 5\n").unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(how(&mut fixture.front("plain", &["./text", "word"]).spawn().unwrap()), 5);
    assert_eq!(fixture.said("said"), "word");
}

fn environment_and_working_directory_are_inherited() {
    let fixture = Fixture::new();
    let script = "echo $SUPERVISE_SET ${SUPERVISE_REPORT-unset} $SUPERVISE_KEPT \"$PWD\" $0 > said";
    let mut front = fixture.front("plain", &["sh", "-c", script]);
    assert_eq!(how(&mut front.env("SUPERVISE_KEPT", "kept").spawn().unwrap()), 0);
    let dir = fixture.dir().display();
    assert_eq!(fixture.said("said"), format!("set unset kept {dir} sh"));
}

fn stdio_is_inherited() {
    let fixture = Fixture::new();
    fs::write(fixture.dir().join("input"), "from a file\n").unwrap();
    let input = fs::File::open(fixture.dir().join("input")).unwrap();
    let mut front = fixture.front("plain", &["sh", "-c", "cat; echo aside >&2"]);
    let output = front.stdin(input).output().unwrap();
    assert_eq!((output.stdout, output.stderr), (b"from a file\n".into(), b"aside\n".into()));
}

fn job_process_state_matches_direct_start() {
    let fixture = Fixture::new();
    fs::write(fixture.dir().join("file"), "inherited\n").unwrap();
    // Signals that are blocked, ignored and pending, descriptors, limits, and one more descriptor.
    let look = "grep -E '^Sig(Q|Pnd|Blk|Ign|Cgt)' /proc/self/status | grep -v SigQ; \
        ls /proc/self/fd; ulimit -a; umask; cat <&7";
    fs::write(fixture.dir().join("look"), look).unwrap();
    let outer = "exec 7< file; trap '' USR2 WINCH; exec \"$@\"";
    let mut direct = std::process::Command::new("sh");
    direct.args(["-c", outer, "sh", "sh", "look"]).current_dir(fixture.dir());
    let mut through = std::process::Command::new("sh");
    through.args(["-c", outer, "sh"]).arg(std::env::current_exe().unwrap());
    through.args(["front", "plain", "sh", "look"]).current_dir(fixture.dir());
    let text = |command: &mut std::process::Command| {
        String::from_utf8(command.stdin(Stdio::null()).output().unwrap().stdout).unwrap()
    };
    let direct = text(&mut direct);
    assert!(direct.ends_with("inherited\n"), "{direct}");
    assert_eq!(text(&mut through), direct);
}

fn job_runs_without_terminal() {
    let fixture = Fixture::new();
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new("setsid");
    command.arg("--wait").arg(program).args(["front", "plain", "sh", "-c"]);
    command.arg("(: < /dev/tty) 2> /dev/null && exit 9; exit 4").stdin(Stdio::null());
    assert_eq!(end_of(&mut command.current_dir(fixture.dir()).spawn().unwrap()).code(), Some(4));
}
