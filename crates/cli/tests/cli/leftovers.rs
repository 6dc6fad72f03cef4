//! Processes that a job leaves and that do not end, hide, or respawn: real processes with an open
//! device file, which have closed every other descriptor that they inherited.

use crate::live::{GPUWS, each_at_once, out, reported, script};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// A holder of GPU 7 that inherited nothing else. `up` shows that it has the device. With an
/// argument, it forks after this many seconds and the parent exits.
const HOLD: &str = "import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
device = os.open(os.environ['GPUWS_SIM_SESSION'] + '/dev/nvidia7', os.O_RDWR)
os.dup2(device, 0)
os.closerange(1, 256)
open('up', 'w').write('up')
end = time.monotonic() + 120
while time.monotonic() < end:
    if len(sys.argv) > 1:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(float(sys.argv[1]))
    else:
        time.sleep(1)
";

/// Prints why a test is skipped.
#[allow(clippy::print_stdout, reason = "a test that does nothing says so")]
fn skip(why: &str) {
    println!("skipped: {why}");
}

/// A cgroup of the version 1 freezer. SIGKILL ends its processes only after it is thawed, unlike in
/// version 2.
struct Freezer(PathBuf);

impl Freezer {
    /// Creates a cgroup; `None`, with a note, if that is impossible.
    fn new(name: &str) -> Option<Self> {
        let path = format!("/sys/fs/cgroup/freezer/gpuws-test-{name}-{}", std::process::id());
        match fs::create_dir(&path) {
            Ok(()) => Some(Freezer(path.into())),
            Err(error) => {
                skip(&format!("no freezer of version 1 can be made: {error}"));
                None
            }
        }
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        // It can be removed after its last process has ended.
        for _ in 0..200 {
            let members = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
            for pid in members.split_whitespace() {
                let _ = Command::new("kill").args(["-KILL", pid]).stderr(Stdio::null()).status();
            }
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::park_timeout(Duration::from_millis(50));
        }
    }
}

/// Shell functions: `hold [SECONDS]` starts the holder; `freeze PID` freezes it in the cgroup `$F`.
fn with_holder(freezer: &str, text: &str) -> String {
    format!(
        "cat > hold.py <<'END'\n{HOLD}END\n\
         export F='{freezer}'\n\
         cat > freeze <<'END'\n\
         echo $1 > $F/cgroup.procs; echo FROZEN > $F/freezer.state\n\
         until grep -q FROZEN $F/freezer.state; do sleep 0.02; done\n\
         END\n\
         keeper() {{ sed -n 's/.*; release now with: kill \\([0-9]*\\)$/\\1/p' message; }}\n\
         {text}"
    )
}

#[test]
fn frozen_job_is_abandoned_at_time_limit_and_keeps_gpu_leased() {
    let Some(freezer) = Freezer::new("limit") else { return };
    let output = script(
        "twelve-gpus",
        &with_holder(
            freezer.path(),
            r#""$0" run --gpu 7 --time-limit 2s --grace 1s -- sh -c '
                 python3 hold.py & until [ -s up ]; do sleep 0.02; done
                 echo $! > $F/cgroup.procs; sh freeze $$' > message 2>&1; echo $?
               "$0" run --gpu 7 --no-wait -- echo granted; echo $?
               echo THAWED > $F/freezer.state
               "$0" run --gpu 7 --timeout 20s -- echo free; cat message >&2"#,
        ),
    );
    assert_eq!(out(&output), "124\n75\nfree\n", "{output:?}");
    let reported = reported(&output);
    assert!(
        reported.contains("python3 is still running, frozen or in uninterruptible sleep"),
        "{reported}"
    );
    assert!(reported.contains("which is frozen or in uninterruptible sleep"), "{reported}");
    assert!(reported.contains("warning: GPU 7 stays leased until they exit"), "{reported}");
    assert!(!reported.contains("grows as fast"), "{reported}");
}

#[test]
fn frozen_leftover_holder_keeps_gpu_leased_without_blocking_run() {
    let Some(freezer) = Freezer::new("left") else { return };
    let output = script(
        "twelve-gpus",
        &with_holder(
            freezer.path(),
            // A reader of the pipe sees its end although the supervisor remains.
            r#"{ "$0" run --gpu 7 --grace 1s --report report -- sh -c '
                   python3 hold.py & until [ -s up ]; do sleep 0.02; done; sh freeze $!; exit 7'
                 echo $? > code; } 2>&1 | cat > message
               cat code; grep -c '"lease_stays":true' report
               "$0" run --gpu 7 --no-wait -- echo granted; echo $?
               leases | grep -c '"leases":\[{'
               echo THAWED > $F/freezer.state
               "$0" run --gpu 7 --timeout 20s -- echo free
               gone() { ! kill -0 $(keeper); }; until_so gone 2> /dev/null; cat message >&2"#,
        ),
    );
    assert_eq!(out(&output), "7\n1\n75\n1\nfree\n", "{output:?}");
    assert!(reported(&output).contains("python3 exits; release now with: kill "), "{output:?}");
}

