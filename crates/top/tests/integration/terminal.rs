//! The view on a terminal: how it takes it, uses it, and gives it back.
//!
//! Each test runs itself again on a pseudo-terminal, where it only shows the view.

use crate::fixture::{Made, made, options};
use gpu_core::{Clock, Environment, Timestamp};
use gpu_top::ending::Proposal;
use gpu_top::inquiry::{Answer, Inquiry};
use gpu_top::rows::{Device, measured};
use gpu_top::{
    Aim, CpuTimes, Ended, Ender, Frame, Frames, Inspector, Machine, Recording, Settings, Top,
};
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a command on a pseudo-terminal that controls it. Each step waits for a text, and then
/// sends keys or a signal or changes the size. Prints how the command ended, whether the settings
/// of the terminal are as before, and its output with `E` for the escape character. The command
/// starts with SIGTSTP blocked: the view blocks it in its own threads, but not in that of the test
/// harness, which would take it.
const TERMINAL: &str = "import fcntl, os, select, signal, struct, sys, termios
steps, *command = sys.argv[1:]
signal.alarm(30)
master, slave = os.openpty()
def size(rows, columns):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
size(24, 80)
usual = termios.tcgetattr(slave)
job = os.fork()
if job == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in 0, 1, 2: os.dup2(slave, fd)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
    os.execvp(command[0], command)
shown = b''
for step in steps.split('|'):
    text, then = step.split('=')
    start = len(shown)
    while text.encode() not in shown[start:]: shown += os.read(master, 65536)
    if then == 'WIDER': size(24, 120)
    elif then.startswith('SIG'): os.kill(job, getattr(signal, then))
    else: os.write(master, then.encode().decode('unicode_escape').encode('latin1'))
ended = 0
while not ended or select.select([master], [], [], 0)[0]:
    if select.select([master], [], [], 0.02)[0]: shown += os.read(master, 65536)
    if not ended: ended, status = os.waitpid(job, os.WNOHANG)
same = termios.tcgetattr(slave) == usual
print('ended with %d, same settings: %s' % (os.waitstatus_to_exitcode(status), same))
print(shown.decode(errors='replace').replace('\\x1b', 'E'))
";

/// Set in the process on the pseudo-terminal.
const INSIDE: &str = "GPU_TOP_TEST_ON_TERMINAL";
/// What the view writes first and last.
const TAKEN: &str = "E[?1049h";
const RESTORED: &str = "E[?1049l";

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs a test of this module again on a pseudo-terminal, and returns what it has shown.
fn on_terminal(test: &str, steps: &str) -> String {
    let test = format!("terminal::{test}");
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL, steps]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &test, "--nocapture"]);
    command.env(INSIDE, "1").env("TERM", "xterm").env_remove("COLUMNS").env_remove("LINES");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

struct RealClock(Instant);

#[expect(clippy::disallowed_methods, reason = "the view waits for a real terminal")]
fn clock() -> Arc<dyn Clock> {
    Arc::new(RealClock(Instant::now()))
}

impl Clock for RealClock {
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "the view waits for a real terminal")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// Knows one variable, and plans nothing.
struct Answers;

impl Inspector for Answers {
    fn answer(&self, inquiry: Inquiry) -> Answer {
        let Inquiry::Environment(key) = inquiry else {
            return Answer::Leases(Err("unknown-leases".to_owned()));
        };
        let variables = vec![("ANSWER".to_owned(), "fortytwo".to_owned())];
        Answer::Environment(key, Ok(Environment { variables, is_cut: false }))
    }
}

impl Ender for Answers {
    fn plan(&mut self, aim: &Aim) -> Result<Proposal, String> {
        let Aim::Processes(keys) = aim else { return Err("another aim".to_owned()) };
        Err(format!("refused-{}", keys.len()))
    }

    fn obstacle(&self) -> Option<String> {
        None
    }

