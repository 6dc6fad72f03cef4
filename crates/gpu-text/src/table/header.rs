//! The lines above the devices: versions.

use super::line::Row;
use crate::document::Document;

/// Tells whether a row begins a table: `NVIDIA-SMI 535.54 …`.
pub(super) fn begins(row: Row<'_>) -> bool {
    let rest = row.text.trim_start().strip_prefix("NVIDIA-SMI");
    rest.is_some_and(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()))
}

/// Reads the versions that a row shows, each once; drivers from 610 name the kernel's and the
/// user's part apart.
pub(super) fn read(row: Row<'_>, document: &mut Document) {
    let driver = version(row, "Driver Version:").or_else(|| version(row, "KMD Version:"));
    let cuda = version(row, "CUDA Version:").or_else(|| version(row, "CUDA UMD Version:"));
    document.driver_version = document.driver_version.take().or(driver);
    document.cuda_version = document.cuda_version.take().or(cuda);
}

fn version(row: Row<'_>, label: &str) -> Option<String> {
    let (_, rest) = row.text.split_once(label)?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let (version, after) = rest.split_at(end);
    let cut = after.is_empty() && row.last && !row.closed;
    (version.starts_with(|c: char| c.is_ascii_digit()) && !cut).then(|| version.to_owned())
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
    fn versions_of_every_generation() {
        let some = |text: &str| Some(text.to_owned());
        let old = " NVIDIA-SMI 4.304.51   Driver Version: 304.51  ";
        assert_eq!(versions(old, true), [some("304.51"), None]);
        let unlike = " NVIDIA-SMI 465.27  Driver Version: 460.32.03  CUDA Version: 11.2 ";
        assert_eq!(versions(unlike, true), [some("460.32.03"), some("11.2")]);
        let split = " NVIDIA-SMI 610.5  KMD Version: 610.5  CUDA UMD Version: 13.3 ";
        assert_eq!(versions(split, true), [some("610.5"), some("13.3")]);
        let hidden = " NVIDIA-SMI 540.3  Driver Version: N/A  CUDA Version: ERR! ";
        assert_eq!(versions(hidden, true), [None, None]);
    }

    #[test]
    fn a_version_at_the_cut_is_none() {
        let cut = " NVIDIA-SMI 470.1   Driver Version: 470.1";
        assert_eq!(versions(cut, false), [None, None]);
        assert_eq!(versions(cut, true)[0].as_deref(), Some("470.1"));
    }
}
