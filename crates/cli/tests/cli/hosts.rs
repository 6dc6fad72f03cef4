//! Several machines: real ssh and a real sshd on the loopback for each host, with simulated
//! machines.

use super::live::GPUWS;
use super::program::{Ended, ended, gpuws, skipped};
use super::top::{RESTORED, on_terminal};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Hosts `a` (labbox: one GPU of four is free), `b` (p100-ghost: none is free), `odd` (the output
/// of its program `gpuws`), and `dead`, which does not answer.
struct Lab {
    dir: tempfile::TempDir,
    started: Vec<Child>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A session ends with its input, and sshd by a signal.
        for child in &mut self.started {
            drop(child.stdin.take());
            let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

/// Returns sshd, if it is installed or `GPUWS_SSHD` names it.
fn sshd() -> Option<PathBuf> {
    let named = std::env::var_os("GPUWS_SSHD").map(PathBuf::from);
    let usual = PathBuf::from("/usr/sbin/sshd");
    named.or(usual.exists().then_some(usual))
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

impl Lab {
    /// Starts the hosts; prints a reason if it cannot.
    fn open() -> Option<Lab> {
        let Some(sshd) = sshd().filter(|_| is_there("ssh") && is_there("ssh-keygen")) else {
            skipped("no OpenSSH server here; GPUWS_SSHD names one");
            return None;
        };
        let mut lab = Lab { dir: tempfile::tempdir().unwrap(), started: Vec::new() };
        let path = lab.path("");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        for key in ["host", "user"] {
            let file = path.join(key);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(file)
                .status();
            assert!(made.unwrap().success());
        }
        fs::create_dir_all(path.join("run/sshd")).unwrap();
        fs::create_dir(path.join("odd")).unwrap();
        fs::create_dir(path.join("bin")).unwrap();
        let programs = Path::new(GPUWS).parent().unwrap().display().to_string();
        let mut config = String::from("Host dead\n Port 1\n");
        for (host, machine) in [("a", Some("labbox")), ("b", Some("p100-ghost")), ("odd", None)] {
            let variables = match machine {
                Some(machine) => {
                    let session = lab.session(machine);
                    format!(
                        "PATH={programs}:/usr/bin:/bin GPUWS_SIM_SESSION={session} \
                         LD_LIBRARY_PATH={session}"
                    )
                }
                None => format!("PATH={}:/usr/bin:/bin", path.join("odd").display()),
            };
            let Some(port) = lab.serve(&sshd, &variables) else {
                skipped(&format!("{} does not start here", sshd.display()));
                return None;
            };
            config.push_str(&format!("Host {host}\n Port {port}\n"));
        }
        config.push_str(&format!(
            "Host *\n HostName 127.0.0.1\n IdentityFile {0}/user\n IdentitiesOnly yes\n \
             UserKnownHostsFile {0}/known\n StrictHostKeyChecking accept-new\n",
            path.display()
        ));
        fs::write(path.join("config"), config).unwrap();
        lab.program("bin/ssh", &format!("exec /usr/bin/ssh -F {}/config \"$@\"", path.display()));
        let tried = lab.ssh("a", "true");
        assert!(tried.status.success(), "{tried:?}\n{}", lab.log());
        Some(lab)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path(name);
        // Rename it, so that no process has it open for writing when it is run.
        let new = self.path("new");
        fs::write(&new, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// Starts a simulated machine and returns the directory of its session.
    fn session(&mut self, machine: &str) -> String {
        let mut child = Command::new(GPUWS)
            .args(["sim", machine, "--live", "--", "sh", "-c"])
            .arg("echo \"$GPUWS_SIM_SESSION\"; read -r end")
            .env_remove("GPUWS_SIM_SESSION")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.started.push(child);
        line.trim().to_owned()
    }

    /// Starts a server and returns its port; `None` if it does not start.
    fn serve(&mut self, sshd: &Path, variables: &str) -> Option<u16> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let path = self.dir.path().display();
        let config = self.path(&format!("sshd-{port}"));
        let text = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {path}/host\nPidFile none\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n\
             AuthorizedKeysFile {path}/user.pub\nSetEnv {variables}\n"
        );
        fs::write(&config, text).unwrap();
        let run = format!("exec {} -D -e -f {}", sshd.display(), config.display());
        // For root, sshd requires its own user and directory.
        let accounts = fs::read_to_string("/etc/passwd").unwrap();
        let sshd_user = "sshd:x:65000:65534::/run/sshd:/usr/sbin/nologin\n";
        fs::write(self.path("passwd"), format!("{accounts}{sshd_user}")).unwrap();
        let as_root = format!(
            "mount --bind {path}/passwd /etc/passwd && mount --bind {path}/run /run && {run}"
        );
        let mut command = if nix::unistd::geteuid().is_root() {
            let mut command = Command::new("unshare");
            command.args(["-m", "--propagation", "private", "sh", "-c", &as_root]);
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", &run]);
            command
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let mut log = BufReader::new(child.stderr.take().unwrap());
        self.started.push(child);
        let mut line = String::new();
        while log.read_line(&mut line).unwrap() > 0 {
            if line.contains("Server listening") {
                // Its later output must not stop it.
                let file = self.path("log");
                std::thread::spawn(move || {
                    let mut file = fs::File::options().append(true).create(true).open(file)?;
                    std::io::copy(&mut log, &mut file)
                });
                return Some(port);
            }
            line.clear();
        }
        None
    }

    fn ssh(&self, host: &str, line: &str) -> std::process::Output {
        Command::new(self.path("bin/ssh")).args([host, line]).output().unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(GPUWS);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::split_paths(&path);
        let path = std::env::join_paths([self.path("bin")].into_iter().chain(path)).unwrap();
        command.args(words).env("PATH", path).env("NO_COLOR", "1").env_remove("GPUWS_SIM_SESSION");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    fn gpuws(&self, words: &[&str]) -> Ended {
        ended(self.command(words).output().unwrap())
    }

    /// Waits until a host has no lease; fails when one stays.
    fn until_free(&self, host: &str) {
        let free = "n=0; until gpuws leases --json | tr -d ' \\n' | grep -q '\"leases\":\\[\\]'; \
                    do n=$((n+1)); [ $n -lt 200 ] || exit 1; sleep 0.05; done";
        let output = self.ssh(host, free);
        assert!(output.status.success(), "a lease stays: {output:?}");
    }
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|why| panic!("{why}: {}", ended.stderr))
}

#[test]
fn host_answers_are_merged_and_silence_is_reported() {
    let Some(lab) = Lab::open() else { return };
    let all = lab.gpuws(&["status", "--host", "a,b"]);
    assert_eq!(all.code, 0, "{}", all.stderr);
    for part in [
        "a: simulated machine labbox",
        "b: simulated machine p100-ghost",
        "2 of 2 hosts answered  ·  5 GPUs, 1 free  ·  2+ findings  ·  1 possible finding",
        "71.0/80.0 GiB",
    ] {
        assert!(all.stdout.contains(part), "{part}: {}", all.stdout);
    }

    fs::write(lab.path("list"), "# two\na\ndead # gone\n").unwrap();
    let some = lab.gpuws(&["status", "--hosts-from", "list", "--host", "b", "--json"]);
    assert_eq!(some.code, 3, "{}", some.stderr);
    let message = json(&some);
    assert_eq!(message["answered_count"], 2);
    let hosts = message["hosts"].as_array().unwrap();
    let names: Vec<&str> = hosts.iter().map(|host| host["host"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "a", "dead"]);
    assert_eq!(hosts[1]["answer"]["gpus"].as_array().unwrap().len(), 4);
    assert_eq!(hosts[2]["error"]["kind"], "unreachable");
    assert!(hosts[2]["error"]["what"].as_str().unwrap().contains("refused"), "{message}");

    let missing = lab.gpuws(&["status", "--hosts-from", "lost"]);
    assert!(missing.stderr.contains("only 'slurm' means the nodes"), "{}", missing.stderr);

    let findings = lab.gpuws(&["doctor", "--host", "a,b"]);
    assert_eq!(findings.code, 1, "{}", findings.stderr);
    for part in [
        "a  GHOST  GPU 3",
        "a  IDLE HOLDER  GPU 2",
        "b  GHOST  GPU 0",
        "next ssh a 'gpuws reap --gpu 3'",
    ] {
        assert!(findings.stdout.contains(part), "{part}: {}", findings.stdout);
    }
    let sure = lab.gpuws(&["doctor", "--host", "a", "--min-confidence", "high", "--json"]);
    assert_eq!(json(&sure)["hosts"][0]["answer"]["left_out_count"], 1);
    assert_eq!(lab.gpuws(&["doctor", "--host", "a,dead"]).code, 3);
}

#[test]
fn host_output_is_treated_as_hostile() {
    let Some(lab) = Lab::open() else { return };
    let missing = lab.gpuws(&["status", "--host", "odd"]);
    assert_eq!(missing.code, 3);
    assert!(missing.stdout.contains("odd  no answer: gpuws not found"), "{}", missing.stdout);
    let head = r#""schema": 1, "origin": "live", "machine": null, "driver_error": null"#;
    let evil = r"\u001b[2J\u202eevil\r\n";
    let gpu = format!(
        r#"{{"index": 4294967295, "name": "{evil}", "temperature_c": null,
        "utilization_percent": null, "memory_used_bytes": 18446744073709551615,
        "memory_total_bytes": 0, "free": false, "defects": ["{evil}"], "leases": null,
        "processes": [], "error": null}}"#
    );
    let finding = format!(
        r#"{{"kind": "{evil}", "confidence": "high", "gpus": [{{"index": 9}}, {{"index": 1}}],
        "memory_bytes": null, "suspects": [], "evidence": ["{evil}"],
        "next": [{{"command": "'; touch planted; echo '"}}]}}"#
    );
    for (command, says, code, part) in [
        ("status", r#"printf '{"schema": 1, "gpus": ['"#.into(), 3, "the JSON ends early"),
        ("status", "echo '{\"schema\": 9}'".into(), 3, "its gpuws is newer: schema 9"),
        ("status", "echo '{\"schema\": 1}'".into(), 3, "missing field"),
        ("status", "exec yes '{'".into(), 3, "its answer is too long"),
        ("status", "exec sleep 10".into(), 5, "no answer within 3 s"),
        ("status", "printf 'gpuws: \\033[2J\\n' >&2; exit 4".into(), 3, "exited with 4"),
        (
            "status",
            format!("cat <<'END'\n{{{head}, \"gpus\": [{gpu}], \"finding_count\": null}}\nEND"),
            0,
            "evil",
        ),
        (
            "doctor",
            format!(
                "cat <<'END'\n{{{head}, \"findings\": [{finding}], \"unknown_users\": []}}\nEND"
            ),
            1,
            r"next ssh odd ''\''; touch planted; echo '\'''",
        ),
    ] {
        lab.program("odd/gpuws", &says);
        let deadline = if code == 5 { "3s" } else { "120s" };
        let message = lab.gpuws(&[command, "--host", "odd", "--deadline", deadline]);
        assert_eq!(message.code, code, "{says}: {}{}", message.stdout, message.stderr);
        assert!(message.stdout.contains(part), "{part}: {}", message.stdout);
        assert!(!message.stdout.contains(['\u{1b}', '\u{202e}', '\r']), "{:?}", message.stdout);
    }
    for name in ["-oProxyCommand=touch planted", "a;touch planted", "$(touch planted)", "a b", ""] {
        let message = lab.gpuws(&["status", &format!("--host={name}")]);
        assert_eq!(message.code, 2, "{name}: {}", message.stderr);
    }
    assert!(!lab.path("planted").exists());
}

#[test]
fn nodes_come_from_slurm_within_a_deadline() {
    let Some(lab) = Lab::open() else { return };
    lab.program("bin/sinfo", "[ \"$*\" = '-h -N -o %N' ] && printf 'a\\nb\\na\\n'");
    let all = lab.gpuws(&["status", "--hosts-from", "slurm", "--json"]);
    assert_eq!((all.code, &json(&all)["answered_count"]), (0, &2.into()), "{}", all.stderr);
    lab.program("bin/sinfo", "exec sleep 20");
    let hangs = lab.gpuws(&["status", "--hosts-from", "slurm", "--deadline", "1s"]);
    assert_eq!(hangs.code, 5);
    assert!(hangs.stderr.contains("the controller does not answer"), "{}", hangs.stderr);
    lab.program("bin/sinfo", "echo 'slurm_load_partitions: Unable to contact' >&2; exit 1");
    let fails = lab.gpuws(&["status", "--hosts-from", "slurm"]);
    assert_eq!(fails.code, 3);
    assert!(fails.stderr.contains("Unable to contact"), "{}", fails.stderr);
    lab.program("bin/sinfo", "echo '-oProxyCommand=x'");
    assert_eq!(lab.gpuws(&["status", "--hosts-from", "slurm"]).code, 2);
}

#[test]
fn first_host_with_free_gpus_runs_the_job() {
    let Some(lab) = Lab::open() else { return };
    let job = "cat; echo \"$CUDA_VISIBLE_DEVICES\"; echo 'it'\\''s' >&2; exit 7";
    let ran = lab.gpuws(&["run", "--host", "dead,b,a", "--", "sh", "-c", job]);
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("GPU-") && ran.stdout.lines().count() == 1, "{}", ran.stdout);
    for part in ["dead: no answer", "running on a", "\nit's\n", "exited with 7"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    lab.until_free("a");
    for (words, code) in [
        (&["--host", "b", "--no-wait", "--", "true"][..], 75),
        (&["--host", "b", "--timeout", "1s", "--", "true"], 75),
        (&["--host", "a,b", "-n", "9", "--", "true"], 2),
        (&["--host", "dead", "--", "true"], 125),
        (&["--host", "a", "--", "no-such-program"], 127),
        (&["--host", "a", "--", "sh", "-c", "exit 75"], 75),
        (&["--host", "a", "--", "sh", "-c", "kill -9 $$"], 137),
        (&["--host", "a", "--report", "x", "--", "true"], 2),
    ] {
        let ran = lab.gpuws(&[&["run"], words].concat());
        assert_eq!(ran.code, code, "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn one_gpu_is_never_leased_to_two_jobs_of_hosts() {
    let Some(lab) = Lab::open() else { return };
    // One of two hosts has one GPU. Four jobs start at once, and one runs at a time.
    let job = "mkdir alone || exit 9; sleep 0.2; rmdir alone";
    let job = format!("cd {} && {job}", lab.dir.path().display());
    let words = ["run", "--host", "b,a", "--timeout", "100s", "--quiet", "--", "sh", "-c", &job];
    let jobs: Vec<Child> = (0..4).map(|_| lab.command(&words).spawn().unwrap()).collect();
    for job in jobs {
        assert_eq!(job.wait_with_output().unwrap().status.code(), Some(0));
    }
    lab.until_free("a");
}

#[test]
fn job_ends_with_the_request_and_with_the_connection() {
    let Some(lab) = Lab::open() else { return };
    // It ignores the end of a terminal, and its worker has left its session.
    let job = "trap '' HUP\n\
               setsid \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:100 --seconds 300 &\n\
               echo $$ $!; wait";
    for (signal, to_ssh, code) in
        [("INT", false, None), ("KILL", false, None), ("KILL", true, Some(255))]
    {
        let mut run = lab.command(&["run", "--host", "a", "--", "sh", "-c", job]);
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(run.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let pids: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(pids.len(), 2, "{line}");
        let target = match to_ssh {
            true => "$(cat /proc/$1/task/$1/children)",
            false => "$1",
        };
        let send = format!("kill -{signal} {target}");
        let sent = Command::new("sh").args(["-c", &send, "sh", &run.id().to_string()]).status();
        assert!(sent.unwrap().success(), "{signal}");
        // Otherwise a job that stays keeps the pipe open, and this never ends.
        drop(output);
        let end = run.wait_with_output().unwrap();
        assert_eq!(end.status.code(), code, "{signal} {to_ssh}: {end:?}");
        lab.until_free("a");
        for pid in pids {
            assert!(!Path::new("/proc").join(pid).exists(), "{signal}: {pid} is left");
        }
    }
}

/// Runs gpuws with a program in place of ssh, after a shell command.
fn with_ssh(dir: &Path, ssh: &str, before: &str, words: &[&str]) -> Ended {
    let path = dir.join("ssh");
    fs::write(&path, format!("#!/bin/sh\n{ssh}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("sh");
    let path = format!("{}:/usr/bin:/bin", dir.display());
    command.args(["-c", &format!("{before} exec \"$0\" \"$@\""), GPUWS]).args(words);
    ended(command.current_dir(dir).env("PATH", path).env("NO_COLOR", "1").output().unwrap())
}

#[test]
fn root_starts_no_program_changeable_by_another_user() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root has this rule");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The programs belong to root, but the directory to another user, who can exchange them.
    std::os::unix::fs::chown(dir.path(), Some(65_534), None).unwrap();
    let planted = dir.path().join("planted");
    let program = format!("#!/bin/sh\n: > {}\n", planted.display());
    for name in ["ssh", "sinfo"] {
        fs::write(dir.path().join(name), &program).unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (words, name) in [
        (&["status", "--host", "a"][..], "ssh"),
        (&["doctor", "--host", "a"], "ssh"),
        (&["run", "--host", "a", "--", "true"], "ssh"),
        (&["status", "--hosts-from", "slurm"], "sinfo"),
    ] {
        for path in [dir.path().to_str().unwrap(), "."] {
            let mut command = Command::new(GPUWS);
            command.args(words).current_dir(dir.path()).stdin(Stdio::null());
            let message = ended(command.env("PATH", path).env("NO_COLOR", "1").output().unwrap());
            assert!(!planted.exists(), "{name} was started");
            assert_eq!(message.code, 2, "{words:?}: {}", message.stderr);
            let place = format!("'{}'", dir.path().display());
            let parts = [&place, "belongs to user 65534", "hint: root starts only"];
            assert!(parts.iter().all(|part| message.stderr.contains(part)), "{}", message.stderr);
        }
    }
}

#[test]
fn whole_standard_error_of_a_short_job_arrives() {
    let dir = tempfile::tempdir().unwrap();
    // gpuws is stopped until ssh has ended, so it finds the complete output in the pipe, which
    // holds 64 KiB.
    let ssh = "case $* in *claim*) echo '{\"schema\": 1, \"possible\": true, \"ahead_count\": 0}' ;;\n\
               *) { echo 'gpuws: started'; head -c 40000 /dev/zero | tr '\\0' x; echo END; } > text\n\
               kill -STOP $PPID; cat text >&2\n\
               (while [ -e /proc/$$/exe ]; do sleep 0.05; done; kill -CONT $PPID) >&- 2>&- &\n\
               exit 7 ;; esac";
    let words = ["run", "--host", "a", "--quiet", "--", "true"];
    let ran = with_ssh(dir.path(), ssh, "", &words);
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    assert!(ran.stderr.contains("xEND\n"), "{} bytes arrived", ran.stderr.len());
}

#[test]
fn host_answer_memory_is_bounded_by_its_text() {
    let dir = tempfile::tempdir().unwrap();
    // A million arrays, in 4 MB.
    let nested = "[0],".repeat(1_000_000);
    let answer = format!(
        "{{\"schema\": 1, \"origin\": \"live\", \"machine\": null, \"driver_error\": null, \
         \"gpus\": [], \"finding_count\": 0, \"findings\": [], \"unknown_users\": [], \
         \"nested\": [{nested}0]}}"
    );
    fs::write(dir.path().join("answer"), answer).unwrap();
    for words in [&["status"][..], &["status", "--json"], &["doctor"], &["doctor", "--json"]] {
        let words = [words, &["--host", "a,b"]].concat();
        // Writable memory, in KiB; as a value, each array takes 64 bytes.
        let message = with_ssh(dir.path(), "exec cat answer", "ulimit -d 100000;", &words);
        assert_eq!(message.code, 0, "{words:?}: {}", message.stderr);
    }
}

#[test]
fn leases_of_hosts_are_listed_whoever_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    let answer = format!("exec {GPUWS} --sim labbox leases --json");
    let ssh = format!(
        "case \"$*\" in *' -- a '*) {answer} ;; *' -- odd '*) printf '\\033[2J{{' ;;\n\
         *) echo 'connect to host: Connection refused' >&2; exit 255 ;; esac"
    );
    let words = ["leases", "--host", "a,odd,dead"];
    let all = with_ssh(dir.path(), &ssh, "", &words);
    assert_eq!(all.code, 3, "{}", all.stderr);
    for part in [
        "a: simulated machine labbox\n",
        "no leases and no waiting claims: a\n",
        "odd  no answer: its answer cannot be read: ",
        "dead  no answer: unreachable: connect to host: Connection refused\n",
        "1 of 3 hosts answered  ·  0 leases  ·  0 claims waiting\n",
    ] {
        assert!(all.stdout.contains(part), "{part}: {}", all.stdout);
    }
    assert!(!all.stdout.contains('\u{1b}'), "{}", all.stdout);
    let words = ["leases", "--host", "a", "--json"];
    let one = with_ssh(dir.path(), &ssh, "", &words);
    let answer = &json(&one)["hosts"][0]["answer"];
    assert_eq!((one.code, &answer["machine"]), (0, &"labbox".into()), "{answer}");
    assert!(answer["taken_at"].as_str().unwrap().ends_with('Z'), "{answer}");
}

#[test]
fn view_of_hosts_shows_answers_and_quits_while_a_host_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    let ssh = format!(
        "#!/bin/sh\ncase \"$*\" in *' -- a '*) exec {GPUWS} status --json ;;\n\
         *' -- hung '*) echo $$ > {path}/pid; exec sleep 1000 ;;\n\
         *) echo 'connect to host: Connection refused' >&2; exit 255 ;; esac\n"
    );
    fs::write(dir.path().join("ssh"), ssh).unwrap();
    fs::set_permissions(dir.path().join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let then = format!("PATH={path}:$PATH; exec \"$0\" top -d 0.1s --host a,hung,dead");
    let words = ["sim", "labbox", "--", "sh", "-c", &then, GPUWS];
    let shown = on_terminal((100, 24), "alice=z|paused=q", &words);
    assert!(shown.starts_with("ended with 0, same settings: True\n"), "{shown}");
    assert!(shown.ends_with(RESTORED), "{shown}");
    for part in ["of 3 hosts answered", "hung", "asking …", "dead", "refused", "Scroll"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let hung = fs::read_to_string(dir.path().join("pid")).unwrap();
    assert!(!Path::new("/proc").join(hung.trim()).exists(), "ssh is left");
}

#[test]
fn options_about_one_machine_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for words in [
        &["--sim", "labbox", "status", "--host", "a"][..],
        &["status", "--host", "a", "-q"],
        &["status", "--host", "a", "-l"],
        &["status", "--host", "a", "--mine"],
        &["doctor", "--host", "a", "--paste"],
        &["leases", "--host", "a", "--claims", "."],
        &["--sim", "labbox", "leases", "--host", "a"],
        &["run", "--host", "a", "--json", "--", "true"],
        &["run", "--host", "a", "--on-death", "keep", "--", "true"],
        &["status", "--hosts-from", "/dev/null"],
    ] {
        assert_eq!(gpuws(dir.path(), words).code, 2, "{words:?}");
    }
    assert_eq!(gpuws(dir.path(), &["status", "--hosts-from", "no-such-file"]).code, 3);
}
