//! The files in docs/schema match the types. `SNAPSHOTS=overwrite cargo test -p gpuws` writes them
//! anew.

use snapbox::Data;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the directory of the schemas.
pub(super) fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema")
}

#[test]
fn schemas_match_types() {
    let documents = gpu_report::schema::documents();
    for document in &documents {
        let path = dir().join(format!("{}.json", document.name));
        snapbox::assert_data_eq!(document.text.as_str(), Data::read_from(&path, None).raw());
    }
    let expected: BTreeSet<String> =
        documents.iter().map(|document| format!("{}.json", document.name)).collect();
    let found: BTreeSet<String> = fs::read_dir(dir())
        .expect("the directory is there")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("UTF-8"))
        .collect();
    assert_eq!(found, expected);
}
