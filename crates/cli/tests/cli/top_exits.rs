//! `gpuws top` when it is stopped from outside, when its terminal is closed, or when its terminal
//! changes its size endlessly.

use crate::live::{GPUWS, out};
use crate::top::{RESTORED, TOP, on_terminal};
use std::process::{Command, Stdio};

/// Runs a command on a pseudo-terminal that does not control it, or that controls it if the first
/// argument is `controls`, until it shows a process. Then performs the action of the second
/// argument, and prints how the command ended and whether it spent more than a second of CPU time.
const LOSES: &str = "import fcntl, os, resource, signal, struct, sys, termios, time
controls, then, *command = sys.argv[1:]
signal.alarm(60)
master, slave = os.openpty()
def size(rows, columns):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
size(24, 80)
usual = termios.tcgetattr(slave)
job = os.fork()
if job == 0:
    os.setsid()
    if controls == 'controls': fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    if controls == 'nohup': signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for fd in 0, 1, 2: os.dup2(slave, fd)
    os.execvp(command[0], command)
shown = b''
while b'21044' not in shown: shown += os.read(master, 65536)
if then == 'resize':
    for number in range(200):
        size(1 + number * 7 % 60, 1 + number * 13 % 250)
        os.kill(job, signal.SIGWINCH)
    size(24, 80)
    os.kill(job, signal.SIGWINCH)
    os.write(master, b'q')
    os.close(slave)
    try:
        while piece := os.read(master, 65536): shown += piece
    except OSError: pass
elif then == 'stall':
    # Nothing is read any more: whole screens are written until a write blocks.
    def written():
        with open('/proc/%d/io' % job) as counts: return counts.read().split('wchar: ')[1].split()[0]
    before, same = '', 0
    while same < 20:
        os.write(master, b'\\x0c')
        time.sleep(0.05)
        now = written()
        before, same = now, same + 1 if now == before else 0
    os.kill(job, signal.SIGTERM)
else:
    os.close(slave)
    os.close(master)
status = os.waitpid(job, 0)[1]
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
if then == 'stall': print('same settings: %s' % (termios.tcgetattr(slave) == usual))
print('ended with %d, spun: %s' % (os.waitstatus_to_exitcode(status), usage.ru_utime > 1))
if then == 'resize': print(shown.decode(errors='replace').replace('\\x1b', 'E'), end='')
";

fn with_terminal(controls: &str, then: &str) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", LOSES, controls, then, GPUWS]).args(TOP);
    for name in ["CUDA_VISIBLE_DEVICES", "GPUWS_SIM_SESSION", "COLUMNS", "LINES"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    out(&output)
}

#[test]
fn stop_from_outside_gives_the_terminal_back() {
    // A screen that was drawn before the stop does not count as one after it.
    for (stops, steps) in [
        (1, "21044=SIGTSTP|1049l=|21044=q"),
        (3, "21044=SIGTSTP|1049l=|21044=\\x1a|1049l=|21044=SIGTSTP|1049l=|21044=q"),
    ] {
        let shown = on_terminal((80, 24), steps, &TOP);
        let stopped = "stopped, same settings: True\n".repeat(stops);
        let head = format!("{stopped}ended with 0, same settings: True\nE[?1049h");
        assert!(shown.starts_with(&head), "{steps}: {shown}");
        // Once for each stop, and at the end.
        assert_eq!(shown.matches(RESTORED).count(), stops + 1, "{steps}: {shown}");
        assert!(shown.ends_with(RESTORED), "{steps}: {shown}");
    }
}

#[test]
fn closed_terminal_ends_the_program() {
    for controls in ["controls", "does not", "nohup"] {
        assert_eq!(with_terminal(controls, "close"), "ended with -1, spun: False\n", "{controls}");
    }
}

#[test]
fn sigterm_ends_the_program_while_the_terminal_takes_no_output() {
    let shown = with_terminal("does not", "stall");
    assert_eq!(shown, "same settings: True\nended with -15, spun: False\n");
}

#[test]
fn many_sizes_in_a_row_leave_a_restored_terminal() {
    let shown = with_terminal("does not", "resize");
    assert!(shown.starts_with("ended with 0, spun: False\n"), "{shown}");
    assert!(shown.ends_with(RESTORED) && !shown.contains("panicked"), "{shown}");
}
