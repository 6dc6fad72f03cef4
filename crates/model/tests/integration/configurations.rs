//! Configurations of public models: the derived parameter counts, compared with those that are
//! published and those that transformers reports.

use gpu_model::read::config::{Config, read};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io::{Write, stderr};
use std::ops::RangeInclusive;
use std::process::Command;

const ROWS: &str = include_str!("configurations.txt");
const DOCUMENT: &str = include_str!("../../../../docs/models-memory.md");

/// The years of models that count as recent.
pub(crate) const RECENT: RangeInclusive<u16> = 2024..=2026;
/// The possible sources of a parameter count, which the document defines.
const SOURCES: [&str; 3] = ["files", "files with MTP", "copy"];

/// Rows that are more than 2 % off, because their files include layers for multi-token prediction,
/// which no engine loads by default.
const MISSES: [&str; 2] = ["Qwen3 Next 80B-A3B", "GLM 4.5 Air"];

pub(crate) struct Row {
    pub(crate) name: &'static str,
    repository: &'static str,
    year: u16,
    source: &'static str,
    /// The published parameter count.
    published: u64,
    /// The parameter count that transformers reports.
    counted: u64,
    /// The configuration, reduced to the relevant keys.
    pub(crate) keys: &'static str,
    /// The type of the whole model.
    model_type: String,
    config: Config,
}

pub(crate) fn rows() -> Vec<Row> {
    let lines = ROWS.lines().filter(|line| !line.starts_with('#'));
    let mut above = "";
    lines
        .map(|line| {
            let [name, repository, year, source, published, counted, keys] =
                line.splitn(7, '|').collect::<Vec<_>>().try_into().expect(line);
            let keys = if keys == "=" { above } else { keys };
            above = keys;
            Row {
                name,
                repository,
                year: year.parse().expect(line),
                source,
                published: published.parse().expect(line),
                counted: counted.parse().expect(line),
                keys,
                model_type: model_type(&serde_json::from_str(keys).expect(name)),
                config: read(keys.as_bytes()).expect(name),
            }
        })
        .collect()
}

/// Returns the type that a configuration names.
pub(crate) fn model_type(keys: &Value) -> String {
    keys["model_type"].as_str().expect("a configuration names its type").to_owned()
}

fn parameters(config: &Config) -> u64 {
    let tensors = config.tensors().unwrap_or_else(|error| panic!("{}: {error}", config.model_type));
    tensors.iter().map(|tensor| tensor.elements()).sum()
}

/// Returns the deviation of a figure from a published one, in percent.
pub(crate) fn deviation(derived: u64, published: u64) -> f64 {
    (derived as f64 / published as f64 - 1.0) * 100.0
}

/// Formats a number with its digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// Returns the deviation in the form that the document's tables use.
pub(crate) fn percent(derived: u64, published: u64) -> String {
    format!("{:+.2} %", deviation(derived, published)).replace('-', "−")
}

/// Returns the difference from an exact figure in the form that the document's tables use.
pub(crate) fn difference(derived: u64, published: u64) -> String {
    let sign = match derived.cmp(&published) {
        Ordering::Equal => return "0".to_owned(),
        Ordering::Less => '−',
        Ordering::Greater => '+',
    };
    let difference = grouped(derived.abs_diff(published));
    format!("{sign}{difference} ({})", percent(derived, published))
}

/// Requires that a table of the document consists of exactly these rows, in order.
pub(crate) fn require_in_document(rows: &[String]) {
    let table = rows.join("\n");
    assert!(DOCUMENT.contains(&format!("|---|\n{table}\n\n")), "docs lack these rows:\n{table}");
}