#[test]
fn ending_leftover_process_frees_leased_gpu() {
    let Some(freezer) = Freezer::new("given-up") else { return };
    let output = script(
        "twelve-gpus",
        &with_holder(
            freezer.path(),
            r#""$0" run --gpu 7 --grace 1s -- sh -c '
                 python3 hold.py & until [ -s up ]; do sleep 0.02; done; sh freeze $!' 2> message
               kill -HUP $(keeper); "$0" run --gpu 7 --no-wait -- echo granted; echo $?
               kill $(keeper); "$0" run --gpu 7 --timeout 20s -- echo free"#,
        ),
    );
    assert_eq!(out(&output), "75\nfree\n", "{output:?}");
}

#[test]
fn holder_forking_itself_is_ended_alone() {
    each_at_once(["0", "0.001", "0.02", "0.2"], |pause| {
        let output = script(
            "twelve-gpus",
            &with_holder(
                "",
                &format!(
                    r#""$0" run --gpu 7 --grace 1s -- sh -c '
                         sleep 300 > /dev/null 2>&1 & echo $! > innocent
                         python3 hold.py {pause} & until [ -s up ]; do sleep 0.02; done'
                       kill -0 $(cat innocent) && echo lives; kill $(cat innocent)
                       for one in /proc/[0-9]*; do
                         [ $one/fd/0 -ef $GPUWS_SIM_SESSION/dev/nvidia7 ] && echo holder; done
                       leases | grep -c '"leases":\[\]'"#
                ),
            ),
        );
        assert_eq!(out(&output), "lives\n1\n", "{pause}: {output:?}");
        assert!(reported(&output).contains("ended, memory freed"), "{pause}: {output:?}");
    });
}

#[test]
fn loop_respawning_holders_is_ended() {
    let output = script(
        "twelve-gpus",
        &with_holder(
            "",
            r#"cat > again.py <<'END'
import os, subprocess, time
open('loop', 'w').write(str(os.getpid()))
while True:
    subprocess.call(['python3', 'hold.py'], close_fds=True)
    time.sleep(0.5)
END
               "$0" run --gpu 7 --grace 1s -- sh -c '
                 python3 again.py > /dev/null 2>&1 & until [ -s up ]; do sleep 0.02; done'
               kill -0 $(cat loop) 2> /dev/null || echo ended
               leases | grep -c '"leases":\[\]'"#,
        ),
    );
    assert_eq!(out(&output), "ended\n1\n", "{output:?}");
}

#[test]
fn holder_hidden_by_fd_limit_keeps_gpu_leased() {
    let output = script(
        "twelve-gpus",
        &with_holder(
            "",
            r#"sh -c 'ulimit -n 21; exec "$0" run --gpu 7 --grace 1s -- sh -c "
                 python3 hold.py & echo \$! > pid; until [ -s up ]; do sleep 0.02; done"' "$0"
               # Where it can be seen, it has ended.
               if kill -0 $(cat pid) 2> /dev/null; then
                 "$0" run --gpu 7 --no-wait -- echo granted && echo twice; kill -KILL $(cat pid); fi
               "$0" run --gpu 7 --timeout 20s -- echo free"#,
        ),
    );
    assert_eq!(out(&output), "free\n", "{output:?}");
}

/// The unprivileged user "nobody".
const NOBODY: &str = "65534";

#[test]
fn undumpable_leftover_does_not_keep_unlisted_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new(GPUWS);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let uid = NOBODY.parse().ok();
    if chown(dir.path(), uid, uid).is_err() {
        return skip("only root can run this as another user");
    }
    let run = |text: &str| {
        Command::new("setpriv")
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
            .args(["sh", "-c", text])
            .arg(program)
            .env("HOME", dir.path())
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("XDG_STATE_HOME")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    if !run("test -x \"$0\"").status.success() {
        return skip(&format!("'{}' is closed to other users", program.display()));
    }
    // A program with only execute permission is not dumpable, so its descriptors are hidden.
    let output = run(r#"exec "$0" sim twelve-gpus --live -- sh -c '
        cp /bin/sleep blind; chmod 0111 blind
        "$0" run --gpu 7 -- sh -c "
          setsid ./blind 300 9<> \$GPUWS_SIM_SESSION/dev/nvidia7 > /dev/null 2>&1 & echo \$! > pid
          until [ \$(cat /proc/\$!/comm) = blind ]; do sleep 0.02; done
          exit 7"; echo $?
        "$0" run --gpu 7 --no-wait -- echo granted; echo $?
        kill -0 $(cat pid) && echo lives; kill $(cat pid)' "$0""#);
    assert_eq!(out(&output), "7\ngranted\n0\nlives\n", "{output:?}");
    let reported = reported(&output);
    assert!(
        reported.contains("blind is still running; its descriptors are unreadable"),
        "{reported}"
    );
    assert!(!reported.contains("stays leased"), "{reported}");
}
