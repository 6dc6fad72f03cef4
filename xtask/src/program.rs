//! Runs programs for their output.

use std::fmt::Display;
use std::io::{self, Error};
use std::process::Command;

/// Runs a program without input until it exits, and returns its output.
///
/// # Errors
/// If it cannot be run, fails, or prints invalid text; with its standard error.
pub(crate) fn output_of(command: &mut Command) -> io::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |why: &dyn Display| Error::other(format!("failed to run {program}: {why}"));
    let output = command.output().map_err(|error| failed(&error))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|error| failed(&error));
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(failed(&format_args!("{}: {}", output.status, message.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_or_missing_program_is_reported() {
        let failed = output_of(Command::new("sh").args(["-c", "echo no >&2; exit 3"]));
        assert_eq!(failed.unwrap_err().to_string(), "failed to run sh: exit status: 3: no");
        let missing = output_of(&mut Command::new("/no/such/program"));
        assert!(missing.unwrap_err().to_string().starts_with("failed to run /no/such/program: "));
        let no_text = output_of(Command::new("printf").arg(r"\377"));
        assert!(no_text.is_err());
    }
}
