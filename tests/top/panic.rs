//! A panic in any thread restores the terminal before it is reported.

use gpu_host::SystemClock;
use gpu_top::{Frames, Machine, Options, Settings, Theme, Top};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Runs a command on a pseudo-terminal, prints its output with `E` for the escape character, and
/// then prints whether the terminal settings are unchanged.
const PTY: &str = "import os, pty, sys, termios
leader, follower = pty.openpty()
before = termios.tcgetattr(follower)
pid = os.fork()
if pid == 0:
    os.setsid(); os.close(leader)
    for fd in range(3): os.dup2(follower, fd)
    import fcntl; fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.execvp(sys.argv[1], sys.argv[1:])
os.waitpid(pid, 0)
os.set_blocking(leader, False)
shown = b''
try:
    while True: shown += os.read(leader, 65536)
except OSError: pass
print(shown.decode().replace('\\x1b', 'E'))
print('same settings:', termios.tcgetattr(follower) == before)
";

#[test]
fn panic_in_snapshot_restores_terminal_and_ends_view() {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", PTY]).arg(own);
    command.args(["top::panic::child", "--exact", "--ignored", "--nocapture"]).env("TERM", "xterm");
    let output = command.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let (before, after) = shown.split_once("E[?1049lE[?25h").expect(&shown);
    assert!(before.contains("E[?1049h"), "{shown}");
    assert!(after.contains("the snapshot fails"), "the message is on the main screen: {shown}");
    assert!(after.contains("ended: a thread of the view panicked"), "{shown}");
    assert!(!after.contains("E["), "nothing is drawn after it: {shown}");
    assert!(after.trim_end().ends_with("same settings: True"), "{shown}");
}

/// The child process of the other test.
#[test]
#[ignore = "run by another test"]
fn child() {
    let options = Options { ascii: true, theme: Theme::Mono, ..Options::default() };
    let settings = Settings { interval: Duration::from_secs(1), mouse: true, options };
    let clock = Arc::new(SystemClock::new());
    let frames = Box::new(|_| panic!("the snapshot fails"));
    let ended = Top::new().run(
        settings,
        clock,
        Machine { frames: Frames::Live(frames), ender: None, inspector: None },
    );
    assert!(ended.is_err());
    let message = ended.unwrap_err();
    // The test harness hides the output of a passing test.
    panic!("ended: {message}");
}
