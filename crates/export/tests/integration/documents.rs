//! docs/metrics.md, the alert rules and the dashboard use only existing metrics.

use gpu_export::{Family, Kind, Metric};
use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");
const RULES: &str = include_str!("../../../../packaging/prometheus/gpuws.rules.yml");
const RULES_TEST: &str = include_str!("../../../../packaging/prometheus/gpuws.rules.test.yml");
const DASHBOARD: &str = include_str!("../../../../packaging/grafana/gpuws.json");

fn row(family: &Family) -> String {
    let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
    let labels = labels.join(" ");
    let Family { kind, help, .. } = family;
    format!("| `{}` | {kind} | {labels} | {help} |", family.name())
}

#[test]
fn document_lists_every_metric_and_no_other() {
    let documented: BTreeSet<&str> =
        DOCUMENT.lines().filter(|line| line.starts_with("| `gpuws_")).collect();
    let existing: BTreeSet<String> =
        Metric::ALL.iter().map(|metric| row(metric.family())).collect();
    let existing: BTreeSet<&str> = existing.iter().map(String::as_str).collect();
    let missing: Vec<_> = existing.difference(&documented).collect();
    let surplus: Vec<_> = documented.difference(&existing).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:#?}\nsurplus {surplus:#?}");
}

#[test]
fn joins_of_the_document_are_tested_with_the_rules() {
    let joins: Vec<&str> = DOCUMENT.lines().filter(|line| line.contains(" group_left ")).collect();
    assert_eq!(joins.len(), 2, "{joins:?}");
    for join in joins {
        assert!(RULES_TEST.contains(&format!("- expr: {}\n", join.trim())), "{join}");
    }
}

/// Returns the words that are names of metrics.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':' || c == '-';
    let words = text.split(|c| !is_part(c));
    words.filter(|word| word.starts_with("gpuws_")).collect()
}

#[test]
fn rules_and_dashboard_use_existing_metrics() {
    let existing: BTreeSet<String> = Metric::ALL
        .iter()
        .flat_map(|metric| {
            let name = metric.family().name();
            let is_histogram = metric.family().kind == Kind::Histogram;
            let bucket = is_histogram.then(|| format!("{name}_bucket"));
            [Some(name), bucket].into_iter().flatten()
        })
        .collect();
    for (what, text) in [("rules", RULES), ("dashboard", DASHBOARD), ("document", DOCUMENT)] {
        let named = names(text);
        assert!(named.len() > 10, "{what}: {named:?}");
        let unknown: Vec<_> = named.iter().filter(|name| !existing.contains(**name)).collect();
        assert!(unknown.is_empty(), "{what}: {unknown:?}");
    }
}

#[test]
fn dashboard_is_json_with_a_query_in_every_panel() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 20);
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            let expr = target["expr"].as_str().unwrap();
            assert!(expr.contains("gpuws_") && expr.contains("instance=~\"$instance\""), "{expr}");
        }
    }
}
