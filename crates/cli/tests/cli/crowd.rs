//! A run does not depend on the number of other processes, because it opens none of them.

use crate::live::{out, reported, script};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Prints which of the processes in the file `crowd` were opened, by system calls such as
/// `openat(7</proc>, "4711/stat"` and `open("/proc/4711/comm"`.
const COUNT: &str = r#"
import re, sys
crowd = set(open('crowd').read().split())
for name in sys.argv[1:]:
    calls = re.findall(r'(?:</proc>, "|"/proc/)(\d+)', open(name).read())
    print(name, len(crowd & set(calls)), 'of', len(crowd))
"#;

fn is_traced() -> bool {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-o", "/dev/null", "true"]).stderr(Stdio::null());
    traced.status().is_ok_and(|status| status.success())
}

#[test]
fn run_opens_no_foreign_process() {
    if !is_traced() {
        let _ = writeln!(std::io::stderr(), "skipped: no program can be traced here (strace)");
        return;
    }
    // 'walk' checks that opening all processes would be noticed.
    let begin = "for n in $(seq 50); do sleep 300 >/dev/null 2>&1 & echo $! >> crowd; done\n\
         trap 'kill $(cat crowd)' EXIT\n\
         traced() { strace -f -y -e trace=file -o \"$@\" >/dev/null 2>&1; }\n";
    let runs = "traced alone \"$0\" run -- true\n\
         traced leaves \"$0\" run -- sh -c 'sleep 3 &'\n\
         \"$0\" run -n 12 -- sh -c 'until [ -e queued ]; do sleep 0.05; done' >/dev/null 2>&1 &\n\
         has() { leases | grep -q \"$1\"; }\n\
         until_so has '\"leases\":\\[{'\n\
         { until_so has '\"queue\":\\[{'; touch queued; } &\n\
         traced waits \"$0\" run -- true\n\
         traced walk \"$0\" holders\n";
    let count =
        format!("cat > count.py <<'END'{COUNT}END\npython3 count.py alone leaves waits walk");
    let output = script("twelve-gpus", &format!("{begin}{runs}{count}"));
    let expected = "alone 0 of 50\nleaves 0 of 50\nwaits 0 of 50\nwalk 50 of 50\n";
    assert_eq!(out(&output), expected, "{}", reported(&output));
}
