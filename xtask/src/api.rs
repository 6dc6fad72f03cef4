//! The public API of each library as a text file, so that reviews show API changes.

use crate::cargo;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Error, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The directory of the listings.
const LISTINGS: &str = "docs/api";

/// Features with generated code that would obscure the rest: mocks and JSON Schemas.
const GENERATED: [&str; 3] = ["default", "mock", "schema"];

/// A library and the features included in its listing.
#[derive(Debug, PartialEq, Eq)]
struct Library {
    name: String,
    features: Vec<String>,
}

/// Writes the listing of each library. With `check`, writes nothing, names each outdated listing,
/// and returns whether there is none.
///
/// # Errors
/// If cargo-public-api or its nightly toolchain is missing or fails, or a file cannot be read or
/// written.
pub fn api(root: &Path, check: bool, out: &mut dyn Write) -> io::Result<bool> {
    let dir = root.join(LISTINGS);
    let mut current = true;
    for library in libraries(&cargo::metadata(root)?) {
        let listing = listing(root, &library)?;
        let path = dir.join(format!("{}.txt", library.name));
        if fs::read_to_string(&path).is_ok_and(|old| old == listing) {
            continue;
        }
        if check {
            current = false;
            writeln!(out, "{LISTINGS}/{}.txt is out of date: run cargo xtask api", library.name)?;
        } else {
            fs::create_dir_all(&dir)?;
            fs::write(&path, listing)?;
        }
    }
    Ok(current)
}

/// Returns the libraries under `crates/`, from the output of `cargo metadata`.
fn libraries(metadata: &Value) -> Vec<Library> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_library = |package: &&Value| {
        // That of the program has another name: it only lists features.
        let name = package["name"].as_str().unwrap_or_default().replace('-', "_");
        let is_own = |target: &Value| target["name"] == *name && target["kind"] == json!(["lib"]);
        list(&package["targets"]).iter().any(is_own)
            && package["manifest_path"].as_str().is_some_and(|path| path.contains("/crates/"))
    };
    let library = |package: &Value| Library {
        name: package["name"].as_str().unwrap_or_default().to_owned(),
        features: package["features"]
            .as_object()
            .into_iter()
            .flat_map(|features| features.keys())
            .filter(|name| !GENERATED.contains(&name.as_str()))
            .cloned()
            .collect(),
    };
    list(&metadata["packages"]).iter().filter(is_library).map(library).collect()
}

fn listing(root: &Path, library: &Library) -> io::Result<String> {
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["public-api", "--color=never", "-sss", "--package", &library.name, "--features"])
        .arg(library.features.join(","))
        .arg("--target-dir")
        .arg(cargo::target_dir(root).join("api"))
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(Error::other(format!(
            "failed to list the API of {}; cargo public-api needs: cargo install --locked \
             cargo-public-api; rustup toolchain install nightly --profile minimal",
            library.name
        )));
    }
    String::from_utf8(output.stdout).map_err(Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_this_workspace_are_found() {
        let found = libraries(&cargo::metadata(crate::workspace_root()).unwrap());
        let features = |name: &str| {
            found
                .iter()
                .find(|library| library.name == name)
                .map(|library| library.features.join(","))
        };
        assert_eq!(features("gpu-core").as_deref(), Some("serde"));
        assert_eq!(features("gpu-claim").as_deref(), Some(""));
        for name in ["gpuws", "nvml-sim", "xtask"] {
            assert_eq!(features(name), None, "{name} is not a library");
        }
    }
}
