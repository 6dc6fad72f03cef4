//! Completion scripts, run by their shells.

use super::live;
use super::packages::runs;
use std::fs;
use std::process::{Command, Stdio};

/// Values that would act if a shell evaluated them.
const HOSTILE: [&str; 10] = [
    "a b",
    "$(touch evil)",
    "`touch evil`",
    "x;touch evil",
    "*",
    "it's",
    "\"q",
    "~",
    "back\\slash",
    "é",
];

/// Completes as bash does: defines the words and the word to complete, and prints the answers.
const IN_BASH: &str = "complete_as_bash() {
    COMP_WORDS=(gpuws \"$@\") COMP_CWORD=$#
    _gpuws gpuws \"${@: -1}\" \"${COMP_WORDS[$#-1]}\"
    printf '%s\\n' \"${COMPREPLY[@]}\"
}
source gpuws.completion\n";

/// Runs a script of a shell in a directory with the completion script and a program `gpuws`: the
/// tested one, or one that prints these lines whatever is asked.
fn completed(shell: &str, script: &str, words: &[&str], printed: Option<&str>) -> String {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().join(name);
    let made = Command::new(live::GPUWS).args(["completions", shell]).output().expect("it runs");
    fs::write(at("gpuws.completion"), made.stdout).expect("written");
    let bin = at("bin");
    fs::create_dir(&bin).expect("a directory");
    match printed {
        None => std::os::unix::fs::symlink(live::GPUWS, bin.join("gpuws")).expect("a link"),
        Some(printed) => {
            fs::write(bin.join("lines"), printed).expect("written");
            let program = format!("#!/bin/sh\ncat '{}'\n", bin.join("lines").display());
            fs::write(bin.join("gpuws"), program).expect("written");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(bin.join("gpuws"), mode).expect("a program");
        }
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new(shell);
    command.args(["-c", script]);
    if shell != "fish" {
        command.arg(shell);
    }
    command.args(words).env("PATH", path).env("HOME", dir.path()).current_dir(dir.path());
    for name in live::HEEDED {
        command.env_remove(name);
    }
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(!at("evil").exists(), "{shell} evaluated a value");
    live::text(&output.stdout)
}

#[test]
fn bash_completes_values_of_the_machine() {
    if !runs("bash") {
        return;
    }
    for (words, answers) in [
        ("le", "leases"),
        ("--sim lab", "labbox"),
        ("reap --sim p100", "p100-ghost"),
        ("sim labb", "labbox"),
        ("completions zs", "zsh"),
        ("completions gpu", ""),
        ("--sim labbox status --gpu ", "0 1 2 3"),
        ("--sim labbox status -i 0,", "0,0 0,1 0,2 0,3"),
        ("--sim = labbox status --gpu = 2", "2"),
        ("reset --sim labbox --yes 3", "3"),
        ("--sim p100-ghost reap --pid ", "67193 100562"),
        ("--sim p100-ghost top --user ad", "admin"),
        ("reap --user roo", "root"),
        // bash completes a path.
        ("--sim ./my", ""),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let script = format!("{IN_BASH}complete_as_bash \"$@\"");
        let printed = completed("bash", &script, &words, None);
        let found: Vec<&str> = printed.split_whitespace().collect();
        assert_eq!(found.join(" "), answers, "{words:?}");
    }
    let partitions = completed(
        "bash",
        &format!("{IN_BASH}complete_as_bash --sim mig-a100 claim --mig --gpu MIG-"),
        &[],
        None,
    );
    assert!(partitions.lines().count() > 1, "{partitions}");
    assert!(partitions.lines().all(|line| line.starts_with("MIG-")), "{partitions}");
}

#[test]
fn bash_completes_leases_in_a_session() {
    if !runs("bash") {
        return;
    }
    let script = format!(
        "\"$0\" completions bash > gpuws.completion; mkdir bin; ln -s \"$0\" bin/gpuws
         PATH=\"$PWD/bin:$PATH\"; export PATH; unset -f leases
         eval \"$(gpuws claim --export)\"; gpuws leases --json | grep -o '\"id\": *\"[^\"]*\"'
         bash -c '{}complete_as_bash claim --release \"\"'",
        IN_BASH.replace('\'', "'\\''")
    );
    let printed = live::text(&live::script("labbox", &script).stdout);
    let lines: Vec<&str> = printed.lines().collect();
    let [listed, completed] = lines[..] else { panic!("{printed}") };
    assert!(listed.contains(&format!("\"{completed}\"")), "{printed}");
}

/// The inserted word means the value, and nothing else, when the command line is run.
#[test]
fn hostile_values_are_quoted() {
    let printed: String = HOSTILE.iter().map(|value| format!("{value}\t$(touch evil)\n")).collect();
    let printed = Some(printed.as_str());
    let expected = HOSTILE.map(|value| format!("<{value}>\n")).concat();
    if runs("bash") {
        let script = format!(
            "{IN_BASH}complete_as_bash status --pid '' >/dev/null
             for word in \"${{COMPREPLY[@]}}\"; do eval \"set -- $word\"; printf '<%s>\\n' \"$@\"; done"
        );
        assert_eq!(completed("bash", &script, &[], printed), expected);
    }
    if runs("zsh") {
        // compadd quotes what it inserts, so it must get the values unchanged.
        let script = "compdef() {}; compset() {}; source ./gpuws.completion
             compadd() { printf '<%s>\\n' \"${values[@]}\" }
             gpuws_at=3 gpuws_words=(gpuws status --pid ''); _gpuws_values process-values";
        assert_eq!(completed("zsh", script, &[], printed), expected);
    }
    if runs("fish") {
        // fish quotes what it inserts, so it must get the values unchanged, in its own order.
        let script = "source gpuws.completion; complete -C 'gpuws status --pid '";
        let found = completed("fish", script, &[], printed);
        let value = |line: &str| line.split('\t').next().map(|value| format!("<{value}>"));
        let mut found: Vec<String> = found.lines().filter_map(value).collect();
        let mut expected: Vec<&str> = expected.lines().collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}

#[test]
fn zsh_and_fish_complete_values_of_the_machine() {
    for (words, answers) in [
        ("--sim labbox status --gpu ", "0 1 2 3"),
        ("--sim labbox reset ", "0 1 2 3"),
        ("--sim=labbox status --gpu 0,", "0,0 0,1 0,2 0,3"),
        ("--sim p100-ghost reap --pid ", "67193 100562"),
        ("--sim lab", "labbox"),
    ] {
        if runs("fish") {
            let script = format!("source gpuws.completion; complete -C 'gpuws {words}'");
            let printed = completed("fish", &script, &[], None);
            let values = printed.lines().filter_map(|line| line.split('\t').next());
            let mut found: Vec<&str> = values.collect();
            found.sort_by_key(|value| (value.len(), *value));
            assert_eq!(found.join(" "), answers, "{words}: {printed}");
        }
    }
    if runs("zsh") {
        let script = "compdef() {}; compset() {}; source ./gpuws.completion
             compadd() { print -r -- $values }
             gpuws_at=6 gpuws_words=(gpuws --sim labbox status --gpu ''); _gpuws_values gpu-values";
        assert_eq!(completed("zsh", script, &[], None), "0 1 2 3\n");
    }
}

/// Each script calls its function for each kind, and clap completes no path in bash.
#[test]
fn scripts_complete_every_kind() {
    for (shell, call) in
        [("bash", "_gpuws_values "), ("zsh", ":_gpuws_values "), ("fish", "(__gpuws_values ")]
    {
        let made = Command::new(live::GPUWS).args(["completions", shell]).output();
        let script = live::text(&made.expect("it runs").stdout);
        for kind in ["gpu", "host", "lease", "machine", "process", "user"] {
            assert!(script.contains(&format!("{call}{kind}-values")), "{shell}: {kind}");
        }
        assert!(!script.contains("compgen -f"), "{shell}");
    }
}