#[test]
fn derived_parameters_match_transformers() {
    let (mut wrong, mut listed) = (Vec::new(), Vec::new());
    for Row { name, repository, year, source, published, counted, model_type, config, .. } in rows()
    {
        let derived = parameters(&config);
        let error = deviation(derived, published);
        writeln!(stderr(), "{name}: published {published}, derived {derived} ({error:+.2} %)")
            .unwrap();
        listed.push(format!(
            "| {name} | {model_type} | {year} | {repository} | {source} | {} | {} | {} |",
            grouped(published),
            grouped(derived),
            difference(derived, published)
        ));
        if derived != counted {
            wrong.push(format!("{name}: {derived}, not {counted}"));
        }
        if (error.abs() > 2.0) != MISSES.contains(&name) {
            wrong.push(format!("{name}: {error:+.2} % from what is published"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    require_in_document(&listed);
}

#[test]
fn public_models_are_understood() {
    let rows = rows();
    let unsourced = rows.iter().filter(|row| !SOURCES.contains(&row.source));
    assert_eq!(unsourced.map(|row| row.name).collect::<Vec<_>>(), [""; 0]);
    // Several rows may share a configuration.
    let recent = rows.iter().filter(|row| RECENT.contains(&row.year));
    let near = recent.filter(|row| !MISSES.contains(&row.name));
    let (mut dense, mut mixtures, mut types) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for Row { keys, model_type, config, .. } in near {
        types.insert(model_type);
        let is_mixture = config.architecture.experts.is_some();
        if is_mixture { &mut mixtures } else { &mut dense }.insert(*keys);
    }
    writeln!(
        stderr(),
        "{} rows; within 2 % of a count from 2024 to 2026: {} dense configurations, {} with experts, of {} types",
        rows.len(),
        dense.len(),
        mixtures.len(),
        types.len()
    )
    .unwrap();
    assert!(dense.len() + mixtures.len() >= 60 && types.len() >= 25);
    assert!(dense.len() >= 20 && mixtures.len() >= 20);
    let doubted = rows.iter().filter(|row| !row.config.doubts.is_empty());
    let doubted: Vec<String> =
        doubted.map(|row| format!("{}: {:?}", row.name, row.config.doubts)).collect();
    assert!(doubted.is_empty(), "{}", doubted.join("\n"));
}

/// Compares random small configurations of every type with transformers itself.
#[test]
fn random_configurations_agree_with_transformers() {
    let Ok(python) = std::env::var("GPUWS_TRANSFORMERS") else {
        writeln!(stderr(), "skipped: GPUWS_TRANSFORMERS names no Python with transformers")
            .unwrap();
        return;
    };
    let seed = std::env::var("GPUWS_TRANSFORMERS_SEED").unwrap_or_else(|_| "7".to_owned());
    let wanted = std::env::var("GPUWS_TRANSFORMERS_TYPES").unwrap_or_default();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/compare.py");
    let output = Command::new(python)
        .args([script, &seed, "3"])
        .args(wanted.split_whitespace())
        .output()
        .expect("Python runs");
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut compared, mut doubted, mut wrong) = (0, 0, Vec::new());
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let config = row["config"].to_string();
        compared += 1;
        let (doubts, derived) = match read(config.as_bytes()) {
            Ok(config) => {
                let tensors = config.tensors();
                // The output shows an error next to the estimate, like a doubt.
                let doubts = !config.doubts.is_empty() || tensors.is_err();
                let sum = tensors.unwrap_or_default().iter().map(|tensor| tensor.elements()).sum();
                (doubts, sum)
            }
            Err(error) => {
                writeln!(stderr(), "{}: {error}", row["config"]["model_type"]).unwrap();
                (true, 0)
            }
        };
        let counted = row["parameters"].as_u64().unwrap();
        if derived.abs_diff(counted) * 50 > counted {
            if doubts {
                doubted += 1
            } else {
                wrong.push(format!("{derived}, not {counted}: {config}"))
            }
        }
    }
    writeln!(
        stderr(),
        "{compared} configurations, {} wrong, {doubted} of unknown types wrong",
        wrong.len()
    )
    .unwrap();
    assert!(compared > 0, "{}", String::from_utf8_lossy(&output.stderr));
    // Random keys also produce useless models; without a doubt, few may differ.
    assert!(wrong.len() * 100 <= compared * 3, "{}", wrong.join("\n"));
}
