//! Cases as data: graphs in the notation of the fixture with the expected results.

use super::fixture;
use gpu_graph::placer::{self, Options};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A case of the data file.
struct Case<'a> {
    title: &'a str,
    lines: Vec<&'a str>,
    expected: &'a str,
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix("case ") {
            cases.push(Case { title, lines: Vec::new(), expected: "" });
            continue;
        }
        let case = cases.last_mut().expect("a case");
        if line.starts_with("=> ") || line.starts_with("error ") {
            case.expected = line;
        } else {
            case.lines.push(line);
        }
    }
    cases
}

/// Runs a case; returns its failure.
fn run(case: &Case<'_>) -> Option<String> {
    let registry = fixture::registry();
    let word = |prefix| case.title.split_whitespace().find_map(|word| word.strip_prefix(prefix));
    let devices = fixture::devices(word("devices=").unwrap_or("10"));
    let options = Options {
        soft: !case.title.split_whitespace().any(|word| word == "hard"),
        default_device: word("default=").map(str::to_owned),
        ..Options::default()
    };
    let graph = fixture::graph(case.lines.iter().copied(), &registry);
    let placed = placer::place(&graph, &registry, &devices, &options);
    let placement = match (placed, case.expected.strip_prefix("error ")) {
        (Ok(placement), None) => placement,
        (Ok(_), Some(error)) => return Some(format!("expected the error {error}")),
        (Err(error), None) => return Some(format!("unexpected error {error}")),
        (Err(error), Some(expected)) => {
            let (kind, text) = expected.split_once(' ').expect(expected);
            let text = text.replace("\\n", "\n");
            let is_right = format!("{:?}", error.kind) == kind && error.message.contains(&text);
            return (!is_right).then(|| format!("{:?}: {error}", error.kind));
        }
    };
    let of = |name: &str| {
        let id = graph.find(name).expect(name);
        devices.names()[placement.device(id)].as_str()
    };
    let kind = |name: &str| of(name).rsplit_once(':').map(|(kind, _)| kind.to_owned());
    for expected in case.expected.trim_start_matches("=> ").split(", ") {
        let (name, wanted) = expected.split_once(' ').expect(expected);
        let is_right = match wanted.split_at(1) {
            ("=", other) => of(name) == of(other),
            ("!", other) => of(name) != of(other.trim_start_matches('=')),
            ("~", other) => kind(name) == kind(other),
            _ => {
                let any = format!("{wanted}0");
                let is_any = wanted.len() == 1;
                let full = fixture::device(if is_any { &any } else { wanted });
                let wanted = if is_any { full.trim_end_matches('0') } else { &full };
                of(name).contains(wanted) && (is_any || of(name).ends_with(wanted))
            }
        };
        if !is_right {
            return Some(format!("expected {expected}, but {name} is on {}", of(name)));
        }
    }
    None
}

fn check(text: &str) -> usize {
    let cases = cases(text);
    let wrong = |case: &Case<'_>| Some(format!("case {}: {}", case.title, run(case)?));
    let wrong: Vec<String> = cases.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    cases.len()
}

#[test]
fn cases_of_tensorflow_are_placed_as_there() {
    assert!(check(include_str!("cases.txt")) >= 80);
}

/// Cases 6 to 15.
#[test]
fn priorities_of_kernels_are_merged_along_a_resource() {
    for (makes, uses, expected) in [
        ("SP", "NP", "C"),
        ("RP", "NP", "G"),
        ("NP", "SP", "C"),
        ("NP", "RP", "G"),
        ("SP", "G", "G"),
        ("C", "RP", "C"),
        ("SP", "SP", "C"),
        ("RP", "RP", "G"),
        ("SP", "RP", "G"),
        ("RP", "SP", "G"),
    ] {
        check(&format!(
            "case {makes} {uses}\nds = Set{makes}\nit = Iter{uses} ds\n\
             => ds {expected}, it {expected}"
        ));
    }
}

/// Cases 26 and 27.
#[test]
fn ends_of_references_and_resources_share_a_type() {
    for (variable, set) in [("Var", "SetVar"), ("Handle", "SetHandle")] {
        for (of_variable, of_set, expected) in [
            ("", "", Some("G")),
            ("", "C", Some("C")),
            ("", "G", Some("G")),
            ("C", "", Some("C")),
            ("C", "C", Some("C")),
            ("C", "G", None),
            ("G", "", Some("G")),
            ("G", "C", None),
            ("G", "G", Some("G")),
        ] {
            let mut text = format!("case {variable}{of_variable} {set}{of_set}\nin = In\n");
            for at in 0..10 {
                writeln!(text, "v{at} = {variable}{of_variable}").unwrap();
                writeln!(text, "a{at} = {set}{of_set} v{at} in").unwrap();
            }
            text += &match expected {
                Some(of) => format!("=> v0 {of}, a0 =v0, v9 {of}, a9 =v9"),
                None => "error CannotColocate no device type supports both of those nodes".into(),
            };
            check(&text);
        }
    }
}

/// Case 37.
#[test]
fn colocation_and_references_join_many_nodes() {
    let mut text = "case many\nin = In\n".to_owned();
    let mut expected = Vec::new();
    for at in 0..100 {
        let (class, set_class) = match at {
            0..10 => (String::new(), String::new()),
            _ => (format!("~v{}", at % 6), format!("~a{}", at % 3)),
        };
        writeln!(text, "v{at} = Var {class}\na{at} = SetVar v{at} in {set_class}").unwrap();
        expected.push(format!("a{at} =v{at}"));
        if at >= 10 {
            expected.push(format!("v{at} =v{}", at % 6));
        }
    }
    check(&format!("{text}=> {}", expected.join(", ")));
}

#[test]
fn case_numbers_are_unique() {
    let mut titles = BTreeMap::new();
    for case in cases(include_str!("cases.txt")) {
        let number = case.title.split_whitespace().next().expect("a number");
        assert_eq!(titles.insert(number, case.title), None, "{number}");
    }
}