    fn execute(
        &mut self,
        _: &Proposal,
        _: &mut dyn FnMut(gpu_reaper::Event<'_>) -> ControlFlow<()>,
    ) -> Result<gpu_reaper::Report, String> {
        Err("there is no plan".to_owned())
    }
}

/// Names without a letter in common at any position, so that a change writes the whole name.
const NAMES: [&str; 5] = ["alpha", "BRAVO", "cello", "DELTA", "eerie"];

/// A snapshot with a process that is named after its number.
fn numbered(number: usize) -> Frame {
    made(1, &[Made::new(0, 7, "bob", 10, NAMES[number])], 1000 * (number as u64 + 1))
}

/// Shows a view, and prints how it has ended.
#[expect(clippy::print_stdout, reason = "it is what the test reads")]
fn show(top: Top, frames: Frames, mouse: bool) {
    let settings = Settings { interval: Duration::from_millis(20), mouse, options: options() };
    let (ender, inspector) = (Some(Box::new(Answers) as _), Some(Arc::new(Answers) as _));
    let machine = Machine { frames, ender, inspector };
    let left = top.run(settings, clock(), machine).unwrap();
    assert!(left.record.is_empty());
    match left.ended {
        Ended::Quit => println!("the user has quit"),
        Ended::Signal(signal) => gpu_top::end_by(signal),
    }
}

/// Shows snapshots without end.
fn live(mouse: bool) {
    let mut number = 1;
    let next = move |_| {
        number = 1 - number;
        numbered(number)
    };
    show(Top::new(), Frames::Live(Box::new(next)), mouse);
}

/// Returns how the process ended, and checks that it took the terminal so often and gave it back.
fn ended(shown: &str, taken: usize) -> &str {
    let count = |text| shown.matches(text).count();
    assert_eq!((count(TAKEN), count(RESTORED)), (taken, taken), "{shown}");
    let last = |text| shown.rfind(text).unwrap();
    assert!(last(TAKEN) < last(RESTORED), "{shown}");
    // The cursor is hidden meanwhile.
    assert!(last("E[?25l") < last("E[?25h"), "{shown}");
    shown.lines().next().unwrap()
}

#[test]
fn view_shows_each_snapshot_until_the_user_quits() {
    if is_inside() {
        return live(false);
    }
    let steps = "alpha=r|BRAVO=|alpha=z|paused=q";
    let shown = on_terminal("view_shows_each_snapshot_until_the_user_quits", steps);
    assert_eq!(ended(&shown, 1), "ended with 0, same settings: True");
    assert!(shown.contains("the user has quit"), "{shown}");
    assert!(!shown.contains("E[?1000h"), "the mouse belongs to the terminal: {shown}");
    // Each frame is complete before it is shown.
    let count = |text| shown.matches(text).count();
    let (begun, ended) = (count("E[?2026h"), count("E[?2026l"));
    assert!(begun > 1 && ended == begun + 1, "the last one restores the terminal: {shown}");
    assert_eq!(count("E[2J"), 1, "only the first frame clears the screen: {shown}");
    // The graphs of the first snapshot move the table, if a frame came before it.
    let moves = usize::from(shown.contains("looking"));
    assert_eq!(count("GPU-MEM"), 1 + moves, "only changes are written: {shown}");
}

#[test]
fn mouse_is_used_and_given_back() {
    if is_inside() {
        return live(true);
    }
    // A click on the first row of the table, and the wheel.
    let steps = "alpha=\\x1b[<0;5;13M\\x1b[<0;5;13m|E[7m=q".replace("E[7m", "\u{1b}[7m");
    let shown = on_terminal("mouse_is_used_and_given_back", &steps);
    assert_eq!(ended(&shown, 1), "ended with 0, same settings: True");
    let last = |text| shown.rfind(text).unwrap();
    assert!(last("E[?1000h") < last("E[?1000l"), "{shown}");
}

#[test]
fn questions_and_plans_are_answered_on_other_threads() {
    if is_inside() {
        return live(false);
    }
    let steps = "alpha=je|fortytwo=e|alpha=l|unknown-leases=l|alpha=jK|refused-1=\\x1b|alpha=q";
    let shown = on_terminal("questions_and_plans_are_answered_on_other_threads", steps);
    assert_eq!(ended(&shown, 1), "ended with 0, same settings: True");
}

#[test]
fn new_size_of_the_terminal_is_used_at_once() {
    if is_inside() {
        return live(false);
    }
    // There is room for the host memory only on a wide screen.
    let steps = "alpha=WIDER|HOST=\\x0c|HOST=q";
    let shown = on_terminal("new_size_of_the_terminal_is_used_at_once", steps);
    assert_eq!(ended(&shown, 1), "ended with 0, same settings: True");
    assert_eq!(shown.matches("E[2J").count(), 3, "the whole screen is drawn again: {shown}");
}

#[test]
fn signal_ends_the_program_with_the_terminal_restored() {
    if is_inside() {
        return live(false);
    }
    for (signal, number) in [("SIGTERM", 15), ("SIGINT", 2), ("SIGHUP", 1), ("SIGQUIT", 3)] {
        let test = "signal_ends_the_program_with_the_terminal_restored";
        let shown = on_terminal(test, &format!("alpha={signal}"));
        let expected = format!("ended with -{number}, same settings: True");
        assert_eq!(ended(&shown, 1), expected, "{signal}");
    }
}

#[test]
fn continued_program_takes_the_terminal_again() {
    if is_inside() {
        return live(false);
    }
    // Without a shell, a stop ends at once.
    for stop in ["SIGTSTP", "\\x1a"] {
        let steps = format!("alpha={stop}|?1049h=q");
        let shown = on_terminal("continued_program_takes_the_terminal_again", &steps);
        assert_eq!(ended(&shown, 2), "ended with 0, same settings: True", "{stop}");
    }
}

#[test]
fn wait_of_a_snapshot_is_shown_while_keys_still_work() {
    if is_inside() {
        let top = Top::new();
        let waits = top.waits();
        let mut is_first = true;
        let next = move |_| {
            if !std::mem::take(&mut is_first) {
                waits.stalled("waiting for a \u{1b}library");
                loop {
                    std::thread::park();
                }
            }
            numbered(1)
        };
        return show(top, Frames::Live(Box::new(next)), false);
    }
    let steps = "\\x1blibrary=?|collapse=q";
    let shown = on_terminal("wait_of_a_snapshot_is_shown_while_keys_still_work", steps);
    assert_eq!(ended(&shown, 1), "ended with 0, same settings: True");
    // The help covers the table, and its key works meanwhile.
    assert!(shown.contains("waiting"), "{shown}");
}

/// Five seconds, a snapshot in each.
struct Recorded;

impl Recording for Recorded {
    fn count(&self) -> usize {
        5
    }

