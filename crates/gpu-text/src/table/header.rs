//! The lines above the devices: versions.

use super::line::Row;
use crate::document::Document;

/// Returns whether a row starts a table: `NVIDIA-SMI 535.54 …`.
pub(super) fn begins(row: Row<'_>) -> bool {
    let rest = row.text.trim_start().strip_prefix("NVIDIA-SMI");
    rest.is_some_and(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()))
}

/// Parses each version in a row once. Drivers from 610 on print the kernel-mode and the user-mode
/// version separately.
pub(super) fn read(row: Row<'_>, document: &mut Document) {
    let driver = version(row, "Driver").or_else(|| version(row, "KMD"));
    let cuda = version(row, "CUDA").or_else(|| version(row, "CUDA UMD"));
    document.driver_version = document.driver_version.take().or(driver);
    document.cuda_version = document.cuda_version.take().or(cuda);
}

/// Parses `Driver Version: 535.54`, or `Driver Ver:535.54` in a table narrowed by hand.
fn version(row: Row<'_>, of: &str) -> Option<String> {
    let (_, rest) = row.text.split_once(of)?;
    let rest = rest.trim_start().strip_prefix("Ver")?;
    let rest = rest.strip_prefix("sion").unwrap_or(rest).trim_start_matches([' ', '.', ':']);
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let (version, after) = rest.split_at(end);
    let cut = after.is_empty() && row.last && !row.closed;
    let whole = version.contains('.') && !version.ends_with('.');
    (whole && !cut).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Kind;

    fn versions(text: &str, closed: bool) -> [Option<String>; 2] {
        let mut document = Document::new(Kind::Table);
        read(Row { text, opened: true, closed, last: true }, &mut document);
        [document.driver_version, document.cuda_version]
    }

    #[test]
    fn versions_of_every_generation_are_parsed() {
        let some = |text: &str| Some(text.to_owned());
        let old = " NVIDIA-SMI 4.304.51   Driver Version: 304.51  ";
        assert_eq!(versions(old, true), [some("304.51"), None]);
        let unlike = " NVIDIA-SMI 465.27  Driver Version: 460.32.03  CUDA Version: 11.2 ";
        assert_eq!(versions(unlike, true), [some("460.32.03"), some("11.2")]);
        let split = " NVIDIA-SMI 610.5  KMD Version: 610.5  CUDA UMD Version: 13.3 ";
        assert_eq!(versions(split, true), [some("610.5"), some("13.3")]);
        let narrow = "NVIDIA-SMI 580.1    Driver Ver:580.1  CUDA Ver: 13.0 ";
        assert_eq!(versions(narrow, true), [some("580.1"), some("13.0")]);
        let hidden = " NVIDIA-SMI 540.3  Driver Version: N/A  CUDA Version: ERR! ";
        assert_eq!(versions(hidden, true), [None, None]);
        let masked = " NVIDIA-SMI 525.xx.xx    Driver Version: 525.xx.xx    CUDA Version: 12.0 ";
        assert_eq!(versions(masked, true), [None, some("12.0")]);
    }

    #[test]
    fn truncated_version_is_absent() {
        let cut = " NVIDIA-SMI 470.1   Driver Version: 470.1";
        assert_eq!(versions(cut, false), [None, None]);
        assert_eq!(versions(cut, true)[0].as_deref(), Some("470.1"));
    }
}
