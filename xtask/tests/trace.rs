//! `cargo xtask dist` moves exactly the entered functions of a program to the front.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(clippy::print_stderr, reason = "the test prints a note if tracing is not permitted")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A program that succeeds with one argument and never enters `idle`.
const PROGRAM: &str = r#"
#[unsafe(no_mangle)] #[inline(never)] extern "C" fn entered(n: usize) -> usize { n + 1 }
#[unsafe(no_mangle)] #[inline(never)] extern "C" fn again(n: usize) -> usize { entered(n) }
#[unsafe(no_mangle)] #[inline(never)] extern "C" fn idle(n: usize) -> usize { n + 2 }
fn main() {
    let words = std::env::args().count();
    let sum = entered(words) + again(words) + entered(words);
    if sum == 0 { println!("{}", idle(sum)); }
    std::process::exit((sum != 9) as i32);
}
"#;

/// Returns the start addresses of a program's functions, by name.
fn beginnings(program: &Path, names: &[&str]) -> Vec<String> {
    let output = Command::new("nm").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let begins = |name: &&str| {
        let line = text.lines().find(|line| line.ends_with(&format!(" T {name}"))).unwrap();
        line.split(' ').next().unwrap().trim_start_matches('0').to_owned()
    };
    names.iter().map(begins).collect()
}

fn trace(functions: &Path, program: &Path, words: &[&str]) -> Output {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.arg("trace").args([functions, program, program]).args(words).output().unwrap()
}

#[test]
fn trace_lists_first_entered_functions() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("made.rs"), dir.path().join("made"));
    fs::write(&source, PROGRAM).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args(["--edition=2024", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let [entered, again, idle] = &beginnings(&program, &["entered", "again", "idle"])[..] else {
        panic!("three functions")
    };
    let functions = dir.path().join("functions");
    fs::write(&functions, format!("{idle}\n{again}\n{entered}\n")).unwrap();
    let output = trace(&functions, &program, &["a", "b"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("Operation not permitted") {
        eprintln!("skipped: no process may be traced here");
        return;
    }
    // With two arguments the program fails; the result shows this and still contains the entered
    // functions.
    assert!(!output.status.success(), "{stderr}");
    assert_eq!(fs::read_to_string(&functions).unwrap(), format!("{entered}\n{again}\n"));
    fs::write(&functions, format!("{idle}\n{again}\n{entered}\n")).unwrap();
    assert!(trace(&functions, &program, &["a"]).status.success());
}