    fn time(&mut self, number: usize) -> Option<Timestamp> {
        (number < 5).then(|| Timestamp(1000 * (number as u64 + 1)))
    }

    fn position(&mut self, time: Timestamp) -> Option<usize> {
        (time.0 as usize / 1000).min(5).checked_sub(1)
    }

    fn frame(&mut self, number: usize) -> Option<Frame> {
        Some(numbered(number))
    }

    fn devices(&mut self, number: usize) -> Option<Vec<Device>> {
        Some(measured(&numbered(number).snapshot, |_| true))
    }

    fn cpu_times(&mut self, number: usize) -> Option<CpuTimes> {
        Some(CpuTimes::of(&numbered(number).snapshot))
    }

    fn moment(&self, _: &str) -> Result<Timestamp, String> {
        Err("no-such-moment".to_owned())
    }

    fn refresh(&mut self) -> bool {
        false
    }

    fn damaged(&self) -> usize {
        0
    }
}

#[test]
fn recording_is_played_to_its_end_and_obeys_keys() {
    if is_inside() {
        let recording = Box::new(Recorded);
        return show(Top::new(), Frames::Recording(recording, None, 10.0), false);
    }
    let steps = "eerie={|alpha=z|paused=gx\\r|no-such-moment=\\x03";
    let shown = on_terminal("recording_is_played_to_its_end_and_obeys_keys", steps);
    assert_eq!(ended(&shown, 1), "ended with 0, same settings: True");
}
