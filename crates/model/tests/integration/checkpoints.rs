//! Quantized checkpoints of public models, compared with the sizes of their files.

use crate::configurations::{
    RECENT, deviation, difference, grouped, model_type, percent, require_in_document, rows,
};
use gpu_model::read::config;
use serde_json::{Value, json};

const ROWS: &str = include_str!("checkpoints.txt");

/// The possible sources of a size, which the document defines.
const SOURCES: [&str; 3] = ["index", "elements", "log"];
/// The source of sizes that were read once but could not be found again.
const LOST: &str = "not found again";

/// Checkpoints that are more than 2 % off, because their files include layers for multi-token
/// prediction, which no engine loads by default.
const MISSES: [&str; 1] = ["deepseek-ai/DeepSeek-V3"];

#[test]
fn quantized_checkpoints_are_within_two_percent_of_files() {
    let models = rows();
    let (mut wrong, mut listed, mut verified) = (Vec::new(), Vec::new(), 0);
    for line in ROWS.lines().filter(|line| !line.starts_with('#')) {
        let [name, method, year, source, published, model, quantization] =
            line.splitn(7, '|').collect::<Vec<_>>().try_into().expect(line);
        let named = models.iter().find(|row| row.name == model);
        let keys = named.map_or(model, |row| row.keys);
        let mut config: Value = serde_json::from_str(keys).expect(line);
        let kind = model_type(&config);
        config["torch_dtype"] = json!("bfloat16");
        config["quantization_config"] = serde_json::from_str(quantization).expect(line);
        let model = config::read(config.to_string().as_bytes()).expect(name).model().expect(name);
        let computed = model.bytes().0;
        // A size with a decimal point is rounded, and in units of 10^9 bytes.
        let (bytes, shown, off) = if published.contains('.') {
            let billions: f64 = published.parse().expect(line);
            let bytes = (billions * 1e9).round() as u64;
            (bytes, format!("{published} · 10⁹"), percent(computed, bytes))
        } else {
            let bytes = published.parse().expect(line);
            (bytes, grouped(bytes), difference(computed, bytes))
        };
        let error = deviation(computed, bytes);
        println!("{name}: published {shown}, computed {computed} ({error:+.2} %)");
        listed.push(format!(
            "| {name} | {kind} | {method} | {year} | {source} | {shown} | {} | {off} |",
            grouped(computed)
        ));
        let is_verified = SOURCES.contains(&source);
        if !is_verified && source != LOST {
            wrong.push(format!("{name}: unknown source '{source}'"));
        }
        let is_near = error.abs() <= 2.0;
        if is_near == MISSES.contains(&name) || !model.doubts.is_empty() {
            wrong.push(format!("{name}: {error:+.2} % {:?}", model.doubts));
        }
        let is_recent = RECENT.contains(&year.parse().expect(line));
        verified += u32::from(is_near && is_recent && is_verified);
    }
    println!("{} rows; {verified} within 2 % of a verified size from 2024 to 2026", listed.len());
    assert_eq!(wrong, [""; 0]);
    assert!(verified >= 12, "{verified}");
    require_in_document(&listed);
}
