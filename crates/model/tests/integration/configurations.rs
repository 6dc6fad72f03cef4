//! Configurations of public models: the parameters that are derived, beside those that are published
//! and those that transformers counts.

use gpu_model::read::config::{Config, read};
use serde_json::Value;
use std::io::{Write, stderr};
use std::process::Command;

const ROWS: &str = include_str!("configurations.txt");

/// Models with more parameters in transformers than in their files.
const MISSES: [&str; 1] = ["LongCat Flash 560B"];

struct Row<'a> {
    name: &'a str,
    /// Published parameters.
    published: f64,
    /// The parameters that transformers counts.
    counted: u64,
    config: Config,
}

fn rows() -> Vec<Row<'static>> {
    let lines = ROWS.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let [name, billions, _, counted, keys] =
                line.splitn(5, '|').collect::<Vec<_>>().try_into().expect(line);
            let published = billions.parse::<f64>().unwrap() * 1e9;
            let config = read(keys.as_bytes()).expect(name);
            Row { name, published, counted: counted.parse().unwrap(), config }
        })
        .collect()
}

fn parameters(config: &Config) -> u64 {
    let tensors = config.tensors().unwrap_or_else(|error| panic!("{}: {error}", config.model_type));
    tensors.iter().map(|tensor| tensor.elements()).sum()
}

#[test]
fn derived_parameters_are_those_that_transformers_counts() {
    let mut wrong = Vec::new();
    for Row { name, published, counted, config } in rows() {
        let derived = parameters(&config);
        let error = (derived as f64 / published - 1.0) * 100.0;
        writeln!(stderr(), "{name}: published {published:e}, derived {derived} ({error:+.2} %)")
            .unwrap();
        if derived != counted {
            wrong.push(format!("{name}: {derived}, not {counted}"));
        }
        if (error.abs() > 2.0) != MISSES.contains(&name) {
            wrong.push(format!("{name}: {error:+.2} % from what is published"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn public_models_are_understood() {
    let rows = rows();
    let types: std::collections::BTreeSet<&str> =
        rows.iter().map(|row| row.config.model_type.as_str()).collect();
    assert!(rows.len() >= 60 && types.len() >= 25, "{} rows, {} types", rows.len(), types.len());
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
                // The output gives an error beside the estimate, as a doubt.
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
            match doubts {
                true => doubted += 1,
                false => wrong.push(format!("{derived}, not {counted}: {config}")),
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
    // Random keys also make useless models: without a doubt, few may differ.
    assert!(wrong.len() * 100 <= compared * 3, "{}", wrong.join("\n"));
}
